// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/ctl/session"
)

// A test is what is tried, as the table names it.
type test string

const (
	testPod      test = "pod"
	testSameNode test = "pod of the same node" // its advice
	testService  test = "service"
	testNodePort test = "node port"
	testHost     test = "host"
	testMTU      test = "MTU"
	testDNS      test = "DNS"
	testOutside  test = "outside"
	testDenied   test = "policy: all denied"
	testAllowed  test = "policy: client allowed"
	testOthers   test = "policy: others denied"
)

// A phase is what is tried at the same time, by a client on each node. Policies change between phases.
type phase struct {
	client string // the clients' role
	policy string // made before, "" = none
	allows string // the role of those whom it lets in, "" = none
	test   test   // of servers' addresses
	doing  string
}

var phases = []phase{
	{"client", "", "", testPod, "trying the network"},
	{"denied", "deny", "", testDenied, "trying a policy that denies all"},
	{"allowed", "allow", "allowed", testAllowed, "trying a policy that allows one client"},
	{"others", "", "", testOthers, "trying that it allows no other"},
}

// serverPort is where servers answer, by TCP and UDP.
const serverPort = 8080

// A probe is what a client tries until it ends as it should, or time is up.
type probe struct {
	Test   test   `json:"test"`
	From   string `json:"from"` // node
	To     string `json:"to"`   // node, or what else is asked
	Target string `json:"target"`
	Answer string `json:"answer"` // what answers is called so; "" = a connection is enough
	Closed bool   `json:"closed"` // by policy
}

// family is that of the target's address, "" for a name.
func (p probe) family() string {
	a, err := netip.ParseAddrPort(p.Target)
	switch {
	case err != nil:
		return ""
	case a.Addr().Is4():
		return "IPv4"
	}
	return "IPv6"
}

// An end is a node with the server that runs there.
type end struct {
	node, server       string
	pod, service, host []netip.Addr
	nodePort           int32
	kubelet            int32 // the port of the node's kubelet, which listens everywhere; 0 = unknown
}

// has says whether there is an address of the family of another.
func has(all []netip.Addr, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(b netip.Addr) bool { return a.Is4() == b.Is4() })
}

// plan returns what the client on a node tries in a phase, with addresses of families that all pods have.
func plan(ph phase, from end, ends []end, dns bool, outside string) (all []probe) {
	for _, to := range ends {
		add := func(t test, name string, port int32, answer string, addrs, of []netip.Addr) {
			for _, a := range addrs {
				if port != 0 && has(of, a) && !slices.ContainsFunc(ends, func(e end) bool { return !has(e.pod, a) }) {
					all = append(all, probe{t, from.node, name, netip.AddrPortFrom(a, uint16(port)).String(), answer, t == testDenied || t == testOthers})
				}
			}
		}
		add(ph.test, to.node, serverPort, to.server, to.pod, to.pod)
		if ph.test != testPod {
			continue
		}
		add(testHost, to.node, to.kubelet, "", to.host, to.host)
		add(testService, to.node, serverPort, to.server, to.service, to.service)
		add(testNodePort, to.node, to.nodePort, to.server, to.host, to.service)
		if from.node != to.node {
			add(testNodePort, to.node+" by "+from.node, to.nodePort, to.server, from.host, to.service)
			add(testMTU, to.node, serverPort, to.server, to.pod, to.pod)
		}
	}
	if ph.test != testPod {
		return all
	}
	if dns {
		all = append(all, probe{Test: testDNS, From: from.node, To: dnsName, Target: dnsName})
	}
	if outside != "" {
		all = append(all, probe{Test: testOutside, From: from.node, To: outside, Target: outside})
	}
	return all
}

// untried are the tests that there is nothing for.
func untried(ends []end, dns bool, outside string) (all []outcome) {
	skip := func(t test, reason string) { all = append(all, outcome{probe: probe{Test: t}, skipped: reason}) }
	if len(ends) == 1 {
		skip(testMTU, "no other node is ready and takes pods: nothing between nodes was tried")
	}
	if !dns {
		skip(testDNS, "the cluster has no service kube-system/kube-dns")
	}
	if outside == "" {
		skip(testOutside, "--outside ADDRESS:PORT names what to reach")
	}
	return all
}

// dnsName is the service that every cluster has.
const dnsName = "kubernetes.default.svc"

