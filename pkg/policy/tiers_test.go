// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const tierPath = "/calico/v1/policy/tier/"

// join is all of the objects.
func join(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

func TestTiers(t *testing.T) {
	inbound := func(more string) string {
		return `{"selector": "role == 'db'", "types": ["inbound"], "inbound_rules": [` + more + `]}`
	}
	policy := func(tier, name, rules string) map[string]string {
		return map[string]string{tierPath + tier + "/policy/" + name: inbound(rules)}
	}
	says := func(tier, text string) map[string]string {
		return map[string]string{tierPath + tier + "/metadata": text}
	}
	const allow, deny, next, other = `{}`, `{"action": "deny"}`, `{"action": "next-tier"}`, `{"protocol": "udp"}`
	checkCases(t, testSettings, []evaluateCase{
		// A tier without metadata is the last, and denies.
		{policy("x", "p", allow), toDB, Accept, "policy x/p rule 0: allow"},
		{policy("x", "p", other), toDB, Drop, "end of tier x, policies apply and none decides: drop"},
		{join(policy("x", "p", deny), policy("default", "p", allow)), toDB, Accept, "policy p rule 0: allow"},
		{join(policy("x", "p", allow), policy("default", "p", other)), toDB, Drop, "end of tier default"},
		{join(policy("x", "p", deny), policy("default", "p", next)), toDB, Drop, "policy x/p rule 0: deny"},
		// By order ascending; that of default is 1,000,000.
		{join(policy("x", "p", deny), says("x", `{"order": 999999}`), policy("default", "p", allow)), toDB, Drop, "policy x/p rule 0: deny"},
		{join(policy("x", "p", deny), says("x", `{"order": 1000001}`), policy("default", "p", allow)), toDB, Accept, "policy p rule 0"},
		{join(policy("x", "p", deny), says("x", `{"order": -1}`), policy("a", "p", allow), says("a", `{"order": 1}`)), toDB, Drop, "policy x/p rule 0"},
		{join(policy("b", "p", deny), policy("a", "p", allow)), toDB, Accept, "policy a/p rule 0"},
		{join(policy("z", "p", deny), says("z", `{"order": 1000000}`), policy("default", "p", allow)), toDB, Accept, "policy p rule 0"},
		{join(policy("a", "p", deny), says("a", `{"order": 1000000}`), policy("default", "p", allow)), toDB, Drop, "policy a/p rule 0"},
		// What none of a tier's policies decides goes on if the tier passes, and is dropped if it denies.
		{join(policy("x", "p", other), says("x", `{"order": 1, "default_action": "pass"}`), policy("default", "p", allow)), toDB, Accept, "end of tier x, none of its policies decides: pass"},
		{join(policy("x", "p", other), says("x", `{"order": 1, "default_action": "deny"}`), policy("default", "p", allow)), toDB, Drop, "end of tier x, policies apply and none decides: drop"},
		{join(policy("x", "p", other), says("x", `{"order": 1}`), policy("default", "p", allow)), toDB, Drop, "end of tier x, policies apply and none decides: drop"},
		{join(policy("x", "p", other), says("x", `{"default_action": "pass"}`)), toDB, Drop, "no profile decides"},
		{join(policy("x", "p", next), says("x", `{"order": 1}`), policy("x", "q", deny), policy("default", "p", allow)), toDB, Accept, "policy p rule 0"},
		{join(policy("x", "p", next), policy("y", "p", next)), toDB, Drop, "no profile decides"},
		// A tier of which nothing applies to the direction is passed over.
		{join(policy("x", "p", deny), says("x", `{"order": 1}`)), toOut, Accept, "profile open"},
		{says("x", `{"order": 1, "default_action": "deny"}`), toOut, Accept, "profile open"},
		// Metadata that can't be read: the position of the tier's policies is unknown.
		{join(policy("x", "p", allow), says("x", `{"order": "first"}`), policy("default", "p", allow)), toDB, Drop, "policy x/p: deny: the metadata of tier x: order: want a number"},
		{join(policy("x", "p", allow), says("x", `{"default_action": "allow"}`)), toDB, Drop, `policy x/p: deny: the metadata of tier x: default_action: "allow": want deny or pass`},
		{join(policy("x", "p", allow), says("x", `{"order": "first"}`)), fromOut, Accept, "profile open"},
		{join(policy("default", "p", allow), says("default", `7`)), toDB, Accept, "policy p rule 0"},
		{join(policy("default", "p", other), says("default", `{"order": 1, "default_action": "pass"}`)), toDB, Drop, "end of tier default"},
		// An invalid policy is the first of its tier.
		{join(policy("x", "p", allow), policy("x", "q", `{"action": "fly"}`)), toDB, Drop, "policy x/q: deny: "},
		{join(policy("x", "p", `{"action": "fly"}`), policy("default", "p", allow)), toDB, Accept, "policy p rule 0"},
		// Host endpoints.
		{join(map[string]string{uplink: `{"name": "eth0", "labels": {"role": "db"}}`}, policy("x", "p", other), says("x", `{"default_action": "pass"}`)), webToHost, Drop, "no profile decides"},
		{join(map[string]string{uplink: `{"name": "eth0", "labels": {"role": "db"}}`}, policy("x", "p", allow)), webToHost, Accept, "policy x/p rule 0"},
	})
	raw := func(tier, name, rules string) map[string]string {
		return map[string]string{uplink: `{"name": "eth0", "labels": {"role": "db"}}`, tierPath + tier + "/policy/" + name: `{"selector": "role == 'db'", "untracked": true, "inbound_rules": [` + rules + `]}`}
	}
	checkCases(t, testSettings, []evaluateCase{
		// No tier drops what none of its untracked policies decides, and next-tier skips the rest of the tier alone.
		{join(raw("x", "p", other), says("x", `{"order": 1}`), raw("default", "p", allow)), webToHost, Accept, "untracked policy p rule 0: allow"},
		{join(raw("x", "p", next), says("x", `{"order": 1}`), raw("x", "q", deny), raw("default", "p", allow)), webToHost, Accept, "untracked policy p rule 0: allow"},
		{join(raw("x", "p", next), raw("x", "q", deny), policy("default", "then", allow)), webToHost, Accept, "policy then rule 0: allow"},
		{join(raw("x", "p", allow), says("x", `[]`)), webToHost, Drop, "untracked policy x/p: deny: the metadata of tier x"},
	})
}

// TestTierStories: metadata that change touch the endpoints that the tier's policies pick.
func TestTierStories(t *testing.T) {
	at := func(tier string) string { return tierPath + tier + "/policy/p" }
	const forDB = `{"selector": "role == 'db'", "types": ["inbound"], "inbound_rules": [{}]}`
	e, st := stateOf(t, map[string]string{at("x"): forDB, at("y"): forDB})
	for i, s := range []struct {
		path, value string
		told        []string
	}{
		{tierPath + "x/metadata", `{"order": 5}`, nil},
		{tierPath + "y/metadata", `{"order": 1}`, []string{`db on "cali2", in y/p x/p, profiles send`}},
		{tierPath + "y/metadata", `{"order": 2}`, nil},
		{tierPath + "y/metadata", `{"order": 2, "default_action": "pass"}`, []string{`db on "cali2", in y/p x/p, passing y, profiles send`}},
		{tierPath + "none/metadata", `{"order": 2, "default_action": "pass"}`, nil},
		{tierPath + "y/metadata", `{"order": 7, "default_action": "pass"}`, []string{`db on "cali2", in x/p y/p, passing y, profiles send`}},
		{tierPath + "y/metadata", `{"order": true}`, []string{`db on "cali2", in y/p x/p, profiles send`, "policy p invalid: the metadata of tier y: order: want a number or \"default\""}},
		{tierPath + "y/metadata", `{}`, []string{`db on "cali2", in x/p y/p, profiles send`, "policy p: 1+0 rules"}},
		{tierPath + "y/metadata", "", nil},
		{tierPath + "default/metadata", `{"order": 1}`, nil},
	} {
		e.Update(entryOf(t, s.path, s.value))
		c := e.Flush()
		if err := st.Apply(c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.told, describe(c)); diff != "" {
			t.Errorf("step %d, %s %s: -want +got:\n%s", i, s.path, s.value, diff)
		}
	}
	want := map[string]string{tierPath + "default/metadata": "tier default has order 1000000 and denies, whatever is stored here: delete it, or give another tier this order and action"}
	got := map[string]string{}
	for path, err := range e.Invalid() {
		got[path] = err.Error()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("invalid: -want +got:\n%s", diff)
	}
	e.Update(entryOf(t, tierPath+"x/metadata", `{"order": "1"}`))
	if got, want := e.Invalid()[tierPath+"x/metadata"].Error(), `order: want a number or "default"; until it is corrected, the policies of tier x deny what they pick`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestByTier(t *testing.T) {
	var ids []RulesID
	for _, tier := range []string{"a", "a", "b", "c", "c"} {
		ids = append(ids, RulesID{KindPolicy, tier, "p"})
	}
	var got []string
	for tier, of := range ByTier(ids) {
		if len(of) == 2 {
			tier += tier
		}
		got = append(got, tier)
		if tier == "b" {
			break
		}
	}
	if want := []string{"aa", "b"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
