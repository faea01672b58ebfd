// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// many returns n rules that are all different.
func many(name string, n int) policy.Rules {
	r := policy.Rules{ID: policyID(name)}
	for i := range n {
		r.Inbound = append(r.Inbound, policy.Rule{Action: model.ActionAllow, Match: policy.Criteria{
			Protocol: model.ProtocolTCP, SrcNets: cidrs(fmt.Sprintf("10.%d.%d.%d/32", len(name), i/256, i%256)), DstPorts: []model.Port{{Min: uint16(i + 1), Max: uint16(i + 1)}},
		}})
	}
	return r
}

// TestTurns: large policies of one workload wait for one another and for what is small, so a change for another workload is in force after
// one transaction. The workload has access once all of its own policies are in force; a change of a large one is in force as a whole, too.
func TestTurns(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		victim := workload(2, "deny")
		f.Update(policy.Changes{
			Endpoints: endpoints(victim), Rules: rules(policy.Rules{ID: policyID("deny")}, policy.Rules{ID: profileID("prod")}),
		})
		mustApply(t, f)
		large := workload(1, "huge", "large", "larger")
		f.Update(policy.Changes{Endpoints: endpoints(large), Rules: rules(many("huge", 1500), many("large", turnRules+100), many("larger", turnRules+200))})
		has := func(text string) bool {
			return strings.Contains(run(t, "nft", "list", "table", "inet", TableName), text)
		}
		turn := func(waits bool) {
			t.Helper()
			r, err := f.Apply(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if why, told := r.Programmed[large.Path]; r.More != waits || !told || waits != errors.Is(why, errWaits) {
				t.Errorf("more: %v, the workload: %v, %v; want %v", r.More, told, why, waits)
			}
			if has(`"cali1" : jump to-`) == waits {
				t.Errorf("the workload is connected: %v", !waits)
			}
		}
		turn(true) // large
		deny := policy.Rules{ID: policyID("deny"), Inbound: []policy.Rule{{Action: model.ActionDeny, Match: policy.Criteria{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: 4321, Max: 4321}}}}}}
		f.Update(policy.Changes{Rules: rules(deny)})
		turn(true) // deny, and larger which no longer fits beside it
		if !has("tcp dport 4321") {
			t.Error("a small change waits for a large one")
		}
		for range 10 {
			r, err := f.Apply(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if r.Writes > 2*turnRules+100 {
				t.Errorf("%d writes of policies that nothing asks yet", r.Writes)
			}
			if !r.More {
				break
			}
		}
		if !has(`"cali1" : jump to-`) {
			t.Error("the workload is not connected at last")
		}
		same(t, f)

		// A large change of what is in force waits as well, and so does a workload that comes to it.
		changed := many("huge", 1400)
		changed.Inbound[0].Match.DstPorts[0] = model.Port{Min: 65000, Max: 65000}
		f.Update(policy.Changes{Endpoints: endpoints(large), Rules: rules(changed, many("larger", turnRules+300), deny)})
		f.Update(policy.Changes{Rules: rules(many("others", 1000))})
		_ = mustApplyAll(t, f)
		if !has("tcp dport 65000") {
			t.Error("a large change is not in force at last")
		}
		same(t, f)
	})
}

// TestTurnsProgress: what is large is written although something small changes repeatedly.
func TestTurnsProgress(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(workload(2, "deny")), Rules: rules(policy.Rules{ID: policyID("deny")}, policy.Rules{ID: profileID("prod")})})
		mustApply(t, f)
		f.Update(policy.Changes{Endpoints: endpoints(workload(1, "large", "larger")), Rules: rules(many("large", turnRules+1), many("larger", turnRules+2))})
		for i := uint16(1); ; i++ {
			f.Update(policy.Changes{Rules: rules(policy.Rules{ID: policyID("deny"), Inbound: []policy.Rule{
				{Action: model.ActionDeny, Match: policy.Criteria{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: i, Max: i}}}},
			}})})
			r, err := f.Apply(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !r.More {
				break
			}
			if i == 10 {
				t.Fatal("large policies wait for ever")
			}
		}
		same(t, f)
	})
}

