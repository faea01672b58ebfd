// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// slowLowest tries one after the other.
func slowLowest(lists ...[]VNIs) uint32 {
	for v := uint32(1); ; v++ {
		if !slices.ContainsFunc(slices.Concat(lists...), func(r VNIs) bool { return r.First <= v && uint64(v) < uint64(r.First)+uint64(r.Count) }) {
			return v
		}
	}
}

func TestLowestVNI(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var lists [2][]VNIs
		for range rnd.IntN(20) {
			i := rnd.IntN(2)
			lists[i] = append(lists[i], VNIs{rnd.Uint32N(40), rnd.Uint32N(8)})
		}
		got, err := LowestVNI(lists[0], lists[1])
		if want := slowLowest(lists[0], lists[1]); got != want || err != nil {
			t.Fatalf("%v: %d, %v, want %d", lists, got, err, want)
		}
	}
	if v, err := LowestVNI([]VNIs{{0, MaxVNI}}); v != MaxVNI || err != nil {
		t.Error(v, err)
	}
	if _, err := LowestVNI([]VNIs{{0, 1 << 23}}, []VNIs{{1 << 23, 1 << 31}}); !errors.Is(err, ErrAborted) {
		t.Error(err)
	}
	w := VNIs{17, 16}
	if v, err := LowestVNI(w.Outside()); v != 17 || err != nil {
		t.Error(v, err)
	}
	if _, err := LowestVNI(w.Outside(), []VNIs{w}); !errors.Is(err, ErrAborted) {
		t.Error(err)
	}
}

// TestCrossing plays managers that ask one another, in any order, while messages are under way: no node ever has a VNI
// twice. A few windows are all there is, so that they meet.
func TestCrossing(t *testing.T) {
	type message struct {
		from, to int
		key      Key
		window   VNIs
		vni      uint32 // of an answer; 0 = refused
		answer   bool
	}
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		nodes := make([]Ledger, 3)
		var under []message
		made, refused := 0, 0
		for step := range 400 {
			if len(under) == 0 || rnd.IntN(3) == 0 {
				from, to := rnd.IntN(3), rnd.IntN(3)
				if from == to {
					continue
				}
				key := Key{ID: fmt.Sprint(step), Service: "s"}
				w, err := Window(rnd.Uint64N(6), nodes[from].VNIs())
				if err != nil {
					t.Fatal(err)
				}
				nodes[from].Put(Connection{Key: key, Window: w})
				under = append(under, message{from: from, to: to, key: key, window: w})
			} else {
				i := rnd.IntN(len(under))
				m := under[i]
				under = slices.Delete(under, i, i+1)
				if !m.answer {
					vni, err := LowestVNI(m.window.Outside(), nodes[m.to].VNIs())
					if err == nil {
						remote := m.key
						remote.Peer = "b"
						nodes[m.to].Put(Connection{Key: remote, Tunnel: Tunnel{VNI: vni}})
					}
					under = append(under, message{from: m.to, to: m.from, key: m.key, vni: vni, answer: true})
				} else if m.vni == 0 {
					nodes[m.to].Delete(m.key)
					refused++
				} else {
					nodes[m.to].Put(Connection{Key: m.key, Tunnel: Tunnel{VNI: m.vni}})
					made++
				}
			}
			for n := range nodes {
				seen := map[uint32]bool{}
				for _, c := range nodes[n].All() {
					if v := c.Tunnel.VNI; v != 0 && seen[v] {
						t.Fatalf("seed %d, step %d: node %d has VNI %d twice", seed, step, n, v)
					} else if v != 0 {
						seen[v] = true
					}
				}
			}
		}
		if made == 0 {
			t.Fatalf("seed %d: none was made, %d refused", seed, refused)
		}
	}
}

// TestAllot makes and ends connections: what they have overlaps nothing of the others', and nothing excluded.
func TestAllot(t *testing.T) {
	offer := Offer{Pools: prefixes("10.60.0.0/26", "fd00:60::/120"), Routes: prefixes("192.0.2.0/24", "0.0.0.0/0", "128.0.0.0/1")}
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		var l Ledger
		for step := range 60 {
			if all := l.All(); len(all) > 0 && rnd.IntN(3) == 0 {
				l.Delete(all[rnd.IntN(len(all))].Key)
				continue
			}
			r := ContextRequest{Addressed: rnd.IntN(2) == 0, DefaultRoute: rnd.IntN(4) == 0}
			for range rnd.IntN(3) {
				a := netip.AddrFrom4([4]byte{10, 60, 0, byte(rnd.IntN(64))})
				r.Excluded = append(r.Excluded, netip.PrefixFrom(a, 26+rnd.IntN(7)).Masked())
			}
			for range rnd.IntN(3) {
				r.Additional = append(r.Additional, []PrefixRequest{{false, 28 + rnd.IntN(5)}, {true, 122 + rnd.IntN(7)}}[rnd.IntN(2)])
			}
			got, err := Allot(offer, r, l.Prefixes())
			if err != nil {
				if !errors.Is(err, ErrAborted) || len(got.Prefixes()) != 0 || len(got.Routes) != 0 {
					t.Fatalf("seed %d: %+v: %v", seed, got, err)
				}
				continue
			}
			if got.Client.IsValid() != r.Addressed || len(got.Additional) != len(r.Additional) || len(got.Routes) != map[bool]int{true: 3, false: 1}[r.DefaultRoute] {
				t.Fatalf("seed %d: asked %+v, got %+v", seed, r, got)
			}
			if r.Addressed && (got.Client.Masked() != got.Endpoint.Masked() || got.Client == got.Endpoint) {
				t.Fatalf("seed %d: %+v", seed, got)
			}
			for i, p := range got.Prefixes() {
				for _, x := range slices.Concat(l.Prefixes(), r.Excluded, got.Prefixes()[:i]) {
					if p.Overlaps(x) {
						t.Fatalf("seed %d: %v overlaps %v", seed, p, x)
					}
				}
				if !slices.ContainsFunc(offer.Pools, func(pool netip.Prefix) bool { return pool.Overlaps(p) && pool.Bits() <= p.Bits() }) {
					t.Fatalf("seed %d: %v is in no pool", seed, p)
				}
			}
			l.Put(Connection{Key: Key{ID: fmt.Sprint(step)}, Server: End{Namespace: 1}, Context: got})
		}
	}
	if _, err := Allot(offer, ContextRequest{Excluded: prefixes("192.0.2.128/25")}, nil); !errors.Is(err, ErrAborted) {
		t.Error("a route over what is excluded:", err)
	}
	if _, err := Allot(Offer{}, ContextRequest{Addressed: true}, nil); !errors.Is(err, ErrAborted) {
		t.Error("no pool:", err)
	}
}
