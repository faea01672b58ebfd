// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// nth returns the block that is the i-th of the host's walk of the pool, counted from its end if i is negative.
func nth(host string, p model.Pool, i int) netip.Prefix {
	w := walkOf(host, &pool{Pool: p})
	n := w.start.shl(w.innerBits).add(number{lo: uint64(i)}).low(w.unitBits + w.innerBits)
	return w.prefix(n, p.BlockSize)
}

// some takes this percentage of the pool's blocks.
func (s *etcd) some(p model.Pool, percent int) {
	random := rand.New(rand.NewPCG(5, uint64(percent)))
	s.revision++
	for i := range 1 << (p.BlockSize - p.CIDR.Bits()) {
		if random.IntN(100) < percent {
			s.write(model.BlockKey{CIDR: nth("x", p, i)}.Path(), []byte("{}"))
		}
	}
}

// empty empties a block, and makes it empty since so long ago.
func (s *etcd) empty(c netip.Prefix, since time.Duration) {
	b := newBlock(c, "other")
	b.EmptySince = noon.Add(-since)
	s.put(model.BlockKey{CIDR: c}, b)
}

// room leaves one address in a block.
func (s *etcd) room(c netip.Prefix) {
	b := newBlock(c, "other")
	for len(b.Unallocated) > 1 {
		take(&b, b.Unallocated[0], model.Attributes{HandleID: "x"})
	}
	s.put(model.BlockKey{CIDR: c}, b)
}