// TestTurnsOldest: what waits is written in its turn, however small the thing is that changes repeatedly.
func TestTurnsOldest(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		others := policy.Changes{Endpoints: endpoints(), Rules: rules(policy.Rules{ID: profileID("prod")})}
		for i := range 8 {
			others.Endpoints[workload(i+10).Path] = workload(i+10, fmt.Sprint("other", i))
			r := many(fmt.Sprint("other", i), turnRules+8)
			others.Rules[r.ID] = &r
		}
		f.Update(others)
		mustApply(t, f)
		victim := workload(1, "victim")
		f.Update(policy.Changes{Endpoints: endpoints(victim), Rules: rules(many("victim", turnRules+100))})
		for i := range 20 {
			c := policy.Changes{Rules: rules()}
			for j := range 2 {
				r := many(fmt.Sprint("other", (2*i+j)%8), turnRules+8)
				for k := range r.Inbound {
					r.Inbound[k].Match.DstPorts[0] = model.Port{Min: uint16(20000 + i), Max: uint16(20000 + i)}
				}
				c.Rules[r.ID] = &r
			}
			f.Update(c)
			r, err := f.Apply(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if why, told := r.Programmed[victim.Path]; told && why == nil {
				return
			}
		}
		t.Error("a policy waits for ever for others' that are smaller")
	})
}

// TestTurnsGroups: chains that endpoints share wait as well: a tenant's workloads with many policies don't delay another's deny.
func TestTurnsGroups(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(workload(1, "deny")), Rules: rules(policy.Rules{ID: policyID("deny")}, policy.Rules{ID: profileID("prod")})})
		mustApply(t, f)
		c := policy.Changes{Endpoints: endpoints(), Rules: rules()}
		var names []string
		for i := range 300 {
			names = append(names, fmt.Sprint("empty", i))
			c.Rules[policyID(names[i])] = &policy.Rules{ID: policyID(names[i])}
		}
		for i := range 5 {
			c.Endpoints[workload(i+10).Path] = workload(i+10, names[i:]...)
		}
		f.Update(c)
		f.Update(policy.Changes{Rules: rules(policy.Rules{ID: policyID("deny"), Inbound: []policy.Rule{{Action: model.ActionDeny, Match: policy.Criteria{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: 4321, Max: 4321}}}}}})})
		r, err := f.Apply(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if out := run(t, "nft", "list", "table", "inet", TableName); !r.More || !strings.Contains(out, "tcp dport 4321") || r.Writes > 3*turnRules {
			t.Errorf("more to write: %v, after %d; the deny is in force: %v", r.More, r.Writes, strings.Contains(out, "tcp dport 4321"))
		}
		mustApplyAll(t, f)
		same(t, f)
	})
}

// TestTurnsKeepFormer: a workload whose new chain waits is still led to its former one, which no other group takes over meanwhile.
func TestTurnsKeepFormer(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(policy.Changes{
			Endpoints: endpoints(workload(1, "closed"), workload(2, "closed")),
			Rules:     rules(policy.Rules{ID: policyID("closed")}, policy.Rules{ID: policyID("open"), Inbound: []policy.Rule{{Action: model.ActionAllow}}}, policy.Rules{ID: profileID("prod")}),
		})
		mustApply(t, f)
		f.Update(policy.Changes{Endpoints: endpoints(workload(1, "small", "large")), Rules: rules(many("small", turnRules), many("large", turnRules+1))})
		if r, err := f.Apply(t.Context()); err != nil || !r.More {
			t.Fatalf("nothing waits: %v", err)
		}
		f.Update(policy.Changes{Endpoints: endpoints(workload(2, "open")), Rules: rules(many("large", turnRules+2), many("another", turnRules+1))})
		if r, err := f.Apply(t.Context()); err != nil || !r.More {
			t.Fatalf("nothing waits: %v", err)
		}
		out := run(t, "nft", "list", "table", "inet", TableName)
		_, chain, _ := strings.Cut(out, `"cali1" : jump to-`)
		_, asked, _ := strings.Cut(out, "chain to-"+strings.FieldsFunc(chain, func(r rune) bool { return r == ',' || r == ' ' })[0]+" {")
		if asked, _, _ = strings.Cut(asked, "}"); !strings.Contains(asked, "in-policy-closed") || strings.Contains(asked, "in-policy-open") {
			t.Errorf("the workload's packets are asked about by:%s", asked)
		}
		mustApplyAll(t, f)
		same(t, f)
	})
}

// asking returns a policy whose rules use n sets of their own, each with this many members of either IP version.
func asking(name string, n, each int) policy.Changes {
	c, r := policy.Changes{Sets: make(map[policy.SetID]*policy.SetChange)}, policy.Rules{ID: policyID(name)}
	for i := range n {
		id := policy.SetID(fmt.Sprint(name, i))
		c.Sets[id] = &policy.SetChange{Kind: policy.KindAddrs, New: true, Added: members(0, each)}
		r.Inbound = append(r.Inbound, policy.Rule{Action: model.ActionDeny, Match: policy.Criteria{SrcSets: []policy.SetID{id}}})
	}
	c.Rules = rules(r)
	return c
}

