// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// twoEnds are of both families, but node b and its server have IPv4 alone where one is asked for.
func twoEnds(dual bool) []end {
	a := end{
		node: "a", server: "server-1", pod: addrs("10.0.0.1", "fd00::1"), service: addrs("10.96.0.1", "fd00:96::1"), host: addrs("172.18.0.2", "fd00:172::2"),
		nodePort: 30001, kubelet: 10250,
	}
	b := end{node: "b", server: "server-2", pod: addrs("10.0.1.1"), service: addrs("10.96.0.2", "None"), host: addrs("172.18.0.3", "fd00:172::3"), nodePort: 30002}
	if dual {
		b.pod = append(b.pod, netip.MustParseAddr("fd00::1:1"))
	}
	return []end{a, b}
}

func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		phase   int
		ends    []end
		dns     bool
		outside string
		want    string
	}{
		{0, twoEnds(false), true, "192.0.2.1:443", `
pod: a to a at 10.0.0.1:8080 is server-1
host: a to a at 172.18.0.2:10250 is 
service: a to a at 10.96.0.1:8080 is server-1
node port: a to a at 172.18.0.2:30001 is server-1
pod: a to b at 10.0.1.1:8080 is server-2
service: a to b at 10.96.0.2:8080 is server-2
node port: a to b at 172.18.0.3:30002 is server-2
node port: a to b by a at 172.18.0.2:30002 is server-2
MTU: a to b at 10.0.1.1:8080 is server-2
DNS: a to kubernetes.default.svc at kubernetes.default.svc is 
outside: a to 192.0.2.1:443 at 192.0.2.1:443 is 
`},
		{0, twoEnds(true)[:1], false, "", `
pod: a to a at 10.0.0.1:8080 is server-1
pod: a to a at [fd00::1]:8080 is server-1
host: a to a at 172.18.0.2:10250 is 
host: a to a at [fd00:172::2]:10250 is 
service: a to a at 10.96.0.1:8080 is server-1
service: a to a at [fd00:96::1]:8080 is server-1
node port: a to a at 172.18.0.2:30001 is server-1
node port: a to a at [fd00:172::2]:30001 is server-1
`},
		{1, twoEnds(true), true, "192.0.2.1:443", `
policy: all denied: a to a at 10.0.0.1:8080 is server-1, closed
policy: all denied: a to a at [fd00::1]:8080 is server-1, closed
policy: all denied: a to b at 10.0.1.1:8080 is server-2, closed
policy: all denied: a to b at [fd00::1:1]:8080 is server-2, closed
`},
		{2, twoEnds(false), true, "", "\npolicy: client allowed: a to a at 10.0.0.1:8080 is server-1\npolicy: client allowed: a to b at 10.0.1.1:8080 is server-2\n"},
		{3, twoEnds(false), true, "", "\npolicy: others denied: a to a at 10.0.0.1:8080 is server-1, closed\npolicy: others denied: a to b at 10.0.1.1:8080 is server-2, closed\n"},
	} {
		got := "\n"
		for _, p := range plan(phases[tc.phase], tc.ends[0], tc.ends, tc.dns, tc.outside) {
			got += fmt.Sprintf("%s: %s to %s at %s is %s", p.Test, p.From, p.To, p.Target, p.Answer)
			if p.Closed {
				got += ", closed"
			}
			got += "\n"
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", phases[tc.phase].doing, diff)
		}
	}
}

func TestChoose(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus, change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Message: "cni plugin not initialized"}}
		change(n)
		return n
	}
	plain := func(*corev1.Node) {}
	all := []*corev1.Node{
		node("a", "True", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "control-plane"}} }),
		node("b", "False", plain),
		node("c", "True", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		node("e", "True", plain), node("d", "True", plain),
		node("f", "", func(n *corev1.Node) { n.Status.Conditions = nil }),
	}
	for _, tc := range []struct {
		nodes []*corev1.Node
		named []string
		want  string
	}{
		{all, nil, "d e"},
		{all[:4], nil, "e a"},
		{all[:3], nil, "a"},
		{all[1:3], nil, "no node of 2 is ready and takes pods: see kubectl get nodes, and calicoctl node status there"},
		{nil, nil, "no node of 0 is ready and takes pods: see kubectl get nodes, and calicoctl node status there"},
		{all, []string{"c", "a"}, "c a"},
		{all, []string{"a", "b"}, "node b isn't ready: cni plugin not initialized"},
		{all, []string{"f"}, "node f isn't ready: its kubelet hasn't said anything yet"},
		{all, []string{"z"}, `no node "z": see kubectl get nodes`},
	} {
		chosen, err := choose(tc.nodes, tc.named)
		got := ""
		for _, n := range chosen {
			got += " " + n.Name
		}
		if err != nil {
			got = err.Error()
		}
		if got = strings.TrimSpace(got); got != tc.want {
			t.Errorf("%q: %s, want %s", tc.named, got, tc.want)
		}
	}
}

