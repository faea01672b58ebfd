// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// nth is the block that the host's walk of the pool comes to after so many; before its end where i is negative.
func nth(host string, p model.Pool, i int) netip.Prefix {
	w := walkOf(host, &pool{Pool: p})
	n := w.start.shl(w.innerBits).add(number{lo: uint64(i)}).low(w.unitBits + w.innerBits)
	return w.prefix(n, p.BlockSize)
}

// some takes so many of a hundred blocks of the pool.
func (s *etcd) some(p model.Pool, percent int) {
	random := rand.New(rand.NewPCG(5, uint64(percent)))
	s.revision++
	for i := range 1 << (p.BlockSize - p.CIDR.Bits()) {
		if random.IntN(100) < percent {
			s.write(model.BlockKey{CIDR: nth("x", p, i)}.Path(), []byte("{}"))
		}
	}
}

// empty leaves nothing in a block, for so long.
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

// TestRounds has addresses found in two rounds of reading, and so in three round trips, however full the
// pools are; and what takes one more.
func TestRounds(t *testing.T) {
	const host = "node-7"
	of := func(c string, size int) model.Pool { return model.Pool{CIDR: cidr(c), BlockSize: size} }
	v4, v6, large := of("10.0.0.0/16", 26), of("fd80:24e2:f998:72d6::/112", 122), of("10.0.0.0/14", 20)
	some := func(percent int, p model.Pool) func(*etcd) { return func(s *etcd) { s.some(p, percent) } }
	last := func(p model.Pool) func(*etcd) { return func(s *etcd) { s.stuff(p, nth(host, p, -2)) } }
	full := func(s *etcd, pools ...model.Pool) {
		for _, p := range pools {
			s.stuff(p, netip.Prefix{})
		}
	}
	borrow := func(p model.Pool, i int) func(*etcd) {
		return func(s *etcd) { full(s, p); s.room(nth(host, p, i)) }
	}
	own := func(s *etcd, n int) {
		for i := range n {
			s.fill(nth(host, v4, i).String(), host, 64)
		}
	}
	both := func(first, second func(*etcd)) func(*etcd) { return func(s *etcd) { first(s); second(s) } }
	fourth := []model.Pool{v4, of("10.2.0.0/19", 28), of("10.3.0.0/20", 32), of("10.4.0.0/16", 26)}
	for _, tt := range []struct {
		name   string
		pools  []model.Pool
		setup  func(*etcd)
		rounds int
		from   string // where all addresses come from
	}{
		{"half full", []model.Pool{v4}, some(50, v4), 2, "new"},
		{"90 % full", []model.Pool{v4}, some(90, v4), 2, "new"},
		{"99 % full", []model.Pool{v4}, some(99, v4), 2, "new"},
		{"last block", []model.Pool{v4}, last(v4), 2, "new"},
		{"last of 16,384 blocks", []model.Pool{of("10.0.0.0/12", 26)}, last(of("10.0.0.0/12", 26)), 2, "new"},
		{"last block of the window", []model.Pool{of("10.0.0.0/22", 26)}, last(of("10.0.0.0/22", 26)), 2, "new"},
		{"/22, 60 % full", []model.Pool{of("10.0.0.0/12", 22)}, some(60, of("10.0.0.0/12", 22)), 2, "new"},
		{"/22, last block", []model.Pool{of("10.0.0.0/14", 22)}, last(of("10.0.0.0/14", 22)), 2, "new"},
		{"/20, 60 % full", []model.Pool{of("10.0.0.0/12", 20)}, some(60, of("10.0.0.0/12", 20)), 2, "new"},
		{"/20, last block", []model.Pool{large}, last(large), 2, "new"},
		{"/24, last block", []model.Pool{of("10.0.0.0/16", 24)}, last(of("10.0.0.0/16", 24)), 2, "new"},
		{"/32, half full", []model.Pool{of("10.0.0.0/20", 32)}, some(50, of("10.0.0.0/20", 32)), 2, "new"},
		{"/32, last block", []model.Pool{of("10.0.0.0/20", 32)}, last(of("10.0.0.0/20", 32)), 2, "new"},
		{"/116, 60 % full", []model.Pool{of("fd80:1:2:3::/108", 116)}, some(60, of("fd80:1:2:3::/108", 116)), 2, "new"},
		{"dual stack, last blocks", []model.Pool{v4, v6}, both(last(v4), last(v6)), 2, "new"},
		{"borrow", []model.Pool{v4}, borrow(v4, 15), 2, "of other"},
		{"borrow in a small pool", []model.Pool{of("10.0.0.0/23", 26)}, borrow(of("10.0.0.0/23", 26), 7), 2, "of other"},
		{"borrow of a /20", []model.Pool{large}, borrow(large, 0), 2, "of other"},
		{"borrow, dual stack", []model.Pool{v4, v6}, both(borrow(v4, 9), borrow(v6, 7)), 2, "of other"},
		{"borrow, full blocks of its own", []model.Pool{v4}, func(s *etcd) { borrow(v4, 50)(s); own(s, 40) }, 2, "of other"},
		{"take over", []model.Pool{v4}, func(s *etcd) { borrow(v4, 0)(s); s.empty(nth(host, v4, 9), time.Hour) }, 2, "taken over from other"},
		{"another pool where it looks first", []model.Pool{v4}, func(s *etcd) {
			s.pool(model.Pool{CIDR: netip.PrefixFrom(nth(host, v4, 0).Addr(), 17).Masked(), Disabled: true})
		}, 2, "new"},
		{"next pool", []model.Pool{v4, of("10.9.0.0/16", 26)}, func(s *etcd) { full(s, v4) }, 2, "new"},
		{"last block of the fourth pool", fourth, func(s *etcd) { full(s, fourth[:3]...); last(fourth[3])(s) }, 2, "new"},
		{"borrow, from the second pool", []model.Pool{v4, of("10.9.0.0/16", 26)}, func(s *etcd) { full(s, v4); borrow(of("10.9.0.0/16", 26), 0)(s) }, 2, "of other"},
		{"borrow where four pools are full", fourth, func(s *etcd) { full(s, fourth...); s.room(nth(host, v4, 3)) }, 2, "of other"},
		{"full blocks of its own", []model.Pool{v4}, func(s *etcd) { own(s, 40) }, 2, "new"},
		{"no blocks but its own", []model.Pool{v4}, func(s *etcd) {
			own(s, 40)
			s.fill(nth(host, v4, 40).String(), host, 63)
			s.config(true, false)
		}, 2, "of " + host},
		{"full blocks of its own, last block", []model.Pool{v4}, func(s *etcd) { last(v4)(s); own(s, 40) }, 2, "new"},

		{"borrow, not of the first sixteen", []model.Pool{v4}, borrow(v4, 16), 3, "of other"},
		{"its host left the cluster a moment ago", []model.Pool{v4}, func(s *etcd) { full(s, v4); s.empty(nth(host, v4, 0), 0) }, 3, "taken over from other"},
		{"last block among those of another size", []model.Pool{v4}, func(s *etcd) {
			full(s, of("10.0.0.0/16", 27))
			c := nth(host, v4, -2)
			s.remove(model.BlockKey{CIDR: netip.PrefixFrom(c.Addr(), 27)}.Path())
			s.remove(model.BlockKey{CIDR: nextPrefix(netip.PrefixFrom(c.Addr(), 27))}.Path())
		}, 3, "new"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := world(t, tt.pools...)
			tt.setup(s)
			hosts := []string{host}
			if strings.HasSuffix(tt.name, "% full") {
				for i := range 100 {
					hosts = append(hosts, fmt.Sprint("node-", i))
				}
			}
			for _, host := range hosts {
				s.rounds = 0
				r := Request{Host: host, Handle: "h", Now: noon, IPv4: !isV6(tt.pools[0].CIDR), IPv6: isV6(tt.pools[len(tt.pools)-1].CIDR)}
				choice, p, err := s.planAssign(r)
				if err != nil {
					t.Fatal(err)
				}
				if s.rounds > tt.rounds || len(hosts) == 1 && s.rounds != tt.rounds {
					t.Errorf("%s: %d rounds of reading, want %d", host, s.rounds, tt.rounds)
				}
				for _, got := range s.describe(choice, p) {
					if !strings.HasSuffix(got, " "+tt.from) {
						t.Errorf("%s: got %s, want %s", host, got, tt.from)
					}
				}
			}
		})
	}
}

