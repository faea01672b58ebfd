// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
)

// annotations starts pods that ask for something, by annotations of their own and of their namespace.
func (c *Cluster) annotations(t *testing.T) {
	c.namespace(t, "annotated")
	c.Kubectl("annotate", "namespace", "annotated", "kubernetes.io/ingress-bandwidth=64M")
	apply := func(name, annotations string) {
		c.Apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: annotated, annotations: {%s}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [%s]
`, name, annotations, web))
	}
	apply("first", `cni.projectcalico.org/hwAddr: "02:00:00:00:00:07"`)
	first := c.AwaitPods(1, "-n", "annotated")[0]
	if mac := c.Kubectl("exec", "-n", "annotated", "first", "--", "cat", "/sys/class/net/eth0/address"); mac != "02:00:00:00:00:07\n" {
		t.Errorf("MAC %q", mac)
	}
	if qdiscs := c.Node(first.Node).Run("/sbin/tc", "qdisc", "show"); strings.Count(qdiscs, "rate 64Mbit ") != 1 {
		t.Errorf("what limits the pod's bandwidth on its node: %s", qdiscs)
	}
	c.Kubectl("delete", "pod", "-n", "annotated", "first")
	apply("second", fmt.Sprintf(`cni.projectcalico.org/ipAddrs: '["%s"]'`, first.IP))
	if second := c.AwaitPods(1, "-n", "annotated")[0]; second.IP != first.IP {
		t.Errorf("second has %s, and asked for %s", second.IP, first.IP)
	}
	apply("bad", `cni.projectcalico.org/ipAddrs: "any"`)
	c.Eventually("an event of the pod that names the annotation", func(out string) error {
		if !strings.Contains(out, "annotation cni.projectcalico.org/ipAddrs, ") || !strings.Contains(out, "want a JSON list of strings") {
			return fmt.Errorf("events: %s", out)
		}
		return nil
	}, "get", "events", "-n", "annotated", "--field-selector", "involvedObject.name=bad", "-o", "jsonpath={.items[*].message}")
	c.Kubectl("delete", "pod", "-n", "annotated", "bad")
}