// denying returns the policy deny, which denies a port.
func denying(name string, port uint16) policy.Changes {
	return policy.Changes{Rules: rules(policy.Rules{ID: policyID(name), Inbound: []policy.Rule{
		{Action: model.ActionDeny, Match: policy.Criteria{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: port, Max: port}}}},
	}})}
}

// inForce reports whether the kernel has a rule of the policy that contains a text.
func inForce(t *testing.T, name, text string) bool {
	t.Helper()
	out := run(t, "nft", "-t", "list", "table", "inet", TableName)
	_, chain, _ := strings.Cut(out, "chain in-policy-"+name+" {")
	chain, _, _ = strings.Cut(chain, "}")
	return strings.Contains(chain, text)
}

// TestTurnsSets: a policy's sets are written in turns like its rules, and its rules once all sets are there: no rule in force uses a set
// that lacks members, and other owners don't wait.
func TestTurnsSets(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(policy.Changes{
			Endpoints: endpoints(workload(1, "asks"), workload(2, "deny")),
			Rules:     rules(policy.Rules{ID: policyID("asks")}, policy.Rules{ID: policyID("deny")}, policy.Rules{ID: profileID("prod")}),
		})
		mustApply(t, f)
		const sets, each = 60, 200
		var former policy.Changes
		for _, name := range []string{"first", "second"} { // where no rules are in force, and where others' are
			c := asking(name, sets, each)
			for _, r := range c.Rules {
				r.ID = policyID("asks")
				c.Rules = rules(*r)
			}
			for id := range former.Sets {
				c.Sets[id] = &policy.SetChange{Gone: true}
			}
			former = asking(name, sets, each)
			f.Update(c)
			for applies := uint16(1); ; applies++ {
				f.Update(denying("deny", applies))
				r, err := f.Apply(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if r.Writes > 10*turnRules {
					t.Errorf("%d writes in one Apply", r.Writes)
				}
				if !inForce(t, "deny", fmt.Sprintf("tcp dport %d ", applies)) {
					t.Errorf("%s: another's policy waits", name)
				}
				for _, asked := range []string{"first", "second"} {
					if !inForce(t, "asks", "@s4-"+asked+"0 ") {
						continue
					}
					for i := range sets {
						has := make(map[string]bool)
						if err := f.conn.ReadElements(&table.Set{Name: fmt.Sprint("s6-", asked, i), Key: []table.Type{table.TypeIPv6}}, func(e nfnl.Element) { has[e.Key] = true }); err != nil || len(has) != each {
							t.Fatalf("%s: rules are in force that ask a set of %d of %d members: %v", asked, len(has), each, err)
						}
					}
				}
				if !r.More {
					if applies < 4 || !slices.Contains(r.InForce, workload(1).Path) && !inForce(t, "asks", "@s4-"+name+"0 ") {
						t.Errorf("after %d Applies nothing waits; in force: %v", applies, r.InForce)
					}
					break
				}
			}
		}
		same(t, f)
	})
}

// TestTurnsOwners: many policies of one namespace, small or large, share one turn: those of another namespace don't wait for all of them.
func TestTurnsOwners(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(workload(1, "knp.good.deny")), Rules: rules(policy.Rules{ID: policyID("knp.good.deny")}, policy.Rules{ID: profileID("prod")})})
		mustApply(t, f)
		c := policy.Changes{Endpoints: endpoints(), Rules: rules()}
		var names []string
		add := func(name string, n int) {
			r := many(name, n)
			names, c.Rules[r.ID] = append(names, name), &r
		}
		for i := range 2000 {
			add(fmt.Sprint("knp.evil.small", i), 1)
		}
		for i := range 6 {
			add(fmt.Sprint("knp.evil.large", i), turnRules+1)
		}
		c.Endpoints[workload(2).Path] = workload(2, names...)
		f.Update(c)
		if r, err := f.Apply(t.Context()); err != nil || !r.More {
			t.Fatalf("nothing waits: %v", err)
		}
		f.Update(denying("knp.good.deny", 4321))
		if _, err := f.Apply(t.Context()); err != nil || !inForce(t, "knp.good.deny", "tcp dport 4321 ") {
			t.Errorf("a small policy waits for those of another namespace: %v", err)
		}
		f.Update(policy.Changes{Rules: rules(many("knp.good.deny", turnRules+100))})
		for range 3 {
			if _, err := f.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !inForce(t, "knp.good.deny", "tcp dport 600 ") {
			t.Error("a large policy waits for those of another namespace, which waited before it")
		}
		mustApplyAll(t, f)
		same(t, f)
	})
}

