// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// groupOf returns the chain of the group to which an interface is sent.
func groupOf(c policy.Changes, name string, direction model.Direction) string {
	d := newDesired()
	d.configure(settings())
	d.update(c)
	return d.interfaces.groups.joined[slot{dispatchOf(direction), table.NameBytes(name)}].chain
}

// handleOf returns the handle of the rule in a chain that contains the text.
func handleOf(tb testing.TB, chain, text string) string {
	tb.Helper()
	for line := range strings.Lines(run(tb, "nft", "-a", "list", "chain", "inet", TableName, chain)) {
		if strings.Contains(line, text) {
			return regexp.MustCompile(`# handle (\d+)`).FindStringSubmatch(line)[1]
		}
	}
	tb.Fatalf("chain %s has no rule with %q", chain, text)
	return ""
}

// TestDrift changes the table behind our back in every way there is, and expects
// an event, one repair and the table as it was.
func TestDrift(t *testing.T) {
	group := groupOf(sample(), "cali1", model.Inbound)
	nft := func(args ...string) func(testing.TB) {
		return func(tb testing.TB) { run(tb, append([]string{"nft"}, args...)...) }
	}
	on := func(verb, chain, text string, rest ...string) func(testing.TB) {
		return func(tb testing.TB) {
			run(tb, append([]string{"nft", verb, "rule", "inet", TableName, chain, "handle", handleOf(tb, chain, text)}, rest...)...)
		}
	}
	for _, c := range []struct {
		name    string
		do      func(testing.TB)
		repairs int // 0 = any number
	}{
		{"rule added", nft("add", "rule", "inet", TableName, "from-workload", "accept"), 1},
		{"rule inserted in a hook", nft("insert", "rule", "inet", TableName, "filter-forward", "accept"), 1},
		{"rule deleted", on("delete", "from-workload", "no policy or profile allows it"), 1},
		{"rule replaced", on("replace", "to-workload", "no policy or profile allows it", "accept"), 1},
		{"chain flushed", nft("flush", "chain", "inet", TableName, group), 1},
		{"chain of a group renamed", nft("rename", "chain", "inet", TableName, group, "other"), 3},
		{"chain of a policy renamed", nft("rename", "chain", "inet", TableName, render.RulesChain(policyID("web"), model.Inbound), "other"), 0},
		{"chain of all renamed", nft("rename", "chain", "inet", TableName, "allow", "other"), 0},
		{"base chain renamed", nft("rename", "chain", "inet", TableName, "filter-forward", "other"), 0},
		{"chain added", nft("add", "chain", "inet", TableName, "other"), 1},
		{"base chain added", nft("add", "chain", "inet", TableName, "other", "{ type filter hook input priority 5; }"), 1},
		{"base chain drops", nft("add", "chain", "inet", TableName, "filter-input", "{ policy drop; }"), 0},
		{"element added", nft("add", "element", "inet", TableName, "s4-clients", "{ 10.65.0.77 }"), 1},
		{"element deleted", nft("delete", "element", "inet", TableName, "s6-clients", "{ fd00::9 }"), 1},
		{"set flushed", nft("flush", "set", "inet", TableName, "s4-clients"), 2},
		{"interval added", nft("add", "element", "inet", TableName, "masquerade4", "{ 10.99.0.0/16 }"), 2},
		{"port deleted", nft("delete", "element", "inet", TableName, "p4-admin", "{ 10.65.0.1 . tcp . 9443 }"), 1},
		{"verdict changed", func(tb testing.TB) {
			run(tb, "nft", "delete element inet calico workloads-from { cali1 }; add element inet calico workloads-from { cali1 : accept }")
		}, 1},
		{"index added", nft("add", "element", "inet", TableName, "sources-by-index4", "{ 100009 . 10.65.0.1 }"), 1},
		{"index deleted", nft("delete", "element", "inet", TableName, "sources-by-index6", "{ 100001 . fd00::1 }"), 1},
		{"nat deleted", nft("delete", "element", "inet", TableName, "dnat4", "{ 192.0.2.7 }"), 1},
		{"set added", nft("add", "set", "inet", TableName, "other", "{ type ipv4_addr; }"), 1},
		{"counter added", nft("add", "counter", "inet", TableName, "other"), 0},
		{"limit added", nft("add", "limit", "inet", TableName, "other", "{ rate 1/second; }"), 0},
		{"dormant", nft("add", "table", "inet", TableName, "{ flags dormant; }"), 0},
		{"table deleted", nft("delete", "table", "inet", TableName), 0},
		{"everything flushed", nft("flush", "ruleset"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			netns.Host(t, func() {
				f := open(t)
				f.Update(sample())
				f.Links(sampleLinks())
				mustApply(t, f)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				events, err := f.Subscribe(ctx)
				if err != nil {
					t.Fatal(err)
				}
				before := listed(t)
				c.do(t)
				eventually.Receive(t, "an event", events)
				f.Audit()
				r := mustApply(t, f)
				if !r.Whole || r.Writes == 0 || r.Repairs == 0 || c.repairs != 0 && r.Repairs != c.repairs {
					t.Errorf("whole %t, %d writes, %d repairs: want it whole, and %d repairs", r.Whole, r.Writes, r.Repairs, c.repairs)
				}
				if diff := cmp.Diff(canonical(before), canonical(listed(t))); diff != "" {
					t.Errorf("after the repair, -before +after:\n%s", diff)
				}
				f.Audit()
				wantWrites(t, f, 0, 0)
			})
		})
	}
}

