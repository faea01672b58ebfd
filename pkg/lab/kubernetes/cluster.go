// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// nodeNames are the names of a cluster's nodes. node-a has Debian's containerd, which is older, and the control plane;
// the others have containerd 2. A cluster starts with the first two.
var nodeNames = []string{"node-a", "node-b", "node-c"}

// PodCIDR is the cluster's network for pods, as with kubeadm's --pod-network-cidr.
const PodCIDR = "10.244.0.0/16"

// podCIDR6 and serviceCIDR6 are the additional networks of a dual-stack cluster.
const podCIDR6, serviceCIDR6 = "fd00:10:244::/56", "fd00:10:96::/112"

// fabric and fabric6 are the networks of the nodes. The bridge has the first address of each.
var (
	fabric  = netip.MustParsePrefix("172.18.0.1/24")
	fabric6 = netip.MustParsePrefix("fd00:172:18::1/64")
)

const bridge = "nodes"

// A Cluster is a control plane and two or three nodes. It runs in the test's network namespace, which has nothing but a
// bridge between the nodes.
type Cluster struct {
	*Plane
	Nodes []*Node

	dual                   bool   // has both families of addresses
	podCIDRs, serviceCIDRs string // of each family

	controllers, scheduler *process
}

// Up starts a cluster in the state in which kubeadm leaves it: nodes wait for a network. The images, tar files, are
// imported on both nodes, in addition to those that tests use.
func Up(tb testing.TB, images ...string) *Cluster {
	tb.Helper()
	return (&Cluster{podCIDRs: PodCIDR, serviceCIDRs: serviceCIDR}).up(tb, images)
}

// UpDual starts a dual-stack cluster. Pods of node-b have IPv6 first.
func UpDual(tb testing.TB, images ...string) *Cluster {
	tb.Helper()
	return (&Cluster{dual: true, podCIDRs: PodCIDR + "," + podCIDR6, serviceCIDRs: serviceCIDR + "," + serviceCIDR6}).up(tb, images)
}

func (c *Cluster) up(tb testing.TB, images []string) *Cluster {
	tb.Helper()
	makeBridge(tb)
	c.Plane = newPlane(tb, nil)
	images = append(images, c.testImages())
	for i, name := range nodeNames[:2] {
		c.Nodes = append(c.Nodes, c.newNode(name, i))
	}
	first := c.Nodes[0]
	first.boot()
	c.enter = []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", first.init.cmd.Process.Pid)}
	c.start(address{
		host: first.Address.String(), api: first.Address.String() + ":6443", etcd: "127.0.0.1:2379", peer: "127.0.0.1:2380",
		flags: []string{"--service-cluster-ip-range=" + c.serviceCIDRs},
	})
	c.controllers = c.program("kube-controller-manager", "--kubeconfig="+c.kubeconfig("system:kube-controller-manager", ""),
		"--allocate-node-cidrs", "--cluster-cidr="+c.podCIDRs, "--service-cluster-ip-range="+c.serviceCIDRs, "--use-service-account-credentials",
		"--service-account-private-key-file="+c.file("accounts.key"), "--root-ca-file="+c.file("ca.crt"), "--leader-elect=false")
	c.scheduler = c.program("kube-scheduler", "--kubeconfig="+c.kubeconfig("system:kube-scheduler", ""), "--leader-elect=false")
	c.controllers.start()
	c.scheduler.start()
	c.Apply(fmt.Sprintf(kubeadmConfig, c.podCIDRs, c.serviceCIDRs))
	for _, n := range c.Nodes {
		n.join(images)
	}
	for _, n := range c.Nodes {
		c.Eventually(n.Name+" to register", func(string) error { return nil }, "get", "node", n.Name)
	}
	c.Kubectl("label", "node", first.Name, "node-role.kubernetes.io/control-plane=")
	tb.Cleanup(func() {
		if tb.Failed() {
			c.describe()
		}
	})
	return c
}

// kubeadmConfig is the ConfigMap in which kubeadm stores the pods' network.
const kubeadmConfig = `apiVersion: v1
kind: ConfigMap
metadata: {name: kubeadm-config, namespace: kube-system}
data:
  ClusterConfiguration: |
    apiVersion: kubeadm.k8s.io/v1beta4
    kind: ClusterConfiguration
    kubernetesVersion: v1.34.4
    networking:
      dnsDomain: cluster.local
      podSubnet: %s
      serviceSubnet: %s
`

