// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// resize resizes all blocks of a pool, one unit after another.
func (s *etcd) resize(pool string, bits int) {
	s.t.Helper()
	units := map[netip.Prefix][]netip.Prefix{}
	for _, e := range s.dump() {
		if k, ok := e.Key.(model.BlockKey); ok && cidr(pool).Contains(k.CIDR.Addr()) && k.CIDR.Bits() != bits {
			unit := netip.PrefixFrom(k.CIDR.Addr(), min(k.CIDR.Bits(), bits)).Masked()
			units[unit] = append(units[unit], k.CIDR)
		}
	}
	for _, unit := range slices.SortedFunc(maps.Keys(units), netip.Prefix.Compare) {
		p, err := s.plan(FirstReadRelease("none"), func(p *Plan) error {
			_, err := p.Resize(units[unit], bits)
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
		if err := s.commit(p.Change()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// holders returns the handles of all allocated addresses.
func (s *etcd) holders() map[netip.Addr]string {
	all := map[netip.Addr]string{}
	for _, e := range s.dump() {
		if b, ok := e.Value.(model.Block); ok {
			for o, a := range b.Allocations {
				if a != model.Free {
					all[addrOf(&b, o)] = b.Attributes[a].HandleID
				}
			}
		}
	}
	return all
}

func TestResize(t *testing.T) {
	s := world(t)
	s.fill("10.0.0.0/30", "a", 3)
	s.fill("10.0.0.4/30", "b", 1)
	s.fill("10.0.0.8/30", "c", 0)
	before := s.holders()
	s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 29})
	s.resize("10.0.0.0/28", 29)
	s.mustBeSound()
	if diff := cmp.Diff(before, s.holders()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	if b := s.block("10.0.0.0/29"); b == nil || b.Affinity != "a" || s.block("10.0.0.8/29") != nil || s.block("10.0.0.4/30") != nil {
		t.Errorf("10.0.0.0/29: %+v", b)
	}
	s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 31})
	s.resize("10.0.0.0/28", 31)
	s.mustBeSound()
	if diff := cmp.Diff(before, s.holders()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	if b := s.block("10.0.0.4/31"); b == nil || b.Affinity != "a" || s.block("10.0.0.6/31") != nil {
		t.Errorf("10.0.0.4/31: %+v", b)
	}
}

// TestResizeAnything repeatedly resizes blocks of random hosts and fillings: every address keeps its holder.
func TestResizeAnything(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			bits := 28 + r.IntN(4)
			s := world(t, model.Pool{CIDR: cidr("10.0.0.0/26"), BlockSize: bits})
			for c := cidr("10.0.0.0/26"); cidr("10.0.0.0/26").Contains(c.Addr()); {
				c = netip.PrefixFrom(c.Addr(), bits)
				if r.IntN(3) > 0 {
					s.fill(c.String(), string("abc"[r.IntN(3)]), r.IntN(1<<(32-bits)+1))
				}
				c = nextPrefix(c)
				if !c.IsValid() {
					break
				}
			}
			before := s.holders()
			for range 4 {
				bits = 27 + r.IntN(6)
				s.pool(model.Pool{CIDR: cidr("10.0.0.0/26"), BlockSize: bits})
				s.resize("10.0.0.0/26", bits)
				s.mustBeSound()
				if diff := cmp.Diff(before, s.holders()); diff != "" {
					t.Fatalf("blocks of %d: (-before +after):\n%s", bits, diff)
				}
			}
			for _, handle := range slices.Sorted(maps.Values(before)) {
				if _, err := s.release(handle, noon); err != nil {
					t.Fatal(err)
				}
			}
			s.mustBeSound()
			if left := s.holders(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}
