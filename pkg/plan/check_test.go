// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func sameState() cmp.Option {
	return cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.IgnoreFields(Problem{}, "Reason")}
}

// check compares what an engine has told with the world worked out anew.
func check(t *testing.T, w world, settings Settings, told State) {
	t.Helper()
	if diff := cmp.Diff(w.compute(settings), told, sameState()); diff != "" {
		for _, path := range slices.Sorted(maps.Keys(w.entries)) {
			t.Logf("%s = %+v %v", path, w.entries[path].Value, w.entries[path].Err)
		}
		t.Logf("links %+v", w.links)
		for p, paths := range w.learned {
			t.Logf("learned %s %+v", p, paths)
		}
		t.Fatalf("worked out anew (-) and told by the engine (+):\n%s", diff)
	}
}

// checkState holds what must be true of every state whatever led to it.
func checkState(t *testing.T, w world, st State) {
	t.Helper()
	for p, r := range st.Routes {
		if r.Destination != p || (r.Kind == Blackhole) != (len(r.Hops) == 0) {
			t.Fatalf("route %s is %+v", p, r)
		}
		if _, ours := st.Advertisements[p]; ours && r.Kind != Blackhole {
			t.Fatalf("%s is advertised and led away: %+v", p, r)
		}
	}
	s := &slow{world: w, objects: map[model.Key]model.Entry{}, names: []string{w.self}}
	for path, e := range w.entries {
		if path == e.Key.Path() {
			s.objects[e.Key] = e
		}
		switch k := e.Key.(type) { // a dead host counts for less
		case model.HostMetadataKey:
			s.names = append(s.names, k.Host)
		case model.HostBirdIPKey:
			s.names = append(s.names, k.Host)
		}
	}
	for p := range st.Advertisements {
		block, ok := s.block(p)
		switch {
		case ok && block.CIDR == p && block.Affinity == w.self && !p.IsSingleIP():
		case p.IsSingleIP() && (s.owner(p.Addr()) == w.self || block.CIDR == p && block.Affinity == w.self && s.owner(p.Addr()) == ""):
		default:
			t.Fatalf("%s is advertised and is not ours: block %+v", p, block)
		}
	}
}

// checkUsed counts what neighbours sent and was taken, by looking at what became of it.
func checkUsed(t *testing.T, e *engine, w world, told State) {
	t.Helper()
	most, least := map[netip.Addr]int{}, map[netip.Addr]int{}
	for p, paths := range w.learned {
		r, ok := told.Routes[p]
		if !ok || r.Origin != FromBGP {
			continue
		}
		one := !slices.ContainsFunc(paths, func(o Path) bool {
			return o.NextHop != paths[0].NextHop || o.Peer != paths[0].Peer || o.Rank != paths[0].Rank
		})
		for _, path := range paths {
			if _, ok := told.Neighbours[path.Peer]; ok {
				most[path.Peer]++
			}
			if one { // the route is by it
				least[path.Peer]++
			}
		}
	}
	used := e.Used()
	for a := range least {
		if used[a] < least[a] {
			t.Fatalf("%d routes are by neighbour %s, and %d at least are", used[a], a, least[a])
		}
	}
	for a, n := range used {
		if n == 0 || n > most[a] {
			t.Fatalf("%d routes are by neighbour %s, and %d at most are", n, a, most[a])
		}
	}
}

// checkLeftovers looks for this host's blocks that nothing may be allocated from, by looking through all.
func checkLeftovers(t *testing.T, e *engine, w world) {
	t.Helper()
	s := &slow{world: w, objects: map[model.Key]model.Entry{}}
	for path, entry := range w.entries {
		if path == entry.Key.Path() {
			s.objects[entry.Key] = entry
		}
	}
	var want []netip.Prefix
	for _, b := range s.blocks() {
		gives := slices.ContainsFunc(s.pools(), func(p slowPool) bool {
			size := p.pool.BlockSize
			if size == 0 {
				size = model.DefaultBlockSize(b.CIDR.Addr().Is6())
			}
			return within(b.CIDR, p.cidr) && p.pool.IPAM && !p.pool.Disabled && p.pool.Serves(model.ForWorkloads) && p.pool.NodeSelector != "!all()" && !s.older(p.cidr) && max(size, p.cidr.Bits()) == b.CIDR.Bits()
		})
		if b.Affinity == w.self && len(b.Unallocated) == len(b.Allocations) && !gives {
			want = append(want, b.CIDR)
		}
	}
	slices.SortFunc(want, netip.Prefix.Compare)
	if diff := cmp.Diff(want, e.Leftovers(), cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("the leftovers, worked out anew (-) and as the engine says (+):\n%s", diff)
	}
}
