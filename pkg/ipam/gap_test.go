// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// stuff takes every block of the pool except one.
func (s *etcd) stuff(p model.Pool, but netip.Prefix) {
	full := newBlock(netip.PrefixFrom(p.CIDR.Addr(), p.BlockSize), "other")
	for len(full.Unallocated) > 0 {
		take(&full, full.Unallocated[0], model.Attributes{HandleID: "x"})
	}
	s.revision++
	for c := full.CIDR; c.IsValid() && p.CIDR.Overlaps(c); c = nextPrefix(c) {
		if c != but {
			full.CIDR = c
			s.write(model.BlockKey{CIDR: c}.Path(), must(model.FormatValue(full)))
		}
	}
}

// However a pool is filled, the last free place is found, and it is noticed when none is left.
func TestTheOnlyGap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, p := range []model.Pool{
		{CIDR: cidr("10.0.0.0/20"), BlockSize: 26}, // 16 regions: the walk's own windows are enough
		{CIDR: cidr("10.0.0.0/19"), BlockSize: 26}, // and here not
		{CIDR: cidr("10.8.0.0/13"), BlockSize: 20},
		{CIDR: cidr("10.0.0.0/16"), BlockSize: 26},
		{CIDR: cidr("10.0.0.0/22"), BlockSize: 32},
		{CIDR: cidr("fd00::/112"), BlockSize: 122},
		{CIDR: cidr("fd00:1:2:3:4:5:6:0/112"), BlockSize: 120},
		{CIDR: cidr("fd00:0:1::4:0/111"), BlockSize: 121},
		{CIDR: cidr("fd00::/120"), BlockSize: 128},
		{CIDR: cidr("::/112"), BlockSize: 122},
	} {
		t.Run(fmt.Sprintf("%s in /%d", p.CIDR, p.BlockSize), func(t *testing.T) {
			v6 := isV6(p.CIDR)
			// Others' blocks whose paths begin like the pool's.
			others := model.Pool{CIDR: cidr("10.0.0.0/8"), BlockSize: 24}
			if v6 {
				others = model.Pool{CIDR: cidr("fd00::/48"), BlockSize: 124}
			}
			s := newEtcd(t)
			s.pool(p)
			s.stuff(p, netip.Prefix{})
			for range 500 {
				n := number{random.Uint64(), random.Uint64() & 0xffffffff0000ffff}
				c := netip.PrefixFrom(numberOf(others.CIDR.Addr()).add(n.low(128-48)).addr(v6), others.BlockSize).Masked()
				if !v6 {
					c = netip.PrefixFrom(number{lo: 10<<24 | random.Uint64N(1<<24)}.addr(false), others.BlockSize).Masked()
				}
				if !c.Overlaps(p.CIDR) {
					s.write(model.BlockKey{CIDR: c}.Path(), []byte("{}"))
				}
			}
			r := Request{Handle: "h", IPv4: !v6, IPv6: v6, Now: noon}
			for i := range 4 {
				r.Host, r.Addrs = fmt.Sprint("node-", i), nil
				var exhausted *ExhaustedError
				if _, err := s.assign(r); !errors.As(err, &exhausted) {
					t.Fatalf("all is full, and yet: %v", err)
				}
				w := walkOf("x", &pool{Pool: p})
				n := number{lo: random.Uint64()}.low(p.BlockSize - p.CIDR.Bits())
				gap := w.prefix(n, p.BlockSize)
				path := model.BlockKey{CIDR: gap}.Path()
				full := s.keys[path].data
				s.remove(path)
				s.rounds, r.Addrs = 0, nil
				if i == 3 {
					r.Addrs = []netip.Addr{gap.Addr()}
				}
				choice, err := s.assign(r)
				if err != nil {
					t.Fatalf("%s is not found: %v", gap, err)
				}
				if got := choice.Addrs[0].Block; got != gap {
					t.Fatalf("got %s, only %s is free", got, gap)
				}
				t.Logf("%s found in %d rounds", gap, s.rounds)
				s.remove(model.HandleKey{ID: r.Handle}.Path())
				s.remove(model.AffinityKey{Host: r.Host, CIDR: gap}.Path())
				s.revision++
				s.write(path, full)
			}
		})
	}
}

