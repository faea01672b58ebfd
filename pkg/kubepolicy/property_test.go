// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// Random policies of a random cluster let through what the API says, no more and no less.
func TestPoliciesAgreeWithTheAPI(t *testing.T) {
	worlds := 300
	if testing.Short() {
		worlds = 30
	}
	passed, dropped := 0, 0
	for seed := range uint64(worlds) {
		c := chooser{rand.New(rand.NewPCG(seed, 1))}
		s := slow{world: c.world()}
		var puts []model.Put
		for i := range c.IntN(5) {
			np := c.policy(string(rune('a' + i)))
			key, p, _ := kubepolicy.Policy(np)
			s.policies, puts = append(s.policies, np), append(puts, model.Put{Key: key, Value: p})
		}
		st := s.state(t, puts...)
		for _, f := range s.flows() {
			want, got := s.allows(f), s.verdict(st, f)
			if want != (got.Verdict == policy.Accept) {
				t.Fatalf("seed %d: %v: allowed %t by the API, but %s\n%s\n%s", seed, f, want, got.Verdict, trail(got), dump(s.policies))
			}
			if want {
				passed++
			} else {
				dropped++
			}
		}
	}
	if passed < dropped/50 || dropped < passed/50 {
		t.Errorf("%d flows passed, %d dropped: policies that tell nothing apart", passed, dropped)
	}
}

// Before the controllers have stored the labels of a namespace, nothing passes by a NetworkPolicy that wouldn't later.
func TestUnknownNamespaces(t *testing.T) {
	closed := 0
	for seed := range uint64(300) {
		c := chooser{rand.New(rand.NewPCG(seed, 3))}
		w := c.world()
		var puts []model.Put
		for i := range 1 + c.IntN(4) {
			key, p, _ := kubepolicy.Policy(c.policy(string(rune('a' + i))))
			puts = append(puts, model.Put{Key: key, Value: p})
		}
		later := w.state(t, puts...)
		w.namespaces["n1"].Labels = nil
		now := w.state(t, puts...)
		for _, f := range w.flows() {
			got, want := w.verdict(now, f), w.verdict(later, f)
			switch {
			case got.Verdict == policy.Accept && want.Verdict != policy.Accept:
				t.Fatalf("seed %d: %v passes while namespace n1 is unknown, not after\n%s\n%s", seed, f, trail(got), dump(puts))
			case got.Verdict != want.Verdict:
				closed++
			}
		}
	}
	if closed == 0 {
		t.Error("it makes no difference whether the namespace is known")
	}
}

// What comes from the pod's own node, such as kubelet's probes, always reaches it, and what it sends there is asked.
func TestOwnNode(t *testing.T) {
	c := chooser{rand.New(rand.NewPCG(1, 1))}
	s := slow{world: c.world()}
	var puts []model.Put
	for ns := range s.namespaces {
		np := &networkingv1.NetworkPolicy{}
		np.Namespace, np.Name = ns, "deny"
		np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
		key, p, _ := kubepolicy.Policy(np)
		puts = append(puts, model.Put{Key: key, Value: p})
	}
	st := s.state(t, puts...)
	pod := s.pods[0]
	settings := policy.Settings{Prefixes: []string{"cali"}, EndpointToHost: policy.ToHostAccept}
	node := s.outside[0]
	if r := policy.Evaluate(settings, st, policy.Packet{Out: pod.iface, Src: node, Dst: pod.addrs[0], Protocol: model.ProtocolTCP, DstPort: 80}); r.Verdict != policy.Accept {
		t.Errorf("from its own node: %s\n%s", r.Verdict, trail(r))
	}
	if r := policy.Evaluate(settings, st, policy.Packet{In: "eth0", Out: pod.iface, Src: s.outside[1], Dst: pod.addrs[0], Protocol: model.ProtocolTCP, DstPort: 80}); r.Verdict != policy.Drop {
		t.Errorf("from another node: %s\n%s", r.Verdict, trail(r))
	}
	if r := policy.Evaluate(settings, st, policy.Packet{In: pod.iface, Src: pod.addrs[0], Dst: node, Protocol: model.ProtocolTCP, DstPort: 80}); r.Verdict != policy.Drop {
		t.Errorf("to its own node: %s\n%s", r.Verdict, trail(r))
	}
}

func trail(r policy.Result) string {
	var b strings.Builder
	for _, step := range r.Trail {
		b.WriteString(step.String() + "\n")
	}
	return b.String()
}

func dump(v any) string {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}
