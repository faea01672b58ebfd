// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// decider is a policy or profile, and what it says of a packet.
type decider struct {
	says string // "allow", "deny", "next-tier", or nothing
	has  Effect // what its rules say of this packet or of another
}

// lists are all lists of up to n of some.
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

// allows is what spec/policy.md says of policies and then profiles.
func allows(policies, profiles []decider) bool {
	asked := len(policies) == 0
	for _, p := range policies {
		switch p.says {
		case "allow", "deny":
			return p.says == "allow"
		case "next-tier":
			asked = true
		}
		if asked {
			break
		}
	}
	for _, p := range profiles {
		if asked && (p.says == "allow" || p.says == "deny") {
			return p.says == "allow"
		}
	}
	return false
}

// TestChoices has up to three policies and two profiles say what they can, and
// follows a packet, with any marks on it, through the rules that ask them.
func TestChoices(t *testing.T) {
	policies := lists([]decider{{}, {"", nothing}, {"allow", decides}, {"deny", decides}, {"", passes}, {"allow", passes}, {"deny", passes}, {"next-tier", passes}}, 3)
	profiles := lists([]decider{{}, {"", nothing}, {"allow", decides}, {"deny", decides}, {"next-tier", passes}}, 2)
	for _, ps := range policies {
		for _, fs := range profiles {
			var v policy.Verdicts
			chains, known := map[string]decider{}, map[policy.RulesID]decider{}
			for i, p := range ps {
				v.Policies = append(v.Policies, policyID(fmt.Sprint(i)))
				chains[RulesChain(v.Policies[i], model.Inbound)], known[v.Policies[i]] = p, p
			}
			for i, p := range fs {
				v.Profiles = append(v.Profiles, profileID(fmt.Sprint(i)))
				chains[RulesChain(v.Profiles[i], model.Inbound)], known[v.Profiles[i]] = p, p
			}
			effect := func(id policy.RulesID) Effect { return known[id].has }
			want := allows(ps, fs)
			for name, list := range map[string][]table.Rule{
				"asked last":  append([]table.Rule{unmarkLast()}, choiceRules(Choices(v, true, effect), model.Inbound)...),
				"asked first": append([]table.Rule{unmark()}, choiceRules(Choices(v, false, effect), model.Inbound)...),
				"by itself":   asks(v, model.Inbound),
			} {
				for _, mark := range []uint32{0, 0xffffffff, markLast, markAllowed | markNextTier} {
					if got := follow(t, list, chains, mark); got != want {
						t.Fatalf("%s: policies %+v, profiles %+v, mark %#x: allowed %v, want %v", name, ps, fs, mark, got, want)
					}
				}
			}
		}
	}
}

// follow says whether a packet is allowed in the end.
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
				if s.Kind == table.Drop {
					return false
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