// As long as a pool is far from full, two rounds of reading find a free block: the first, and one more.
func TestGapRounds(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, p := range []model.Pool{
		{CIDR: cidr("10.0.0.0/12"), BlockSize: 24},
		{CIDR: cidr("10.0.0.0/12"), BlockSize: 25},
		{CIDR: cidr("10.0.0.0/13"), BlockSize: 26},
		{CIDR: cidr("10.0.0.0/16"), BlockSize: 32},
		{CIDR: cidr("fd00::1:0:0/108"), BlockSize: 120},
		{CIDR: cidr("fd00::/109"), BlockSize: 122},
	} {
		s := newEtcd(t)
		s.pool(p)
		w := walkOf("x", &pool{Pool: p})
		const inTen = 6
		for i := range uint64(1) << (p.BlockSize - p.CIDR.Bits()) {
			if random.IntN(10) < inTen {
				s.write(model.BlockKey{CIDR: w.prefix(number{lo: i}, p.BlockSize)}.Path(), []byte("{}"))
			}
		}
		late := 0
		for i := range 30 {
			s.rounds = 0
			r := Request{Host: fmt.Sprint("node-", i), Handle: fmt.Sprint("h", i), IPv4: !isV6(p.CIDR), IPv6: isV6(p.CIDR), Now: noon}
			if _, err := s.assign(r); err != nil {
				t.Fatal(err)
			}
			if s.rounds > 2 {
				late++ // it begins where the text of a region begins those of many others
			}
		}
		if late > 1 {
			t.Errorf("%s in /%d: %d of 30 hosts need more than 2 rounds", p.CIDR, p.BlockSize, late)
		}
	}
}

// A listed pool has no room where another plugin's pool is or a larger block reaches in.
func TestGapBesideOthers(t *testing.T) {
	p := model.Pool{CIDR: cidr("10.0.0.0/16"), BlockSize: 28}
	s := newEtcd(t)
	s.pool(p)
	s.stuff(p, cidr("10.0.9.16/28"))
	s.othersPool("10.0.9.0/27")
	r := Request{Host: "a", Handle: "h", IPv4: true, Now: noon}
	var exhausted *ExhaustedError
	if choice, err := s.assign(r); !errors.As(err, &exhausted) {
		t.Fatalf("got %v, %v", choice, err)
	}
	for _, c := range []string{"10.0.16.0/28", "10.0.20.48/28", "10.0.31.240/28"} {
		s.remove(model.BlockKey{CIDR: cidr(c)}.Path())
	}
	s.write(model.BlockKey{CIDR: cidr("10.0.16.0/22")}.Path(), []byte("{}"))
	s.write(model.BlockKey{CIDR: cidr("10.0.20.56/32")}.Path(), []byte("{}"))
	choice, err := s.assign(r)
	if err != nil || choice.Addrs[0].Block != cidr("10.0.31.240/28") {
		t.Fatalf("got %v, %v", choice, err)
	}

	// Another plugin's pool around all of it leaves no room at all.
	s.othersPool("10.0.0.0/8")
	s.remove(model.BlockKey{CIDR: cidr("10.0.99.0/28")}.Path())
	r.Handle = "h2"
	s.fill("10.0.31.240/28", "a", 16)
	if choice, err := s.assign(r); !errors.As(err, &exhausted) {
		t.Fatalf("got %v, %v", choice, err)
	}
}