// TestRounds: addresses are found in two rounds of reading, and so in three round trips, as long as pools aren't nearly
// full; in a full one it takes a few more.
func TestRounds(t *testing.T) {
	const host = "node-7"
	of := func(c string, size int) model.Pool { return model.Pool{CIDR: cidr(c), BlockSize: size} }
	v4, v6 := of("10.0.0.0/16", 26), of("fd80:24e2:f998:72d6::/112", 122)
	some := func(percent int, p model.Pool) func(*etcd) { return func(s *etcd) { s.some(p, percent) } }
	last := func(p model.Pool) func(*etcd) { return func(s *etcd) { s.stuff(p, nth(host, p, -2)) } }
	full := func(s *etcd) { s.stuff(v4, netip.Prefix{}) }
	own := func(n int) func(*etcd) {
		return func(s *etcd) {
			for i := range n {
				s.fill(nth(host, v4, i).String(), host, 64)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		pools  []model.Pool
		setup  func(*etcd)
		rounds int // at most
		from   string
	}{
		{"half full", []model.Pool{v4}, some(50, v4), 2, "new"},
		{"/22, 60 % full", []model.Pool{of("10.0.0.0/12", 22)}, some(60, of("10.0.0.0/12", 22)), 3, "new"},
		{"/32, half full", []model.Pool{of("10.0.0.0/20", 32)}, some(50, of("10.0.0.0/20", 32)), 2, "new"},
		{"dual stack", []model.Pool{v4, v6}, some(50, v4), 2, "new"},
		{"full blocks of its own", []model.Pool{v4}, own(40), 2, "new"},
		{"another pool where it looks first", []model.Pool{v4}, func(s *etcd) {
			s.pool(model.Pool{CIDR: netip.PrefixFrom(nth(host, v4, 0).Addr(), 17).Masked(), Disabled: true})
		}, 2, "new"},
		{"no blocks but its own", []model.Pool{v4}, func(s *etcd) {
			own(40)(s)
			s.fill(nth(host, v4, 40).String(), host, 63)
			s.config(true, false)
		}, 2, "of " + host},

		{"last block", []model.Pool{v4}, last(v4), 3, "new"},
		{"last of 16,384 blocks", []model.Pool{of("10.0.0.0/12", 26)}, last(of("10.0.0.0/12", 26)), 4, "new"},
		{"last IPv6 block", []model.Pool{v6}, last(v6), 3, "new"},
		{"next pool", []model.Pool{v4, of("10.9.0.0/16", 26)}, full, 4, "new"},
		{"borrow", []model.Pool{v4}, func(s *etcd) { full(s); s.room(nth(host, v4, 15)) }, 4, "of other"},
		{"borrow the last of 65,536 addresses", []model.Pool{v4}, func(s *etcd) { full(s); s.room(nth(host, v4, -1)) }, 13, "of other"},
		{"take over", []model.Pool{v4}, func(s *etcd) { full(s); s.empty(nth(host, v4, 9), time.Hour) }, 4, "taken over from other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := world(t, tt.pools...)
			tt.setup(s)
			s.rounds = 0
			r := Request{Host: host, Handle: "h", Now: noon, IPv4: !isV6(tt.pools[0].CIDR), IPv6: isV6(tt.pools[len(tt.pools)-1].CIDR)}
			choice, p, err := s.planAssign(r)
			if err != nil {
				t.Fatal(err)
			}
			if s.rounds > tt.rounds {
				t.Errorf("%d rounds of reading, want at most %d", s.rounds, tt.rounds)
			}
			for _, got := range s.describe(choice, p) {
				if !strings.HasSuffix(got, " "+tt.from) {
					t.Errorf("got %s, want %s", got, tt.from)
				}
			}
		})
	}
}

// TestFindsWhatThereIs fills a pool with blocks of all kinds: an address is found if there is one that the host may
// have, and otherwise the reason is right.
func TestFindsWhatThereIs(t *testing.T) {
	p := model.Pool{CIDR: cidr("10.0.0.0/20"), BlockSize: 26}
	outcomes := map[string]int{}
	for seed := range 300 {
		random := rand.New(rand.NewPCG(uint64(seed), 3))
		s := world(t, p)
		s.stuff(p, netip.Prefix{})
		strict := random.IntN(3) == 0
		s.config(strict, true)
		s.put(model.HostMetadataKey{Host: "other"}, model.HostMetadata{})
		var some, empty bool // are there addresses for the host, and such blocks to take over
		for range random.IntN(30) {
			c := nth("x", p, random.IntN(64))
			b := s.block(c.String())
			if b == nil || len(b.Unallocated) > 0 {
				continue
			}
			switch random.IntN(12) {
			case 0:
				s.room(c)
				some = some || !strict
			case 1:
				s.room(c)
				s.edit(c.String(), func(b *model.Block) { b.StrictAffinity = true })
			case 2:
				s.empty(c, 0)
				some = some || !strict
			case 3:
				if random.IntN(4) == 0 {
					s.empty(c, time.Hour)
					some, empty = true, true
				}
			case 4:
				s.putText(model.BlockKey{CIDR: c}.Path(), []string{"", "[]", "~"}[random.IntN(3)])
			}
		}
		choice, plan, err := s.planAssign(Request{Host: "a", Handle: "h", IPv4: true, Now: noon})
		var none *ExhaustedError
		switch {
		case some && err != nil, !some && !errors.As(err, &none):
			t.Errorf("%d: got %v, %v; there is something: %t", seed, choice, err, some)
		case err == nil:
			got, _, _ := strings.Cut(strings.SplitN(s.describe(choice, plan)[0], " ", 2)[1], " other")
			if outcomes[got]++; strict && !empty {
				t.Errorf("%d: %s where affinity is strict", seed, got)
			}
		default:
			outcomes["none"]++
		}
	}
	t.Log(outcomes)
	if len(outcomes) < 3 {
		t.Errorf("all came to %v", outcomes)
	}
}

// TestBorrowsAgain: a host finds the block that it last borrowed from, which its caller reads first.
func TestBorrowsAgain(t *testing.T) {
	p := model.Pool{CIDR: cidr("10.0.0.0/16"), BlockSize: 26}
	s := world(t, p)
	s.stuff(p, netip.Prefix{})
	for _, i := range []int{300, 500} {
		b := newBlock(nth("a", p, i), "other")
		take(&b, 0, model.Attributes{HandleID: "x"})
		s.put(model.BlockKey{CIDR: b.CIDR}, b)
	}
	var last []model.Range
	for i, want := range []int{7, 3, 3} {
		s.rounds = 0
		r := Request{Host: "a", Handle: fmt.Sprint("h", i), IPv4: true, Now: noon}
		var choice Choice
		plan, err := s.plan(append(FirstRead(r), last...), func(p *Plan) (err error) { choice, err = p.Assign(r); return err })
		if err != nil {
			t.Fatal(err)
		}
		if err := s.commit(plan.Change()); err != nil {
			t.Fatal(err)
		}
		if s.rounds > want {
			t.Errorf("ADD %d: %d rounds of reading, want at most %d", i, s.rounds, want)
		}
		last = []model.Range{model.KeyRange(model.BlockKey{CIDR: choice.Addrs[0].Block})}
	}
}
