// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// TestUp is of the cluster itself, with the reference plugin in place of ours on each node.
func TestUp(t *testing.T) {
	c := Up(t)
	for i, n := range c.Nodes {
		n.ptp(i)
	}
	c.AwaitReady()
	c.Apply(workload("Deployment", "default", "web", 4, web))
	pods := c.AwaitPods(4, "-l", "app=web")
	runtimes := c.Kubectl("get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.containerRuntimeVersion}")
	if !strings.Contains(runtimes, "containerd://1.6") || !strings.Contains(runtimes, "containerd://v2") && !strings.Contains(runtimes, "containerd://2") {
		t.Errorf("runtimes: %s", runtimes)
	}
	b := c.Node("node-b")
	b.PowerFailure()
	b.Boot()
	for _, p := range pods {
		if p.Node == "node-b" {
			eventually.Within(t, Patience, "a pod to run again after a power failure", func() error { return c.connect(p, "127.0.0.1:8080") })
		}
	}
}

// ptp gives the node the reference plugin.
func (n *Node) ptp(index int) {
	n.Write("/etc/cni/net.d/.10-net.conflist", fmt.Sprintf(
		`{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.245.1%d.0/24"}}]}`, index))
	n.Run("mv", "/etc/cni/net.d/.10-net.conflist", "/etc/cni/net.d/10-net.conflist")
}
