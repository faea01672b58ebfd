// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// TestAnnotations starts pods that ask for something, by annotations of their own and of their namespace.
func TestAnnotations(t *testing.T) {
	c := Up(t, Images(t)...)
	text, err := os.ReadFile(Manifest(t))
	if err != nil {
		t.Fatal(err)
	}
	const ipam = `"ipam": {"type": "calico-ipam"},`
	with := func(name, plugin, more string) (manifest string) {
		edited := strings.NewReplacer(ipam, plugin, `"snat": true, "capabilities": {"portMappings": true}}`, `"snat": true, "capabilities": {"portMappings": true}}`+more).Replace(string(text))
		return c.write(name, edited)
	}
	const allowed = `"feature_control": {"ip_addrs_no_ipam": true, "floating_ips": true},`
	etcd := c.Install(with("allowed.yaml", ipam+allowed, ""))
	other := netip.MustParsePrefix("10.99.0.0/24")
	if _, err := etcd.Commit(t.Context(), model.Change{Puts: []model.Put{{Key: model.PoolKey{CIDR: other}, Value: model.Pool{CIDR: other, IPAM: true}}}}); err != nil {
		t.Fatal(err)
	}
	c.Kubectl("create", "namespace", "annotated")
	c.Kubectl("annotate", "namespace", "annotated", "kubernetes.io/ingress-bandwidth=64M")
	apply := func(name, node, annotations string) {
		c.Apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: annotated, annotations: {%s}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers: [%s]
`, name, annotations, node, web))
	}
	start := func(name, node, annotations string) Pod {
		t.Helper()
		apply(name, node, annotations)
		return c.AwaitPods(1, "-n", "annotated", "--field-selector=metadata.name="+name)[0]
	}
	end := func(name string) { c.Kubectl("delete", "pod", "-n", "annotated", name) }
	b := c.Node("node-b")
	qdiscs := func() string {
		return b.Run("sh", "-c", "tc qdisc show; for n in /run/netns/*; do nsenter --net=$n tc qdisc show; done")
	}

	first := start("first", b.Name, `cni.projectcalico.org/hwAddr: "02:00:00:00:00:07", kubernetes.io/egress-bandwidth: 32M`)
	if mac := c.Kubectl("exec", "-n", "annotated", "first", "--", "cat", "/sys/class/net/eth0/address"); mac != "02:00:00:00:00:07\n" {
		t.Errorf("MAC %q", mac)
	}
	if all := qdiscs(); strings.Count(all, "rate 64Mbit ") != 1 || strings.Count(all, "rate 32Mbit ") != 1 {
		t.Errorf("what limits the pod's bandwidth, by its namespace's annotation and its own: %s", all)
	}
	end("first")
	if second := start("second", b.Name, fmt.Sprintf(`cni.projectcalico.org/ipAddrs: '["%s"]'`, first.IP)); second.IP != first.IP {
		t.Errorf("second has %s, and asked for %s", second.IP, first.IP)
	}
	if third := start("third", b.Name, fmt.Sprintf(`cni.projectcalico.org/ipv4pools: '["%s"]'`, other)); !other.Contains(third.IP) {
		t.Errorf("third has %s, and asked for one of %s", third.IP, other)
	}
	c.AwaitClean(etcd)

	// Addresses without address management, and one that leads to another.
	if own := start("own", b.Name, `cni.projectcalico.org/ipAddrsNoIpam: '["10.98.0.7"]'`); own.IP != netip.MustParseAddr("10.98.0.7") {
		t.Errorf("own has %s", own.IP)
	}
	start("floating", b.Name, `cni.projectcalico.org/floatingIPs: '["10.97.0.7"]'`)
	client := start("client", b.Name, "")
	for _, to := range []string{"10.98.0.7:8080", "10.97.0.7:8080"} {
		eventually.Within(t, Patience, "a pod of the node to reach "+to, func() error { return c.connect(client, to) })
	}
	apply("bad", b.Name, `cni.projectcalico.org/ipAddrs: "any"`)
	c.Eventually("an event of the pod that names the annotation", func(out string) error {
		if !strings.Contains(out, "annotation cni.projectcalico.org/ipAddrs, ") || !strings.Contains(out, "want a JSON list of strings") {
			return fmt.Errorf("events: %s", out)
		}
		return nil
	}, "get", "events", "-n", "annotated", "--field-selector", "involvedObject.name=bad", "-o", "jsonpath={.items[*].message}")
	busy := start("busy", b.Name, `cni.projectcalico.org/maxConnections: "3"`)
	if all := b.Run("nft", "list", "table", "inet", "calico"); !regexp.MustCompile(`ct count over 3\b`).MatchString(all) || !strings.Contains(all, "ct count over 1250" /* 20,000, of which one in 16 is counted */) {
		t.Errorf("what the kernel counts connections for, by the pod's annotation and the manifest: %s", all)
	}
	c.Kubectl("exec", "-n", busy.Namespace, busy.Name, "--", "sh", "-c", "for i in 1 2 3 4 5 6 7; do ping -c 1 -W 1 "+client.IP.String()+"; done; true")
	c.Eventually("an event of the pod that has too many connections", func(out string) error {
		if !strings.Contains(out, "it begins connections beyond the 3 that it may have") {
			return fmt.Errorf("events: %s", out)
		}
		return nil
	}, "get", "events", "-n", "annotated", "--field-selector", "involvedObject.name=busy,reason=TooManyConnections", "-o", "jsonpath={.items[*].message}")
	for _, name := range []string{"bad", "own", "floating", "client", "busy", "second", "third"} {
		end(name)
	}
	c.AwaitClean(etcd)

	// The reference plugin limits where the list has it, and another IPAM plugin takes addresses from the Node's podCIDR.
	c.Kubectl("apply", "-f", with("podcidr.yaml", `"ipam": {"type": "host-local", "subnet": "usePodCidr"},`, `, {"type": "bandwidth", "capabilities": {"bandwidth": true}}`))
	c.Kubectl("rollout", "restart", "-n", kubeSystem, "daemonset/calico-node")
	c.awaitCalico()
	last := start("last", b.Name, "kubernetes.io/ingress-bandwidth: 16M") // the runtime knows the pod's own alone
	cidr := netip.MustParsePrefix(c.Kubectl("get", "node", last.Node, "-o", "jsonpath={.spec.podCIDR}"))
	if !cidr.Contains(last.IP) {
		t.Errorf("%s is not in the Node's %s", last.IP, cidr)
	}
	if all := qdiscs(); strings.Count(all, "rate 16Mbit ") != 1 {
		t.Errorf("what limits the pod's bandwidth by the reference plugin: %s", all)
	}
	end("last")
}
