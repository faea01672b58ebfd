// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// TestUninstall takes Calico away while pods run: none is cut off by it, they can be deleted, and nothing is left on a node.
func TestUninstall(t *testing.T) {
	c := Up(t, Images(t)...)
	c.Install(Manifest(t))
	c.Kubectl("create", "namespace", "left")
	c.Apply(workload("Deployment", "left", "web", 4, web) + policy("left", "closed", "{podSelector: {}, policyTypes: [Ingress]}"))
	pods := c.AwaitPods(4, "-n", "left")
	from, to := sameNode(t, pods)
	eventually.True(t, "policy to cut off", func() bool { return c.connect(from, to.IP.String()+":8080") != nil })

	c.Kubectl("delete", "-n", "kube-system", "daemonset/calico-node", "deployment/calico-controllers")
	c.AwaitPods(0, "-n", "kube-system", "-l", "k8s-app in (calico-node, calico-controllers)")
	c.Kubectl("apply", "-f", filepath.Join(filepath.Dir(Manifest(t)), "calico-uninstall.yaml"))
	c.uninstalled(t, "pods are left")
	eventually.Within(t, Patience, "pods to be open", func() error { return c.connect(from, to.IP.String()+":8080") })
	c.Kubectl("delete", "namespace", "left", "--timeout=120s")
	c.uninstalled(t, "nothing of Calico is left on this node")
	c.Kubectl("delete", "-f", filepath.Join(filepath.Dir(Manifest(t)), "calico-uninstall.yaml"))
	c.Kubectl("delete", "-f", Manifest(t), "--ignore-not-found")
	if got := c.conditions(); len(got) != len(c.Nodes) {
		t.Errorf("nodes with a condition of ours before the last command: %q", got)
	}
	commands := documented(t, "Uninstall")
	for line := range strings.Lines(commands[len(commands)-2]) {
		if !strings.Contains(line, " -f ") && !strings.Contains(line, " logs ") { // done above
			c.shell(t, t.TempDir(), "", line)
		}
	}
	c.shell(t, t.TempDir(), "", commands[len(commands)-1])
	c.withoutCondition(t)
	if left := c.Kubectl("get", "leases,secrets,configmaps,jobs,cronjobs", "-n", "kube-system", "-o", "name"); strings.Contains(left, "calico") {
		t.Errorf("left in the cluster:\n%s", left)
	}
	if left := c.Kubectl("get", "nodes", "-l", "projectcalico.org/etcd", "-o", "name"); left != "" {
		t.Errorf("nodes with the label of etcd's members: %s", left)
	}
	for _, n := range c.Nodes {
		left := n.Run("sh", "-c", `ls /sys/class/net | grep -e cali -e vxlan; nft list tables | grep calico; ip route | grep -e 'proto 80' -e 'proto 81'
			ls -d /etc/cni/net.d/* /opt/cni/bin/calico* /var/lib/calico /run/calico /var/log/calico 2>/dev/null; true`)
		if left != "" {
			t.Errorf("left on %s:\n%s", n.Name, left)
		}
	}
}

// sameNode gives two pods of one node.
func sameNode(t *testing.T, pods []Pod) (from, to Pod) {
	t.Helper()
	on := map[string]Pod{}
	for _, p := range pods {
		if first, there := on[p.Node]; there {
			return first, p
		}
		on[p.Node] = p
	}
	t.Fatalf("%d pods on as many nodes: want two on one", len(pods))
	return from, to
}

// conditions are what nodes have of Calico's condition, and of the taint that follows from it.
func (c *Cluster) conditions() []string {
	var out []string
	for line := range strings.Lines(c.Kubectl("get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} `+
		`{.status.conditions[?(@.type=="NetworkUnavailable")].reason} {.spec.taints[?(@.key=="node.kubernetes.io/network-unavailable")].effect}{"\n"}{end}`)) {
		if len(strings.Fields(line)) > 1 {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// withoutCondition waits until no node has them.
func (c *Cluster) withoutCondition(t *testing.T) {
	t.Helper()
	eventually.Within(t, Patience, "nodes without a condition of ours", func() error {
		if left := c.conditions(); len(left) > 0 {
			return fmt.Errorf("%q", left)
		}
		return nil
	})
}

// uninstalled waits until every node's uninstaller has said something.
func (c *Cluster) uninstalled(t *testing.T, said string) {
	t.Helper()
	eventually.Within(t, Patience, "each node to say: "+said, func() error {
		var silent []string
		for _, p := range c.Pods("-n", "kube-system", "-l", "k8s-app=calico-uninstall") {
			out, err := c.TryKubectl("", "logs", "-n", "kube-system", p.Name)
			if err != nil || !strings.Contains(out, said) {
				silent = append(silent, fmt.Sprintf("%s: %v %s", p.Node, err, out))
			}
		}
		if len(silent) > 0 {
			return fmt.Errorf("%s", strings.Join(silent, "\n"))
		}
		return nil
	})
}
