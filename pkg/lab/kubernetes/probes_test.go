// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// testProbes has kubelet's probes reach pods whatever policy says: when they start, when the agent does, and when the cluster's administrator
// denies everything.
func (c *Cluster) testProbes(t *testing.T) {
	t.Helper()
	c.namespace(t, "probed")
	c.Apply(policy("probed", "default-deny", `{podSelector: {}, policyTypes: [Ingress, Egress]}`) + workload("DaemonSet", "probed", "all", 0, probed))
	pods := c.AwaitPods(2, "-n", "probed")
	first := map[string]probes{}
	goOn := func(when string) {
		t.Helper()
		for _, p := range pods {
			before := c.probes(p)
			if _, seen := first[p.UID]; !seen {
				first[p.UID] = before
			}
			eventually.Within(t, Patience, fmt.Sprintf("%s to be probed on %s, %s", p.Name, p.Node, when), func() error {
				now := c.probes(p)
				for _, kind := range []string{"http Readiness", "http Liveness", "grpc Readiness", "grpc Liveness"} {
					if now.passed[kind] < before.passed[kind]+3 {
						return fmt.Errorf("%s: %d after %d", kind, now.passed[kind], before.passed[kind])
					}
				}
				return nil
			})
			if now := c.probes(p); now.failed != first[p.UID].failed {
				t.Errorf("%s: %d probes of %s on %s failed, before %d", when, now.failed, p.Name, p.Node, first[p.UID].failed)
			}
		}
	}
	each := func(reached bool) {
		t.Helper()
		for i, p := range pods {
			for _, a := range pods[1-i].IPs {
				eventually.Within(t, Patience, fmt.Sprintf("%s to be reached at %s, or not", pods[1-i].Name, a), func() error {
					return expect(reached, c.connect(p, netip.AddrPortFrom(a, 8080).String()))
				})
			}
		}
	}
	each(false)
	goOn("under default deny")
	c.Kubectl("rollout", "restart", "-n", kubeSystem, "daemonset/calico-node")
	c.Kubectl("rollout", "status", "-n", kubeSystem, "daemonset/calico-node", "--timeout=180s")
	goOn("after the agent's restart")

	c.Kubectl("delete", "networkpolicy", "-n", "probed", "default-deny")
	each(true)
	c.DefineClusterNetworkPolicies()
	c.Apply(`apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: probed}
spec: {tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: probed}}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}
`)
	each(false)
	goOn("while the cluster denies all ingress")
	c.Kubectl("rollout", "restart", "-n", "probed", "daemonset/all")
	c.Kubectl("rollout", "status", "-n", "probed", "daemonset/all", "--timeout=120s")
	pods = c.AwaitPods(2, "-n", "probed")
	goOn("of pods that start meanwhile")
	c.Kubectl("delete", "clusternetworkpolicy", "probed")
}

// probes are how many of a pod have passed, by container and kind, and how many have failed.
type probes struct {
	passed map[string]int
	failed int
}

// prober is a line of kubelet's metrics.
var prober = regexp.MustCompile(`(?m)^prober_probe_total\{container="(\w+)",.*pod_uid="([^"]+)",probe_type="(\w+)",result="(\w+)"\} (\d+)$`)

func (c *Cluster) probes(p Pod) probes {
	c.tb.Helper()
	out := probes{passed: map[string]int{}}
	for _, m := range prober.FindAllStringSubmatch(c.Node(p.Node).Run("curl", "-sk", "https://127.0.0.1:10250/metrics/probes"), -1) {
		n, err := strconv.Atoi(m[5])
		switch {
		case err != nil:
			c.tb.Fatal(err)
		case m[2] != p.UID:
		case m[4] == "successful":
			out.passed[m[1]+" "+m[3]] = n
		default:
			out.failed += n
		}
	}
	return out
}