// TestRepairWithChange expects a foreign change to be found when our own change
// meets it, without an audit.
func TestRepairWithChange(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(sample())
		mustApply(t, f)
		run(t, "nft", "flush", "ruleset")
		c := sample()
		c.Endpoints, c.Sets, c.Pools = endpoints(workload(5, "web")), nil, nil
		f.Update(c)
		if r := mustApply(t, f); !r.Whole || r.Repairs == 0 {
			t.Errorf("whole %t, %d repairs: want both", r.Whole, r.Repairs)
		}
		if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
			t.Errorf("-ours +nft's:\n%s", diff)
		}
	})
}

// TestRepairsOfAFailedTry expects each foreign change to be counted once if a set can't be read at first, as while others change theirs.
func TestRepairsOfAFailedTry(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(sample())
		mustApply(t, f)
		run(t, "nft", "add rule inet calico from-workload accept; add element inet calico s4-clients { 10.65.0.77 }; delete element inet calico s6-clients { fd00::9 }")
		def := &f.desired.ruleset.sets["s6-clients"].def
		r, name := Report{}, def.Name
		def.Name = "gone"
		if err := f.observe(&r); err == nil {
			t.Fatal("a set that isn't there was read")
		}
		def.Name = name
		if err := f.observe(&r); err != nil || r.Repairs != 3 {
			t.Errorf("%d repairs, %v: want 3", r.Repairs, err)
		}
		f.Audit()
		wantWrites(t, f, 3, 0)
	})
}

// TestOwnChangesAreNoEvents expects no events for our own changes and for other tables.
func TestOwnChangesAreNoEvents(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		told := make(chan bool, 100)
		if err := f.conn.Listen(t.Context(), f.cfg.Logger, func() { told <- true }, func() { close(told) }); err != nil {
			t.Fatal(err)
		}
		f.Update(sample())
		mustApply(t, f)
		run(t, "nft", "add table inet other; add chain inet other x; add table ip calico; add chain ip calico x")
		run(t, "nft", "add chain inet calico x") // is told after all before it
		eventually.Receive(t, "an event", told)
		run(t, "nft", "add chain inet calico y")
		eventually.Receive(t, "an event", told)
		if len(told) > 0 {
			t.Error("an event about our own changes, or those of other tables")
		}
	})
}

// TestEventAtOurGeneration expects an event to count although its generation is the one that this process counted.
func TestEventAtOurGeneration(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		events, err := f.Subscribe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.Update(sample())
		mustApply(t, f)
		run(t, "nft", "add rule inet calico from-workload accept")
		eventually.Receive(t, "an event", events)
		if f.generation, err = f.conn.Generation(); err != nil {
			t.Fatal(err)
		}
		f.Audit()
		wantWrites(t, f, 1, 1)
	})
}

// TestOthersChangeTheirs expects an audit to read nothing if only others' tables changed, except now and then.
func TestOthersChangeTheirs(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		events, err := f.Subscribe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.Update(sample())
		mustApply(t, f)
		for n := range maxSkipped + 2 {
			run(t, "nft", "add table inet other; add chain inet other x; delete chain inet other x")
			f.Audit()
			wantWrites(t, f, 0, 0)
			if want := (n + 1) % (maxSkipped + 1); f.skipped != want {
				t.Errorf("audit %d: %d believed the events, want %d", n, f.skipped, want)
			}
		}
		run(t, "nft", "add rule inet calico from-workload accept")
		eventually.Receive(t, "an event", events)
		f.Audit()
		wantWrites(t, f, 1, 1)
	})
}