// makeBridge makes the network of the nodes in the test's own namespace.
func makeBridge(tb testing.TB) {
	tb.Helper()
	if os.Getenv("CALICO_ISOLATED") != "1" {
		tb.Fatal("a cluster needs namespaces of its own: run the test by bin/tools/isolate")
	}
	command(tb, "ip", "link", "add", bridge, "type", "bridge")
	tb.Cleanup(func() { command(tb, "ip", "link", "delete", bridge) })
	command(tb, "ip", "address", "add", fabric.String(), "dev", bridge)
	command(tb, "ip", "address", "add", fabric6.String(), "dev", bridge, "nodad")
	command(tb, "ip", "link", "set", bridge, "up")
}

// command runs a program and returns what it prints.
func command(tb testing.TB, argv ...string) string {
	tb.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		tb.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// Node returns the node with the name.
func (c *Cluster) Node(name string) *Node {
	c.tb.Helper()
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	c.tb.Fatalf("no node %q", name)
	return nil
}

// Grow adds a third node and imports the images there.
func (c *Cluster) Grow(images ...string) *Node {
	c.tb.Helper()
	n := c.newNode(nodeNames[len(c.Nodes)], len(c.Nodes))
	c.Nodes = append(c.Nodes, n)
	n.join(append(images, c.file("images.tar")))
	c.Eventually(n.Name+" to register", func(string) error { return nil }, "get", "node", n.Name)
	return n
}

// AwaitReady waits until all nodes are ready.
func (c *Cluster) AwaitReady() {
	c.tb.Helper()
	c.Eventually("all nodes to be ready", func(out string) error {
		if ready := strings.Count(out, "True"); ready != len(c.Nodes) {
			return fmt.Errorf("%d of %d: %s", ready, len(c.Nodes), out)
		}
		return nil
	}, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].message}{"\n"}{end}`)
}

// A Pod has the fields of a pod that tests use.
type Pod struct {
	Namespace, Name, Node, Phase string
	IP                           netip.Addr // the zero Addr if it has none
	IPs                          []netip.Addr
	UID                          string
	HostNetwork, Ready, Leaving  bool
}

// Pods returns the pods that the arguments to kubectl get pods select.
func (c *Cluster) Pods(selection ...string) []Pod {
	c.tb.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name, UID, DeletionTimestamp string }
			Spec     struct {
				NodeName    string
				HostNetwork bool
			}
			Status struct {
				Phase, PodIP string
				PodIPs       []struct{ IP netip.Addr }
				Conditions   []struct{ Type, Status string }
			}
		}
	}
	out := c.Kubectl(append([]string{"get", "pods", "-o", "json"}, selection...)...)
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		c.tb.Fatal(err)
	}
	pods := make([]Pod, 0, len(list.Items))
	for _, i := range list.Items {
		p := Pod{
			Namespace: i.Metadata.Namespace, Name: i.Metadata.Name, Node: i.Spec.NodeName, Phase: i.Status.Phase, UID: i.Metadata.UID,
			HostNetwork: i.Spec.HostNetwork, Leaving: i.Metadata.DeletionTimestamp != "",
		}
		p.IP, _ = netip.ParseAddr(i.Status.PodIP) // "" until it has one
		for _, a := range i.Status.PodIPs {
			p.IPs = append(p.IPs, a.IP)
		}
		for _, c := range i.Status.Conditions {
			p.Ready = p.Ready || c.Type == "Ready" && c.Status == "True"
		}
		pods = append(pods, p)
	}
	return pods
}

// AwaitPods waits until exactly this many pods are selected, all of them ready and none being deleted.
func (c *Cluster) AwaitPods(want int, selection ...string) []Pod {
	c.tb.Helper()
	var pods []Pod
	eventually.Within(c.tb, Patience, fmt.Sprintf("%d pods of %v", want, selection), func() error {
		pods = c.Pods(selection...)
		var wrong []error
		for _, p := range pods {
			if !p.Ready || p.Leaving {
				wrong = append(wrong, fmt.Errorf("%s/%s on %s: %s", p.Namespace, p.Name, p.Node, p.Phase))
			}
		}
		if len(pods) != want {
			wrong = append(wrong, fmt.Errorf("%d pods", len(pods)))
		}
		return errors.Join(wrong...)
	})
	return pods
}

// describe logs what helps to find out why a test failed.
func (c *Cluster) describe() {
	for _, args := range [][]string{
		{"get", "nodes,pods", "-A", "-o", "wide"},
		{"events", "-A", "--types=Warning"},
		{"logs", "-n", "kube-system", "-l", "k8s-app=calico-node", "--all-containers", "--prefix", "--tail=40"},
		{"logs", "-n", "kube-system", "-l", "k8s-app=calico-controllers", "--all-containers", "--prefix", "--tail=40"},
	} {
		out, err := c.TryKubectl("", args...)
		c.tb.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for _, n := range c.Nodes {
		for _, p := range []*process{n.init, n.containerd, n.kubelet, n.proxy} {
			c.tb.Logf("%s:\n%s", p.name, p.tail(8))
		}
	}
}