// TestReport: what follows from a failure has no advice of its own, nor has what is denied where nothing passes anyway.
func TestReport(t *testing.T) {
	ends := twoEnds(false)
	tried := func(failed ...string) (all []outcome) {
		for _, ph := range phases {
			for _, p := range plan(ph, ends[0], ends, true, "192.0.2.1:443") {
				o := outcome{probe: p}
				for _, f := range failed {
					if strings.HasPrefix(fmt.Sprintf("%s %s", p.Test, p.To), f) {
						o.Error = "lost"
					}
				}
				all = append(all, o)
			}
		}
		return all
	}
	for name, tc := range map[string]struct {
		failed []string
		advice []string // how each begins
		marked string
	}{
		"all is well":            {nil, nil, ""},
		"a large packet is lost": {[]string{"MTU b"}, []string{"MTU: packets as large"}, ""},
		"the other node is cut off": {
			[]string{"pod b", "service b", "node port b", "MTU b", "policy: client allowed b"},
			[]string{"pod: the network between the nodes"}, "policy: all denied b, policy: others denied b, ",
		},
		"nothing passes on the node": {
			[]string{"pod a", "service a", "node port a", "policy: client allowed a"},
			[]string{"pod of the same node: see `calicoctl node status` on the node"}, "policy: all denied a, policy: others denied a, ",
		},
		"without kube-proxy": {[]string{"service", "node port", "DNS"}, []string{"service: ", "node port: ", "DNS: "}, ""},
		"without policy":     {[]string{"policy: all", "policy: others"}, []string{"policy: all denied: NetworkPolicies have no effect", "policy: others denied: "}, ""},
		"not beyond":         {[]string{"host", "outside", "policy: client"}, []string{"host: ", "outside: ", "policy: client allowed: "}, ""},
	} {
		all := tried(tc.failed...)
		table, got, _ := judge(all)
		marked := ""
		for _, row := range table {
			if strings.HasPrefix(row[4], "skipped: ") {
				marked += row[0] + " " + row[3] + ", "
			}
		}
		if marked != tc.marked {
			t.Errorf("%s: in doubt: %s, want %s", name, marked, tc.marked)
		}
		if len(got) != len(tc.advice) {
			t.Errorf("%s: %d lines of advice, want %d: %q", name, len(got), len(tc.advice), got)
			continue
		}
		for i, line := range got {
			if !strings.HasPrefix(line, tc.advice[i]) {
				t.Errorf("%s: %s, want %s", name, line, tc.advice[i])
			}
		}
	}
	table, _, failed := judge([]outcome{
		{probe: probe{testPod, "a", "b", "10.0.0.1:8080", "server-1", false}}, {probe: probe{testHost, "a", "b", "[fd00::1]:10250", "", false}, Error: "lost"},
		{probe: probe{Test: testDNS, From: "a", To: dnsName, Target: dnsName}}, untried(ends[:1], true, "x")[0],
	})
	want := [][]string{
		{"pod", "IPv4", "a", "b", "ok"}, {"host", "IPv6", "a", "b", "FAILED: lost"}, {"DNS", "-", "a", "kubernetes.default.svc", "ok"},
		{"MTU", "-", "-", "-", "skipped: no other node is ready and takes pods: nothing between nodes was tried"},
	}
	if diff := cmp.Diff(want, table); diff != "" || failed != 1 {
		t.Errorf("%d failed (-want +got):\n%s", failed, diff)
	}
	if got := len(untried(ends, false, "")); got != 2 {
		t.Errorf("without DNS and outside: %d rows, want 2", got)
	}
}

func TestImageOf(t *testing.T) {
	d := &appsv1.DaemonSet{}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "other", Image: "x"}, {Name: "calico-node", Image: "r/calico:1"}}
	if got, err := imageOf([]*appsv1.DaemonSet{{}, d}); err != nil || got != "r/calico:1" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := imageOf([]*appsv1.DaemonSet{{}}); err == nil || !strings.Contains(err.Error(), "--image") {
		t.Errorf("without agents: %v", err)
	}
}

func TestTrouble(t *testing.T) {
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such host"}}},
		}}
	}
	for _, tc := range []struct {
		role   string
		status corev1.PodStatus
		want   string
	}{
		{"client", corev1.PodStatus{Phase: corev1.PodSucceeded}, ""},
		{"server", corev1.PodStatus{Phase: corev1.PodRunning}, ""},
		{"server", corev1.PodStatus{Phase: corev1.PodSucceeded}, "it has ended"},
		{"client", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the disk is full"}, "the disk is full"},
		{"client", waiting("ContainerCreating"), ""},
		{"client", waiting("ErrImagePull"), ""}, // it is tried again
		{"client", waiting("ImagePullBackOff"), "ImagePullBackOff: no such host"},
		{"client", waiting("InvalidImageName"), "InvalidImageName: no such host"},
	} {
		p := pod("r/calico:1", tc.role, "x", "a")
		p.Status = tc.status
		if got := trouble(p); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.status, got, tc.want)
		}
	}
}

// FuzzLog: what a pod has printed is an error, or outcomes that are reported.
func FuzzLog(f *testing.F) {
	f.Add(`{"test":"pod","from":"a","to":"a","target":"10.0.0.1:8080","answer":"server-1","closed":false,"error":"lost"}` + "\n")
	f.Add("calicoctl: unknown command\n")
	f.Add(`{"test":"DNS","target":"x","error":"lost"}` + "\n" + `{"error":"lost","answer":"","test":"pod"}` + "\n")
	f.Fuzz(func(t *testing.T, log string) {
		all, err := parseLog([]byte(log))
		if err != nil {
			return
		}
		if table, todo, failed := judge(all); len(table) != len(all) || len(todo) > failed {
			t.Errorf("%q: %d rows, %d failed: %q", log, len(table), failed, todo)
		}
	})
}

// FuzzProbes: what is no list of probes is refused; what is one comes back.
func FuzzProbes(f *testing.F) {
	f.Add(`[{"test":"pod","from":"a","to":"a","target":"10.0.0.1:8080","answer":"server-1","closed":true}]`)
	f.Add(`[{"target":"[fe80::1%eth0]:1"}]`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseProbes(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseProbes(string(again)); err != nil || cmp.Diff(all, back) != "" {
			t.Errorf("%s: %v: %s", text, err, again)
		}
		for _, p := range all {
			p.family()
		}
	})
}