// An affinity without a block, far from where the walk begins.
func TestOrphan(t *testing.T) {
	s := newEtcd(t)
	s.pool(model.Pool{CIDR: cidr("10.0.0.0/16")})
	s.putText("/calico/ipam/v2/host/a/ipv4/block/10.0.200.64-26", "")
	s.putText("/calico/ipam/v2/host/a/ipv4/block/10.0.200.128-28", "") // not of the pool's size
	choice, err := s.assign(Request{Host: "a", Handle: "h", IPv4: true})
	if err != nil || choice.Addrs[0].Block != cidr("10.0.200.64/26") {
		t.Errorf("got %v, %v", choice, err)
	}
}

// An affinity without a block where listing what may overlap stops at its limit.
func TestOrphanAmongMany(t *testing.T) {
	s := newEtcd(t)
	p := model.Pool{CIDR: cidr("fd00::/109"), BlockSize: 122}
	s.pool(p)
	w := walkOf("x", &pool{Pool: p})
	for i := range uint64(regionLimit) { // the text of fd00::/120 begins all of these
		s.write(model.BlockKey{CIDR: w.prefix(number{lo: 4 + i}, p.BlockSize)}.Path(), []byte("{}"))
	}
	for i := range 10 {
		host := fmt.Sprint("node-", i)
		s.putText("/calico/ipam/v2/host/"+host+"/ipv6/block/fd00::-122", "")
		if _, err := s.assign(Request{Host: host, Handle: fmt.Sprint("h", i), IPv6: true, Now: noon}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// Values that the model would not have made are rejected, not followed.
func TestOddValues(t *testing.T) {
	for _, p := range []model.Pool{
		{CIDR: cidr("10.0.0.0/8"), IPAM: true, BlockSize: 8},
		{CIDR: cidr("10.0.0.0/8"), IPAM: true, BlockSize: 33},
		{CIDR: cidr("10.0.0.0/8"), IPAM: true, NodeSelector: "=="},
	} {
		v := model.NewView()
		r := Request{Host: "a", Handle: "h", IPv4: true}
		for _, w := range FirstRead(r) {
			v.Add(w, 1, nil)
		}
		v.Add(model.PrefixRange(model.PoolPrefix()), 1, []model.Entry{{Key: model.PoolKey{CIDR: p.CIDR}, Value: p, Revision: 1}})
		var noPool *NoPoolError
		if _, err := NewPlan(v).Assign(r); !errors.As(err, &noPool) {
			t.Errorf("%+v: %v", p, err)
		}
		r.Handle = "h2"
		var need *model.NeedRangesError
		if _, err := NewPlan(v).Assign(r); !errors.As(err, &need) || len(need.Ranges) != 2 || need.Error() == "" {
			t.Errorf("another handle: %v", err)
		}
	}
}

// One block of any size and place inside makes a larger one impossible.
func TestNoOverlap(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		v6 := random.IntN(2) == 1
		base, low, bits := cidr("10.0.0.0/18"), 20, 32
		if v6 {
			base, low, bits = cidr([]string{"fd00::/114", "fd00:1:2:3:4:5:6::/114", "fd00:1:0:0:1:0:0:c000/114"}[random.IntN(3)]), 116, 128
		}
		p := model.Pool{CIDR: base, BlockSize: low + random.IntN(bits-low-2)}
		s := newEtcd(t)
		s.pool(p)
		inside := func(length int) netip.Prefix {
			n := number{lo: random.Uint64()}.low(14)
			return netip.PrefixFrom(numberOf(base.Addr()).add(n).addr(v6), length).Masked()
		}
		var there []netip.Prefix
		for range 1 + random.IntN(40) {
			c := inside(low + random.IntN(bits-low+1))
			there = append(there, c)
			s.write(model.BlockKey{CIDR: c}.Path(), []byte("{}")) // invalid, and so never used
		}
		for i := range 3 {
			r := Request{Host: fmt.Sprint(i), Handle: fmt.Sprint("h", i), IPv4: !v6, IPv6: v6, Now: noon}
			if i == 2 {
				r.Addrs = []netip.Addr{inside(bits).Addr()}
			}
			choice, err := s.assign(r)
			if err != nil {
				continue
			}
			if made := s.keys[model.BlockKey{CIDR: choice.Addrs[0].Block}.Path()]; made.created != s.revision {
				continue
			}
			for _, c := range there {
				if c.Overlaps(choice.Addrs[0].Block) {
					t.Fatalf("pool %s in /%d: block %s made over %s", base, p.BlockSize, choice.Addrs[0].Block, c)
				}
			}
			there = append(there, choice.Addrs[0].Block)
		}
	}
}

// A region's ranges list every block that begins in it.
func FuzzRegion(f *testing.F) {
	for _, s := range []string{"10.0.0.7", "255.255.255.255", "fd00::", "fd00::1", "fd00:1:2:3:4:5:6:7", "fd00:1:2:3:4:5:0:0", "::", "1::2:0:0:0", "fd00::2ff", "fd00::1:0:ab", "fd00:10:0:2::40", "fd00:0:0:1:0:0:0:40", "0:1::40", "fd00:0:1::40"} {
		f.Add(addr(s).AsSlice(), uint8(128))
	}
	f.Fuzz(func(t *testing.T, raw []byte, length uint8) {
		a, ok := netip.AddrFromSlice(raw)
		if !ok || a.Is4In6() {
			return
		}
		bits := regionBits(a.Is6()) + int(length)%9
		block := netip.PrefixFrom(a, bits).Masked()
		path := model.BlockKey{CIDR: block}.Path()
		found := false
		for _, w := range regionRanges(regionOf(a)) {
			found = found || strings.HasPrefix(path, w.Prefix)
		}
		if !found {
			t.Errorf("%s is in none of %v", path, regionRanges(regionOf(a)))
		}
		for l := range a.BitLen() + 1 {
			p := netip.PrefixFrom(a, l).Masked()
			list := newIndex(model.NewView()).poolRanges(&pool{Pool: model.Pool{CIDR: p}})[0]
			if l <= block.Bits() && !p.Addr().Is4In6() && !strings.HasPrefix(path, list.Prefix) {
				t.Errorf("%s is not in %v of pool %s", path, list, p)
			}
		}
	})
}

// A walk reaches every block of the pool once.
func TestWalk(t *testing.T) {
	for _, p := range []model.Pool{
		{CIDR: cidr("10.0.0.0/20"), BlockSize: 26},
		{CIDR: cidr("10.0.0.0/28"), BlockSize: 30},
		{CIDR: cidr("10.0.0.0/16"), BlockSize: 20},
		{CIDR: cidr("fd00::/116"), BlockSize: 122},
		{CIDR: cidr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124"), BlockSize: 128},
		{CIDR: cidr("255.255.255.255/32"), BlockSize: 32},
	} {
		w := walkOf("host", &pool{Pool: p})
		seen := map[netip.Prefix]bool{}
		for i := range w.units(1 << 12) {
			w.within(i, func(c netip.Prefix) bool {
				if seen[c] || !p.CIDR.Contains(c.Addr()) || c != c.Masked() || w.prefix(w.index(c.Addr()), p.BlockSize) != c {
					t.Errorf("%s: comes to %s", p.CIDR, c)
				}
				seen[c] = true
				return true
			})
		}
		if want := 1 << (p.BlockSize - p.CIDR.Bits()); len(seen) != want {
			t.Errorf("%s: %d blocks, want %d", p.CIDR, len(seen), want)
		}
	}
	// Hosts begin at different places.
	starts := map[number]bool{}
	for i := range 1000 {
		w := walkOf(fmt.Sprint("node-", i), &pool{Pool: model.Pool{CIDR: cidr("10.0.0.0/8"), BlockSize: 26}})
		starts[w.start] = true
	}
	if len(starts) < 980 {
		t.Errorf("1000 hosts begin at %d places of 65536", len(starts))
	}
}
