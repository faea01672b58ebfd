// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// TestSlowDual installs Calico on a cluster with both families of addresses, with the edits that docs/kubernetes.md names. node-a, which has
// etcd, and its pods have IPv6 first: kubelet probes them by it.
func TestSlowDual(t *testing.T) {
	c := UpDual(t, Images(t)...)
	etcd := c.Install(c.dualManifest(t))
	c.Kubectl("create", "namespace", "dual")
	both := strings.Replace(service("dual", "web"), "spec: {", "spec: {ipFamilyPolicy: RequireDualStack, ", 1)
	c.Apply(workload("DaemonSet", "dual", "web", 0, web) + workload("DaemonSet", "dual", "client", 0, web) + both)
	servers, clients := c.AwaitPods(2, "-n", "dual", "-l", "app=web"), c.AwaitPods(2, "-n", "dual", "-l", "app=client")
	for _, p := range append(servers, clients...) {
		if len(p.IPs) != 2 || p.IPs[0].Is4() != (p.Node == "node-b") || p.IPs[1].Is4() == p.IPs[0].Is4() {
			t.Fatalf("%s on %s has the addresses %v", p.Name, p.Node, p.IPs)
		}
	}
	targets := strings.Fields(c.Kubectl("get", "service", "-n", "dual", "web", "-o", "jsonpath={.spec.clusterIPs[0]} {.spec.clusterIPs[1]}"))
	for i, a := range targets {
		targets[i] = net.JoinHostPort(a, "80")
	}
	for _, p := range servers {
		for _, a := range p.IPs {
			targets = append(targets, netip.AddrPortFrom(a, 8080).String())
		}
	}
	each := func(reached bool, from ...Pod) {
		t.Helper()
		for _, p := range from {
			for _, to := range targets {
				eventually.Within(t, Patience, fmt.Sprintf("%s on %s to reach %s: %t", p.Name, p.Node, to, reached), func() error {
					return expect(reached, c.connect(p, to))
				})
			}
		}
	}
	each(true, clients...)
	each(true, servers...)

	c.Run(t, "policy", func(t *testing.T) {
		c.Apply(policy("dual", "web", `{podSelector: {matchLabels: {app: web}}, ingress: []}`))
		each(false, clients...)
		c.Apply(policy("dual", "web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: http}]}]}`))
		each(true, clients...)
		// What nodes of both families send from outside of the cluster, by a block of each.
		outside := func(reached bool) {
			t.Helper()
			for _, p := range servers {
				for _, a := range p.IPs {
					eventually.Within(t, Patience, fmt.Sprintf("the outside to reach %s: %t", a, reached), func() error { return expect(reached, dial(netip.AddrPortFrom(a, 8080).String())) })
				}
			}
		}
		for _, p := range servers { // the outside's way to pods is by their node
			for _, a := range p.IPs {
				command(t, "ip", "route", "add", netip.PrefixFrom(a, a.BitLen()).String(), "via", c.Node(p.Node).of(a).String())
			}
		}
		outside(false)
		c.Apply(policy("dual", "outside", fmt.Sprintf(`{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: %s}}, {ipBlock: {cidr: %s}}]}]}`, fabric.Masked(), fabric6.Masked())))
		outside(true)
	})
	c.Run(t, "probes", c.testProbes)
	c.Kubectl("delete", "namespace", "dual")
	eventually.Within(t, Patience, "nothing to be left", func() error {
		blocks, err := inEtcd(etcd, nil)
		if err == nil && len(blocks) == 0 {
			err = fmt.Errorf("no block was ever used")
		}
		return err
	})
}

// dualManifest writes the manifest with the edits for both families.
func (c *Cluster) dualManifest(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(Manifest(t))
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.NewReplacer(`"ipam": {"type": "calico-ipam"}`, `"ipam": {"type": "calico-ipam", "assign_ipv6": "true"}`,
		"name: IP6\n          value: \"\"\n", "name: IP6\n          value: autodetect\n").Replace(string(text))
	if strings.Count(edited, `"assign_ipv6": "true"`) != 1 || strings.Count(edited, "value: autodetect\n") != 1 {
		t.Fatal("calico.yaml has no such lines")
	}
	return c.write("dual.yaml", edited)
}
