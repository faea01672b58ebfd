// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// meddle is somebody else who changes what leads to groups' chains, or what they ask.
func meddle(t *testing.T, f *Firewall, r *rand.Rand) {
	t.Helper()
	var chains, keys []string
	for name, rules := range leadsNow(t, f).rules {
		if strings.HasPrefix(name, "to-") && len(rules) > 0 && name != "to-workload" {
			chains = append(chains, name)
		}
	}
	for at := range leadsNow(t, f).chains {
		if at.set == render.MapTo {
			keys = append(keys, strings.TrimRight(at.key, "\x00"))
		}
	}
	slices.Sort(chains)
	slices.Sort(keys)
	if len(chains) == 0 || len(keys) == 0 {
		return
	}
	chain, key := chains[r.IntN(len(chains))], keys[r.IntN(len(keys))]
	switch r.IntN(6) {
	case 0:
		run(t, "nft", "delete element inet calico workloads-to { "+key+" }")
	case 1:
		run(t, "nft", "delete element inet calico workloads-to { "+key+" }; add element inet calico workloads-to { "+key+" : jump "+chain+" }")
	case 2:
		run(t, "nft", "flush chain inet calico "+chain)
	case 3:
		run(t, "nft", "rename chain inet calico "+chain+" to-other")
	case 4:
		run(t, "nft", "add chain inet calico to-foreign; add rule inet calico to-foreign accept; delete element inet calico workloads-to { "+key+" }; add element inet calico workloads-to { "+key+" : jump to-foreign }")
	case 5:
		run(t, "nft", "delete table inet calico")
	}
	f.generation = 0
	f.Audit()
}

// killed has a Firewall that is killed write the first of two transactions.
func killed(t *testing.T, f *Firewall) {
	t.Helper()
	b := f.conn.NewBatch()
	p, err := f.desired.plan(b)
	if err != nil {
		t.Fatal(err)
	}
	if p.staged || !cuts(t, f.desired) {
		return
	}
	ended, between := make(chan error, 1), false
	go func() {
		defer close(ended)
		b.Between = func() { between = true; runtime.Goexit() }
		_, err := b.Commit(0)
		ended <- err
	}()
	if err := <-ended; err != nil || !between {
		t.Fatalf("killed between two transactions: %t, %v", between, err)
	}
}

// cuts says whether what was planned takes two transactions.
func cuts(t *testing.T, d *desired) bool {
	t.Helper()
	var chains []planned
	for name := range d.dirty {
		c := d.chains[name]
		if c.render == nil {
			continue
		}
		def, rules, err := c.encoded()
		if err != nil {
			t.Fatal(err)
		}
		chains = append(chains, planned{name: name, chain: c, rules: rules, fresh: !c.there && def.Hook == (table.Hook{})})
	}
	return d.move(chains) || !d.rebuild && rangesIn(chains)
}

// leading is what the kernel has of chains, and of the elements that lead to groups'.
type leading struct {
	chains map[slot]string
	rules  map[string][]nfnl.Hash
}

func leadsNow(t *testing.T, f *Firewall) leading {
	t.Helper()
	l := leading{make(map[slot]string), make(map[string][]nfnl.Hash)}
	kernel, err := f.conn.ReadTable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range kernel.Chains {
		l.rules[name] = nil
		for _, r := range kernel.Rules[name] {
			l.rules[name] = append(l.rules[name], r.Hash)
		}
	}
	for _, name := range [...]string{render.MapFrom, render.MapTo} {
		if _, there := kernel.Sets[name]; !there {
			continue
		}
		if err := f.conn.ReadElements(&f.desired.sets[name].def, func(e nfnl.Element) { l.chains[slot{name, e.Key}] = e.Data }); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// noneComes: an element leads to a chain whose rules were others only if it led there
// before, and leads away from none that stays. What is judged meanwhile finds new
// elements, and behind them old rules.
func noneComes(t *testing.T, before, after leading) {
	t.Helper()
	for at, chain := range after.chains {
		if rules, there := before.rules[chain]; there && before.chains[at] != chain && !slices.Equal(rules, after.rules[chain]) {
			t.Errorf("%q of %s comes to chain %s in the transaction that changes its rules", at.key, at.set, chain)
		}
		left := before.chains[at]
		if rules, stays := after.rules[left]; stays && left != chain && !slices.Equal(rules, before.rules[left]) {
			t.Errorf("%q of %s leaves chain %s in the transaction that changes its rules", at.key, at.set, left)
		}
	}
}

// TestMoveIsWhole has an endpoint move to a chain that is new, a packet of which may be
// on its way there: the chain and its rules come in a transaction before. Not so where
// the chain is there, or stays, or nothing led anywhere.
func TestMoveIsWhole(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		c := sample()
		c.Endpoints = endpoints(workload(1, "web"), workload(2, "web"))
		f.Update(c)
		for _, step := range []struct {
			name         string
			ep           *policy.Endpoint
			transactions uint32
		}{
			{"the table is made", workload(2, "web"), 1},
			{"one moves to a new chain", workload(1, "tier"), 2},
			{"one comes to a new chain", workload(3, "web", "tier"), 1},
			{"one moves to a chain that is there", workload(1, "web"), 1},
			{"one keeps its chain", workload(3, "tier"), 1},
		} {
			f.Update(policy.Changes{Endpoints: endpoints(step.ep)})
			before, err := f.conn.Generation()
			if err != nil {
				t.Fatal(err)
			}
			mustApply(t, f)
			after, err := f.conn.Generation()
			if err != nil || after-before != step.transactions {
				t.Errorf("%s: %d transactions, %v: want %d", step.name, after-before, err, step.transactions)
			}
			if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
				t.Errorf("%s: -ours +nft's:\n%s", step.name, diff)
			}
		}
		f.Audit()
		wantWrites(t, f, 0, 0)
	})
}
