// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

func TestReplaces(t *testing.T) {
	for _, tt := range []struct {
		policy, older string
		want          bool
	}{
		{"knp.a.deny", "a.access", true},
		{"knp.default.a.deny", "a.access", true},
		{"knp.default.web", "default.access", true},
		{"knp.b.deny", "a.access", false},
		{"knp.ab.deny", "a.access", false},
		{"knp.a.deny", "a", false},
		{"knp.a.deny", "a-access", false},
		{"a.deny", "a.access", false},
		{"kcnp.a.deny", "a.access", false},
		{"knp.knp.deny", "knp.knp.access", false},
	} {
		if got := Replaces(tt.policy, tt.older); got != tt.want {
			t.Errorf("Replaces(%q, %q): %v", tt.policy, tt.older, got)
		}
	}
}

func TestOlder(t *testing.T) {
	order, other := 1000.0, 10.0
	made := func(change func(*model.Policy)) model.Policy {
		p := model.Policy{Selector: "calico/k8s_ns == 'a' && role == 'db'", Order: &order, Outbound: []model.Rule{{Action: model.ActionAllow}}}
		change(&p)
		return p
	}
	as := func(*model.Policy) {}
	for _, tt := range []struct {
		what, tier, name string
		policy           model.Policy
		want             bool
	}{
		{"as they made it", PolicyTier, "a.access", made(as), true},
		{"of all pods", PolicyTier, "a.access", made(func(p *model.Policy) { p.Selector = `calico/k8s_ns == "a"` }), true},
		{"passes on what has no policy", PolicyTier, "k8s-policy-no-match", model.Policy{Selector: "has(calico/k8s_ns)"}, true},
		{"in another tier", "mine", "a.access", made(as), false},
		{"of a later controller", PolicyTier, "knp.a.access", made(as), false},
		{"no such name", PolicyTier, "access", made(as), false},
		{"another namespace's pods", PolicyTier, "b.access", made(as), false},
		{"pods of more namespaces", PolicyTier, "a.access", made(func(p *model.Policy) { p.Selector = "calico/k8s_ns == 'a' && role == 'db' || all()" }), false},
		{"another order", PolicyTier, "a.access", made(func(p *model.Policy) { p.Order = &other }), false},
		{"without an order", PolicyTier, "a.access", made(func(p *model.Policy) { p.Order = nil }), false},
		{"with types", PolicyTier, "a.access", made(func(p *model.Policy) { p.Types = []model.Direction{model.Inbound} }), false},
	} {
		if got := Older(model.PolicyKey{Tier: tt.tier, Policy: tt.name}, tt.policy); got != tt.want {
			t.Errorf("%s: %t", tt.what, got)
		}
	}
}

// TestSuccessors: an older policy has for its successor that of the very NetworkPolicy, and NoMatch any.
func TestSuccessors(t *testing.T) {
	in := func(policy string) model.PolicyKey { return model.PolicyKey{Tier: PolicyTier, Policy: policy} }
	for _, tt := range []struct {
		older  string
		policy model.PolicyKey // the only one
		want   bool
	}{
		{"k8s-policy-no-match", in("knp.a.deny"), true},
		{"k8s-policy-no-match", in("a.deny"), false},
		{"k8s-policy-no-match", in("kcnp.a"), false},
		{"k8s-policy-no-match", model.PolicyKey{Tier: "mine", Policy: "knp.a.deny"}, false},
		{"a.web", PolicyKey("a", "web"), true},
		{"a.web.v2", PolicyKey("a", "web.v2"), true},
		{"a.web", PolicyKey("a", "deny"), false},
		{"a.web", PolicyKey("b", "web"), false},
		{"a.web", model.PolicyKey{Tier: "mine", Policy: "knp.a.web"}, false},
		{"default.web", PolicyKey("default", "web"), true},
		{"a.web", in("knp.default.a.web"), false},         // or of a NetworkPolicy a.web in the namespace default
		{"default.a.web", in("knp.default.a.web"), false}, // or of a NetworkPolicy web in the namespace a
	} {
		s := Successors{}
		s.Set(tt.policy, true)
		if key, there := s.Of(in(tt.older)); there != tt.want || there && key != tt.policy {
			t.Errorf("%s beside %v: %v, %v", tt.older, tt.policy, key, there)
		}
		s.Set(tt.policy, false)
		if key, there := s.Of(in(tt.older)); there {
			t.Errorf("%s beside none: %v", tt.older, key)
		}
	}
}
