// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// decider is a policy or profile, and what it says about a packet.
type decider struct {
	says string // "allow", "deny", "next-tier", or nothing
	has  Effect // what its rules say of this packet or of another
}

// lists returns all lists of up to n elements.
func lists(of []decider, n int) [][]decider {
	out, last := [][]decider{nil}, [][]decider{nil}
	for range n {
		var next [][]decider
		for _, l := range last {
			for _, d := range of {
				next = append(next, append(l[:len(l):len(l)], d))
			}
		}
		out, last = append(out, next...), next
	}
	return out
}

// tier is a tier, with its final action.
type tier struct {
	policies []decider
	pass     bool
}

// allows decides as spec/policy.md says about tiers and then profiles.
func allows(tiers []tier, profiles []decider) bool {
	for _, t := range tiers {
		says := ""
		for _, p := range t.policies {
			if says == "" {
				says = p.says
			}
		}
		switch {
		case says == "allow", says == "deny":
			return says == "allow"
		case says == "" && len(t.policies) > 0 && !t.pass:
			return false
		}
	}
	for _, p := range profiles {
		if p.says == "allow" || p.says == "deny" {
			return p.says == "allow"
		}
	}
	return false
}

// TestChoices tries all decisions of up to three policies of one tier, or of one or two in each of three tiers, and of two profiles, and
// follows a packet, with any marks on it, through the rules that ask them.
func TestChoices(t *testing.T) {
	all := []decider{{}, {"", nothing}, {"allow", decides}, {"deny", decides}, {"", passes}, {"allow", passes}, {"deny", passes}, {"next-tier", passes}}
	profiles := lists([]decider{{}, {"", nothing}, {"allow", decides}, {"deny", decides}, {"next-tier", passes}}, 2)
	for _, pass := range []bool{false, true} {
		for _, ps := range lists(all, 3) {
			for _, fs := range profiles {
				checkChoices(t, []tier{{ps, pass}}, fs)
			}
		}
	}
	some := []decider{{}, {"", nothing}, {"allow", decides}, {"", passes}, {"deny", passes}, {"next-tier", passes}}
	for passing := range 8 {
		for _, ps := range lists(some, 4) {
			if len(ps) < 2 {
				continue
			}
			tiers := []tier{{ps[:1], passing&1 > 0}, {ps[1:2], passing&2 > 0}, {ps[2:], passing&4 > 0}}
			for _, fs := range [][]decider{nil, {{"allow", decides}}} {
				checkChoices(t, tiers, fs)
				tiers[0].policies, tiers[1].policies, tiers[2].policies = ps[:2], nil, ps[2:]
				checkChoices(t, tiers, fs)
			}
		}
	}
}

func checkChoices(t *testing.T, tiers []tier, profiles []decider) {
	t.Helper()
	var v policy.Verdicts
	chains, known := map[string]decider{}, map[policy.RulesID]decider{}
	for i, tier := range tiers {
		name := fmt.Sprint("t", i)
		for j, p := range tier.policies {
			id := tierID(name, fmt.Sprint(j))
			v.Policies = append(v.Policies, id)
			chains[RulesChain(id, model.Inbound)], chains[RulesChain(id, model.Outbound)], known[id] = p, p, p
		}
		if tier.pass && len(tier.policies) > 0 {
			v.Passing = append(v.Passing, name)
		}
	}
	for i, p := range profiles {
		id := profileID(fmt.Sprint(i))
		v.Profiles = append(v.Profiles, id)
		chains[RulesChain(id, model.Inbound)], chains[RulesChain(id, model.Outbound)], known[id] = p, p, p
	}
	effect := func(id policy.RulesID) Effect { return known[id].has }
	want := allows(tiers, profiles)
	for name, list := range map[string][]table.Rule{
		"asked last":  append([]table.Rule{unmarkLast()}, Choices(v, model.Inbound, effect)...),
		"asked first": append([]table.Rule{unmark()}, Choices(v, model.Outbound, effect)...),
		"by itself":   asks(v, model.Inbound),
	} {
		for _, mark := range []uint32{0, 0xffffffff, markLast, markAllowed | markNextTier} {
			if got := follow(t, list, chains, mark); got != want {
				t.Fatalf("%s: tiers %+v, profiles %+v, mark %#x: allowed %v, want %v", name, tiers, profiles, mark, got, want)
			}
		}
	}
}

// follow reports whether a packet is allowed in the end.
func follow(t *testing.T, list []table.Rule, chains map[string]decider, mark uint32) bool {
	t.Helper()
rules:
	for _, r := range list {
		for _, s := range r.Do {
			switch s := s.(type) {
			case table.Count:
			case table.MarkSet:
				mark = mark&^s.Clear | s.Set
			case table.MarkIs:
				if mark&s.Mask != s.Value {
					continue rules
				}
			case table.Verdict:
				switch s.Kind {
				case table.Drop:
					return false
				case table.Return:
					return mark&markAllowed != 0
				}
				switch chains[s.Chain].says {
				case "allow":
					if mark&markLast != 0 {
						return true
					}
					mark |= markAllowed
				case "deny":
					return false
				case "next-tier":
					mark |= markNextTier
				}
			default:
				t.Fatalf("a rule has %T", s)
			}
		}
	}
	return mark&markAllowed != 0
}
