// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// TestSlowHostProtection applies the component to a cluster that runs, and takes it away again.
func TestSlowHostProtection(t *testing.T) {
	c := Up(t, Images(t)...)
	etcd := c.Install(Manifest(t))
	c.namespace(t, "guests")
	c.Apply(workload("DaemonSet", "guests", "web", 0, web))
	pods := c.AwaitPods(2, "-n", "guests")
	member := c.Nodes[0].Address.String()
	guarded := map[string]bool{"2479": true, "2480": true, "9091": true}
	tunnels := tunnelsOf(t, etcd, c.Nodes)

	// reached says which ports a pod or the outside, which is not a node, finds open that should be closed, or the reverse.
	reached := func(open bool) {
		t.Helper()
		for _, p := range pods {
			for node, tunnel := range tunnels {
				eventually.Within(t, Patience, fmt.Sprintf("port 9091 of the tunnel of %s to be open to a pod of %s: %v", node, p.Node, open), func() error {
					return expect(open, c.connect(p, net.JoinHostPort(tunnel, "9091")))
				})
			}
		}
		for port := range guarded {
			for _, p := range pods {
				eventually.Within(t, Patience, fmt.Sprintf("port %s to be open to a pod of %s: %v", port, p.Node, open), func() error {
					return expect(open, c.connect(p, member+":"+port))
				})
			}
			eventually.Within(t, Patience, fmt.Sprintf("port %s to be open to the outside: %v", port, open), func() error {
				return expect(open, dial(member+":"+port))
			})
		}
	}
	// Metrics are closed to both, but for whom a policy lets in.
	for _, err := range []error{c.connect(pods[0], member+":9091"), dial(member + ":9091")} {
		if err := expect(false, err); err != nil {
			t.Errorf("metrics: %v", err)
		}
	}
	_, err := c.Etcd().Transact(t.Context(), nil, func(*model.View) (model.Change, error) {
		return model.Change{Puts: []model.Put{{Key: model.PolicyKey{Tier: model.DefaultTier, Policy: "prometheus"}, Value: model.Policy{
			Selector: "projectcalico.org/serves == 'metrics'", Inbound: []model.Rule{{Action: model.ActionAllow}}, Types: []model.Direction{model.Inbound},
		}}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	reached(true)

	c.Apply(kustomize(t, "calico", "host-protection"))
	c.Kubectl("rollout", "status", "-n", kubeSystem, "daemonset/calico-node", "--timeout=180s")
	c.Kubectl("rollout", "status", "-n", kubeSystem, "deployment/calico-controllers", "--timeout=180s")
	reached(false)
	// Nodes reach each other's, and all else stays open: the API server and kubelet, and what no policy names.
	c.Node("node-b").Run("bash", "-c", "exec 3<>/dev/tcp/"+member+"/2479")
	for _, port := range []string{"6443", "10250", "10256"} {
		if err := dial(member + ":" + port); err != nil {
			t.Errorf("port %s: %v", port, err)
		}
	}
	// Agents and controllers go on: those that start now, pods of a namespace that is new, and probes.
	c.Kubectl("rollout", "restart", "-n", kubeSystem, "daemonset/calico-node", "deployment/calico-controllers")
	c.Kubectl("rollout", "status", "-n", kubeSystem, "daemonset/calico-node", "--timeout=180s")
	c.Kubectl("rollout", "status", "-n", kubeSystem, "deployment/calico-controllers", "--timeout=180s")
	c.Run(t, "pods", func(t *testing.T) {
		c.namespace(t, "later")
		c.Apply(workload("DaemonSet", "later", "web", 0, web))
		later := c.AwaitPods(2, "-n", "later")
		if err := c.connect(later[0], later[1].IP.String()+":8080"); err != nil {
			t.Errorf("pods of two nodes: %v", err)
		}
		if err := expect(false, c.connect(later[1], member+":2479")); err != nil {
			t.Error(err)
		}
	})

	c.Kubectl("apply", "-f", Manifest(t))
	c.Kubectl("rollout", "status", "-n", kubeSystem, "daemonset/calico-node", "--timeout=180s")
	reached(true)
	c.AwaitClean(etcd) // the test is outside itself
	eventually.Within(t, Patience, "nothing of the component to be left in etcd", func() error {
		snapshot, err := etcd.Read(t.Context(), model.PrefixRange(model.HostPrefix("")), model.PrefixRange(model.TierKey{Tier: kubepolicy.ProtectionTier}.Path()))
		if err != nil {
			return err
		}
		for _, e := range snapshot.Entries() {
			if _, endpoint := e.Key.(model.HostEndpointKey); endpoint || strings.Contains(e.Path, kubepolicy.ProtectionTier) {
				return fmt.Errorf("%s", e.Path)
			}
		}
		return nil
	})
}

// tunnelsOf are the addresses of the nodes' tunnels, one of each node.
func tunnelsOf(t *testing.T, etcd *store.Client, nodes []*Node) map[string]string {
	t.Helper()
	tunnels := map[string]string{}
	eventually.Within(t, Patience, "each node to have a tunnel", func() error {
		snapshot, err := etcd.Read(t.Context(), model.PrefixRange(model.HostPrefix("")))
		if err != nil {
			return err
		}
		for _, e := range snapshot.Entries() {
			if k, ok := e.Key.(model.HostConfigKey); ok && strings.HasSuffix(k.Name, "TunnelAddr") {
				addr, _ := e.Value.(model.Text)
				tunnels[k.Host] = string(addr)
			}
		}
		if len(tunnels) != len(nodes) {
			return fmt.Errorf("tunnels: %v", tunnels)
		}
		return nil
	})
	return tunnels
}

// dial connects from outside of the cluster.
func dial(address string) error {
	conn, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return err
}

// expect says what is wrong with the outcome of a connection.
func expect(open bool, err error) error {
	if open || err != nil {
		if open {
			return err
		}
		return nil
	}
	return fmt.Errorf("it was reached")
}