// choose returns two nodes, or one where there is no other: those that are named, else the first that are ready, with those last on
// which not every pod runs.
func choose(nodes []*corev1.Node, named []string) (chosen []*corev1.Node, err error) {
	for _, name := range named {
		i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == name })
		if i < 0 {
			return nil, &session.StatusError{Status: session.StatusNotFound, Err: fmt.Errorf("no node %q: see kubectl get nodes", name)}
		}
		if reason := unready(nodes[i]); reason != "" {
			return nil, fmt.Errorf("node %s isn't ready: %s", name, reason)
		}
		chosen = append(chosen, nodes[i])
	}
	if len(named) > 0 {
		return chosen, nil
	}
	chosen = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return unready(n) != "" || n.Spec.Unschedulable })
	slices.SortFunc(chosen, func(a, b *corev1.Node) int {
		return cmp.Or(cmp.Compare(len(a.Spec.Taints), len(b.Spec.Taints)), cmp.Compare(a.Name, b.Name))
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no node of %d is ready and takes pods: see kubectl get nodes, and calicoctl node status there", len(nodes))
	}
	return chosen[:min(2, len(chosen))], nil
}

// unready says why a node isn't ready, "" = it is.
func unready(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return ""
			}
			return cmp.Or(c.Message, c.Reason, "Ready is "+string(c.Status))
		}
	}
	return "its kubelet hasn't said anything yet"
}

// An outcome is what became of a probe, or why it wasn't tried.
type outcome struct {
	probe
	Error   string `json:"error,omitempty"` // "" = as it should
	skipped string
}

// judge returns the lines of the table, what to do, and how many tests failed. Where a client doesn't reach a server's pod, all else that
// it tries with this server fails for the same reason; where nobody does on the server's node, nobody on another node will.
func judge(all []outcome) (table [][]string, todo []string, failed int) {
	cut := map[[3]string]bool{}
	for _, o := range all {
		if o.Test == testPod && o.Error != "" {
			cut[[3]string{o.family(), o.From, o.Answer}] = true
			if o.From == o.To {
				cut[[3]string{o.family(), "", o.Answer}] = true
			}
		}
	}
	for _, o := range all {
		from, what := o.From, o.Test
		switch {
		case o.Test == testPod && o.From == o.To:
			from, what = "nobody", testSameNode
		case o.Test == testPod:
			from = ""
		}
		follows, result := cut[[3]string{o.family(), from, o.Answer}], "ok"
		switch {
		case o.Closed && o.Error == "" && follows:
			o.skipped = "it isn't reached without a policy either"
		case o.Error != "":
			result = "FAILED: " + o.Error
			failed++
			if line := string(what) + ": " + advice[what]; !follows && !slices.Contains(todo, line) {
				todo = append(todo, line)
			}
		}
		if o.skipped != "" {
			result = "skipped: " + o.skipped
		}
		table = append(table, []string{string(o.Test), cmp.Or(o.family(), "-"), cmp.Or(o.From, "-"), cmp.Or(o.To, "-"), result})
	}
	return table, todo, failed
}

var advice = map[test]string{
	testSameNode: fmt.Sprintf("see `calicoctl node status` on the node and the log of its calico-node pod; a policy of yours that selects pods of all namespaces counts as well: run again with --keep, then `calicoctl explain %[1]s/allowed-1 to %[1]s/server-1 tcp:%[2]d`, or the same with -2", namespace, serverPort),
	testPod:      "the network between the nodes must pass what the pool's mode needs (VXLAN: UDP 4789, IPIP: protocol 4, BGP: TCP 179, docs/routing.md); see `calicoctl doctor`, and `calicoctl node status` on both nodes",
	testService:  "services are kube-proxy's: see `kubectl -n kube-system get pods -l k8s-app=kube-proxy` and its log on the client's node",
	testNodePort: "node ports are kube-proxy's: see its log, nodePortAddresses in its configuration, and host endpoints (`calicoctl get hep -o wide`, docs/kubernetes.md, Ports of the nodes)",
	testHost:     "see defaultEndpointToHostAction (`calicoctl get felixconfig -o yaml`), host endpoints (`calicoctl get hep -o wide`) and the nodes' own firewalls",
	testMTU:      "packets as large as the pods' MTU are lost between the nodes: their network takes less than their links say: set the links' MTU, or UplinkMTU (docs/configuration.md; docs/routing.md for what tunnels need); `calicoctl doctor` on both nodes says what their agents found",
	testDNS:      "see `kubectl -n kube-system get pods -l k8s-app=kube-dns` and their log; policies that deny egress or ingress of kube-system count as well",
	testOutside:  "the pool must masquerade, or the network beyond the node know the way back (`calicoctl get ippools -o wide`: NAT); see the node's own routes and firewall",
	testDenied:   "NetworkPolicies have no effect: see `kubectl -n kube-system get pods -l k8s-app=calico-controllers`, their log, and `calicoctl status`; `calicoctl get gnp -o wide` for a policy of a lower order that allows all",
	testAllowed:  "the server's policy has no effect, or another denies: see the log of the calico-controllers, `calicoctl status` and `calicoctl get gnp -o wide`",
	testOthers:   "a policy of a lower order allows more: see `calicoctl get gnp -o wide`, and the log of the calico-controllers",
}

// named names a pod of ours by the number of its node.
func named(role string, node int) string { return role + "-" + strconv.Itoa(node+1) }