// TestBorrowsAgain has a host find the block that it borrowed from last, which its caller reads first.
func TestBorrowsAgain(t *testing.T) {
	p := model.Pool{CIDR: cidr("10.0.0.0/16"), BlockSize: 26}
	s := world(t, p)
	s.stuff(p, netip.Prefix{})
	for _, i := range []int{300, 500} {
		b := newBlock(nth("a", p, i), "other")
		take(&b, 0, model.Attributes{HandleID: "x"})
		s.put(model.BlockKey{CIDR: b.CIDR}, b)
	}
	var last []Want
	for i, want := range []int{5, 2, 2} {
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
		if s.rounds != want {
			t.Errorf("ADD %d: %d rounds of reading, want %d", i, s.rounds, want)
		}
		last = []Want{{Key: model.BlockKey{CIDR: choice.Addrs[0].Block}}}
	}
}

// TestLastBlockMeanwhile has others write between what a round reads at once, and that which it reads on condition, and
// before the commit. What is found is still there then, or the commit conflicts.
func TestLastBlockMeanwhile(t *testing.T) {
	p := model.Pool{CIDR: cidr("10.0.0.0/16"), BlockSize: 26}
	taken, last, lent := nth("a", p, 12), nth("a", p, -2), nth("a", p, 5)
	gone := func(c netip.Prefix) func(*etcd) { return func(s *etcd) { s.delete(model.BlockKey{CIDR: c}) } }
	made := func(c netip.Prefix) func(*etcd) { return func(s *etcd) { s.fill(c.String(), "b", 64) } }
	resized := func(s *etcd) {
		s.pool(model.Pool{CIDR: p.CIDR, BlockSize: 27})
		s.fill(netip.PrefixFrom(last.Addr(), 27).String(), "b", 1)
	}
	none := func(*etcd) {}
	for _, tt := range []struct {
		name          string
		within, after func(*etcd)
		want          netip.Prefix
		conflict      bool
	}{
		{"nothing", none, none, last, false},
		{"a block goes", gone(taken), none, last, false},
		{"a block goes later", none, gone(taken), last, false},
		{"the last block is made", made(last), none, lent, false},
		{"the last block is made later", none, made(last), last, true},
		{"it is made, and the other becomes full later", made(last), made(lent), lent, true},
		{"the pool has another size", resized, none, lent, true},
		{"the pool has another size later", none, resized, last, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := world(t, p)
			s.stuff(p, last)
			s.room(lent)
			r := Request{Host: "a", Handle: "h", IPv4: true, Now: noon}
			v, wants, within := NewView(), FirstRead(r), tt.within
			for {
				at := slices.IndexFunc(wants, func(w Want) bool { return w.If != nil })
				if at > 0 {
					s.show(v, wants[:at])
					within(s)
					within, wants = none, wants[at:]
				}
				s.show(v, wants)
				plan := NewPlan(v)
				choice, err := plan.Assign(r)
				if need, ok := errors.AsType[*NeedError](err); ok {
					wants = need.Wants
					continue
				}
				if err != nil || choice.Addrs[0].Block != tt.want {
					t.Fatalf("got %v, %v, want an address of %s", choice, err, tt.want)
				}
				tt.after(s)
				if err := s.commit(plan.Change()); errors.Is(err, errConflict) != tt.conflict {
					t.Errorf("conflict: %v", err)
				}
				return
			}
		})
	}
}
