// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

func TestUndoing(t *testing.T) {
	const allow, next, deny = model.ActionAllow, model.ActionNextTier, model.ActionDeny
	rule := func(a model.Action) policy.Rule { return policy.Rule{Action: a} }
	tcp := policy.Rule{Action: allow, Match: policy.Criteria{Protocol: model.ProtocolTCP}}
	for _, tt := range []struct {
		name, older string
		rules       []policy.Rule
		beside      string
		want        bool
	}{
		{"allows all", "a.access", []policy.Rule{rule(allow)}, "knp.default.a.deny", true},
		{"passes all on", "a.access", []policy.Rule{tcp, rule(next)}, "knp.a.deny", true},
		{"allows some", "a.access", []policy.Rule{tcp}, "knp.a.deny", false},
		{"denies all", "a.access", []policy.Rule{rule(deny)}, "knp.a.deny", false},
		{"of another namespace", "a.access", []policy.Rule{rule(allow)}, "knp.b.deny", false},
		{"an operator's", "open", []policy.Rule{rule(allow)}, "knp.a.deny", false},
		{"Kubernetes' own", "knp.a.open", []policy.Rule{rule(allow)}, "knp.a.deny", false},
	} {
		older, beside := policy.RulesID{Kind: policy.KindPolicy, Tier: "default", Name: tt.older}, policy.RulesID{Kind: policy.KindPolicy, Tier: "default", Name: tt.beside}
		both := policy.Verdicts{Policies: []policy.RulesID{beside, older}}
		st := &policy.State{
			Rules: map[policy.RulesID]*policy.Rules{older: {ID: older, Outbound: tt.rules}, beside: {ID: beside}},
			// In the other direction nothing passes.
			Endpoints: map[string]*policy.Endpoint{"/1": {Inbound: both}, "/2": {Outbound: policy.Verdicts{Policies: both.Policies[1:]}}, "/3": {Outbound: both}, "/4": {Outbound: both}},
		}
		got := undoing(st)
		if at, found := got[model.PolicyKey{Tier: "default", Policy: tt.older}]; found != tt.want || found && at != "/3" || len(got) > 1 {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