// TestTurnsRemove: while something waits, even for ever, what nothing refers to any more is removed, and what has come into force is
// reported.
func TestTurnsRemove(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		c := asking("old", 1, 1)
		c.Endpoints = endpoints(workload(1, "large0", "large1"), workload(2, "old"), workload(3, "new"))
		c.Rules[policyID("new")], c.Rules[profileID("prod")] = &policy.Rules{ID: policyID("new")}, &policy.Rules{ID: profileID("prod")}
		f.Update(c)
		mustApply(t, f)
		came := false
		for i := range uint16(10) {
			for j := range 2 {
				r := many(fmt.Sprint("large", j), turnRules+100+j)
				for k := range r.Inbound {
					r.Inbound[k].Match.DstPorts[0] = model.Port{Min: 20000 + i, Max: 20000 + i}
				}
				f.Update(policy.Changes{Rules: rules(r)})
			}
			if i == 1 {
				f.Update(policy.Changes{
					Endpoints: map[string]*policy.Endpoint{workload(2).Path: nil}, Rules: map[policy.RulesID]*policy.Rules{policyID("old"): nil},
					Sets: map[policy.SetID]*policy.SetChange{"old0": {Gone: true}},
				})
				f.Update(policy.Changes{Rules: rules(many("new", turnRules+50))})
			}
			r, err := f.Apply(t.Context())
			if err != nil || !r.More {
				t.Fatalf("nothing waits: %v", err)
			}
			came = came || slices.Contains(r.InForce, workload(3).Path)
		}
		if out := run(t, "nft", "-t", "list", "table", "inet", TableName); strings.Contains(out, "in-policy-old") || strings.Contains(out, "s4-old0") {
			t.Error("what nothing refers to any more isn't removed while something waits")
		}
		if !came || !inForce(t, "new", "tcp dport 560 ") {
			t.Errorf("a policy is in force after it waited, and its endpoint isn't told: %v", came)
		}
		mustApplyAll(t, f)
		same(t, f)
	})
}

// mustApplyAll applies until nothing waits.
func mustApplyAll(t *testing.T, f *Firewall) (applies int) {
	t.Helper()
	for applies = 1; ; applies++ {
		r, err := f.Apply(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !r.More {
			return applies
		}
		if applies > 1000 {
			t.Fatal("something waits for ever")
		}
	}
}

// same compares all of the kernel's table with what is wanted: there is nothing to repair.
func same(t *testing.T, f *Firewall) {
	t.Helper()
	if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
		t.Errorf("-ours +nft's:\n%s", diff)
	}
	f.Audit()
	f.generation = 0 // read all
	wantWrites(t, f, 0, 0)
}

// TestTurnsRandom: whatever the sequence of turns and changes, the result is that of writing everything at once.
func TestTurnsRandom(t *testing.T) {
	for seed := range uint64(8) {
		netns.Host(t, func() {
			random := rand.New(rand.NewPCG(seed, 1))
			d := dice{func() byte { return byte(random.Uint32()) }}
			f := open(t)
			f.Update(policy.Changes{Sets: randomSets, Rules: rules(policy.Rules{ID: profileID("prod")})})
			mustApply(t, f)
			f.desired.ruleset.turn = 4
			gone := true
			for range 60 {
				c := policy.Changes{Endpoints: endpoints(), Rules: rules(), Sets: make(map[policy.SetID]*policy.SetChange)}
				for range 1 + d.n(3) {
					some := func() string { return fmt.Sprintf("knp.%d.%d", d.n(3), d.n(4)) }
					name := some()
					switch d.n(8) {
					case 6:
						c.Sets["gone"] = &policy.SetChange{Kind: policy.KindAddrs, New: gone, Gone: !gone}
						if gone {
							c.Sets["gone"].Added = members(0, d.n(60))
						}
					case 7:
						c.Sets["a"] = &policy.SetChange{Added: members(d.n(40), 20), Removed: members(0, 5)}
					case 0:
						c.Rules[policyID(name)] = nil
					case 1, 2:
						r := d.rules(policyID(name), 1+d.n(12))
						c.Rules[r.ID] = &r
					case 3:
						c.Endpoints[workload(d.n(4)).Path] = nil
					default:
						ep := workload(d.n(4), some(), some())
						if d.one(3) {
							ep.Inbound.Policies = ep.Inbound.Policies[:1]
						}
						c.Endpoints[ep.Path] = ep
					}
				}
				f.Update(c)
				if c.Sets["gone"] != nil {
					gone = !gone
				}
				switch d.n(4) {
				case 0:
					f.Audit()
					f.generation = 0
				case 1:
					continue
				}
				if r, err := f.Apply(t.Context()); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				} else if r.Repairs > 0 {
					t.Errorf("seed %d: what waits is taken for a change by somebody else: %d repairs", seed, r.Repairs)
				}
			}
			mustApplyAll(t, f)
			same(t, f)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