func TestBadSettings(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		for _, prefixes := range [][]string{nil, {""}, {"cali", "sixteen-bytes-xx"}} {
			f.Configure(policy.Settings{Prefixes: prefixes})
			if r, err := f.Apply(t.Context()); err == nil || r.Writes != 0 {
				t.Errorf("%q: %+v, %v: want an error", prefixes, r, err)
			}
		}
		f.Configure(settings())
		mustApply(t, f)
	})
}

// TestRestart expects a new Firewall to accept an existing table, and to remove what is stale.
func TestRestart(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(sample())
		mustApply(t, f)
		before := run(t, "nft", "-a", "list", "ruleset")
		f = open(t)
		f.Update(sample())
		wantWrites(t, f, 0, 0)
		if diff := cmp.Diff(before, run(t, "nft", "-a", "list", "ruleset")); diff != "" {
			t.Errorf("a restart changed the ruleset:\n%s", diff)
		}
		f = open(t)
		c := sample()
		delete(c.Endpoints, workload(2).Path)
		delete(c.Rules, policyID("tier"))
		f.Update(c)
		if r := mustApply(t, f); r.Repairs != 0 || r.Writes == 0 {
			t.Errorf("%d repairs, %d writes: want 0 and some", r.Repairs, r.Writes)
		}
		if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
			t.Errorf("-ours +nft's:\n%s", diff)
		}
	})
}

// TestForeignTables expects the tables of others to stay as they are, whatever we do.
func TestForeignTables(t *testing.T) {
	netns.Host(t, func() {
		run(t, "nft", `add table inet other; add chain inet other in { type filter hook input priority 0; }; add rule inet other in counter;
			add set inet other s { type ipv4_addr; }; add element inet other s { 10.0.0.1 }; add table ip calico; add chain ip calico x`)
		other := func() string {
			return run(t, "nft", "list", "table", "inet", "other") + run(t, "nft", "list", "table", "ip", "calico")
		}
		before := other()
		f := open(t)
		f.Update(sample())
		mustApply(t, f)
		run(t, "nft", "delete", "table", "inet", TableName)
		f.Audit()
		mustApply(t, f)
		f.Audit()
		wantWrites(t, f, 0, 0)
		if diff := cmp.Diff(before, other()); diff != "" {
			t.Errorf("-before +after:\n%s", diff)
		}
	})
}

// TestObservedTwice: unwanted leftovers of a former agent never cause the table to be recreated, which loses packets; not even in the try
// after a reading that others' changes interrupted.
func TestObservedTwice(t *testing.T) {
	netns.Host(t, func() {
		former := open(t)
		former.Update(sample())
		mustApply(t, former)
		run(t, "nft", "add", "chain", "inet", TableName, "other", "{ type filter hook input priority 5; }")
		f := open(t)
		for range 2 {
			if err := f.observe(&Report{}); err != nil {
				t.Fatal(err)
			}
		}
		if f.desired.ruleset.rebuild {
			t.Error("the table is made anew")
		}
		mustApply(t, f)
		if out := run(t, "nft", "list", "table", "inet", TableName); strings.Contains(out, "chain other") || strings.Contains(out, "set s4-clients") {
			t.Errorf("what the former agent has left stays:\n%s", out)
		}
		// What becomes wanted later is created as wanted.
		f.Update(sample())
		mustApply(t, f)
		if want := run(t, "nft", "list", "set", "inet", TableName, "s4-clients"); !strings.Contains(want, "ipv4_addr") {
			t.Errorf("the set is %s", want)
		}
	})
}

// TestWantedAfterAll: an existing set that wasn't wanted is corrected once it is.
func TestWantedAfterAll(t *testing.T) {
	netns.Host(t, func() {
		former := open(t)
		former.Update(sample())
		mustApply(t, former)
		f := open(t)
		if err := f.observe(&Report{}); err != nil {
			t.Fatal(err)
		}
		f.Update(sample())
		mustApply(t, f)
		wantWrites(t, f, 0, 0)
	})
}
