// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// tree is what etcd holds, by path.
type tree map[string]model.Entry

func (t tree) put(key model.Key, value any) {
	t[key.Path()] = model.Entry{Path: key.Path(), Key: key, Value: value, Revision: int64(len(t) + 1)}
}

func (t tree) entries() []model.Entry {
	var all []model.Entry
	for _, path := range slices.Sorted(maps.Keys(t)) {
		all = append(all, t[path])
	}
	return all
}

func (t tree) view() *model.View {
	v := model.NewView()
	v.Add(model.PrefixRange(model.Root), 100, t.entries())
	return v
}

// apply commits a change like etcd, and reports whether its compares held.
func (t tree) apply(tb testing.TB, c model.Change) bool {
	tb.Helper()
	keys := map[string]bool{}
	for _, k := range c.Compares {
		if t[k.Key.Path()].Revision != k.Revision {
			return false
		}
	}
	for _, k := range c.Deletes {
		delete(t, k.Path())
		keys[k.Path()] = true
	}
	for _, p := range c.Puts {
		if keys[p.Key.Path()] {
			tb.Errorf("%s is written twice in one transaction", p.Key.Path())
		}
		keys[p.Key.Path()] = true
		t.put(p.Key, p.Value)
	}
	return true
}

// good returns a tree without violations.
func good(r *rand.Rand) tree {
	t := tree{}
	t.put(model.PoolKey{CIDR: netip.MustParsePrefix("10.0.0.0/24")}, model.Pool{CIDR: netip.MustParsePrefix("10.0.0.0/24")})
	handles := map[string]map[netip.Prefix]int{}
	for n := range 6 {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(4 * n)}), 30)
		b := model.Block{CIDR: cidr, Allocations: []int{model.Free, model.Free, model.Free, model.Free}}
		if b.Affinity = []string{"a", "b", ""}[r.IntN(3)]; b.Affinity != "" {
			t.put(model.AffinityKey{Host: b.Affinity, CIDR: cidr}, model.Affinity{})
		}
		for o := range 4 {
			id := fmt.Sprintf("h%d", r.IntN(8))
			if r.IntN(2) == 0 {
				b.Unallocated = append(b.Unallocated, o)
				continue
			}
			b.Allocations[o] = len(b.Attributes)
			b.Attributes = append(b.Attributes, model.Attributes{HandleID: id})
			if handles[id] == nil {
				handles[id] = map[netip.Prefix]int{}
			}
			handles[id][cidr]++
		}
		t.put(model.BlockKey{CIDR: cidr}, b)
	}
	for id, blocks := range handles {
		t.put(model.HandleKey{ID: id, Legacy: r.IntN(3) == 0}, model.Handle{ID: id, Blocks: blocks})
	}
	return t
}

// damage deletes, adds and changes affinities and handles.
func (t tree) damage(r *rand.Rand) {
	for _, path := range slices.Sorted(maps.Keys(t)) {
		e := t[path]
		switch k := e.Key.(type) {
		case model.AffinityKey:
			switch r.IntN(4) {
			case 0:
				delete(t, path)
			case 1:
				t.put(model.AffinityKey{Host: "c", CIDR: k.CIDR}, model.Affinity{})
			}
		case model.HandleKey:
			switch r.IntN(5) {
			case 0:
				delete(t, path)
			case 1:
				e.Value, e.Err = nil, errNotCanonical
				t[path] = e
			case 2:
				t.put(model.HandleKey{ID: k.ID, Legacy: !k.Legacy}, model.Handle{ID: k.ID, Blocks: map[netip.Prefix]int{netip.MustParsePrefix("10.0.0.0/30"): 4, netip.MustParsePrefix("10.0.0.252/30"): 1}})
			}
		}
	}
	t.put(model.HandleKey{ID: "empty"}, model.Handle{ID: "empty"})
}

// TestRepairs damages affinities and handles, and expects them to be repaired without touching blocks.
func TestRepairs(t *testing.T) {
	mended := 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(1, seed))
		tr := good(r)
		if found := Check(tr.entries()); len(found) > 0 {
			t.Fatalf("seed %d: %v", seed, found)
		}
		tr.damage(r)
		before := maps.Clone(tr)
		for range 3 { // one repair may be in another's way
			for _, repair := range Repairs(tr.view(), tr.entries()) {
				if !repair.Change.Empty() && tr.apply(t, repair.Change) {
					mended++
				}
			}
		}
		if found := Check(tr.entries()); len(found) > 0 {
			t.Fatalf("seed %d: after the repair: %v", seed, found)
		}
		for path, e := range before {
			if strings.Contains(path, "/assignment/ipv") {
				if diff := cmp.Diff(fmt.Sprint(e), fmt.Sprint(tr[path])); diff != "" {
					t.Fatalf("seed %d: %s was touched: %s", seed, path, diff)
				}
			}
		}
	}
	if mended == 0 {
		t.Error("nothing was to be mended")
	}
}

// TestRepairBesideUnreadable expects that no handle is recounted while a block can't be read, since it may have the
// handle's addresses.
func TestRepairBesideUnreadable(t *testing.T) {
	tr := tree{}
	cidr := netip.MustParsePrefix("10.0.0.0/30")
	tr.put(model.BlockKey{CIDR: cidr}, nil)
	e := tr[model.BlockKey{CIDR: cidr}.Path()]
	e.Err = errNotCanonical
	tr[e.Path] = e
	tr.put(model.HandleKey{ID: "h"}, model.Handle{ID: "h", Blocks: map[netip.Prefix]int{netip.MustParsePrefix("10.0.0.4/30"): 1}})
	tr.put(model.AffinityKey{Host: "a", CIDR: cidr}, model.Affinity{})
	for _, repair := range Repairs(tr.view(), tr.entries()) {
		if !repair.Change.Empty() {
			t.Errorf("%s: %+v", repair.Violation, repair.Change)
		}
	}
}
