// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/json"
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

// otherForm has a block in a form that other programs write.
func (s *etcd) otherForm(c netip.Prefix) {
	k := model.BlockKey{CIDR: c}
	var fields map[string]any
	if err := json.Unmarshal(s.keys[k.Path()].data, &fields); err != nil {
		s.t.Fatal(err)
	}
	s.putText(k.Path(), string(must(json.Marshal(fields))))
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
	halves := func(s *etcd, c netip.Prefix) {
		half := netip.PrefixFrom(c.Addr(), c.Bits()+1)
		s.delete(model.BlockKey{CIDR: half})
		s.delete(model.BlockKey{CIDR: nextPrefix(half)})
	}
	both := func(first, second func(*etcd)) func(*etcd) { return func(s *etcd) { first(s); second(s) } }
	fourth := []model.Pool{v4, of("10.2.0.0/19", 28), of("10.3.0.0/20", 32), of("10.4.0.0/16", 26)}
	likewise := []model.Pool{of("fd01::/112", 122), of("fd01::1:0/112", 122)}
	beside := func(n int) func(*etcd) {
		return func(s *etcd) {
			s.pool(model.Pool{CIDR: likewise[1].CIDR, BlockSize: 122, NodeSelector: `name == "b"`})
			for i := range n {
				s.room(nth("b", likewise[1], i))
			}
			borrow(likewise[0], 700)(s)
		}
	}
	var nine []model.Pool
	for i := range 9 {
		nine = append(nine, of(fmt.Sprintf("10.%d.0.0/20", i), 26))
	}
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

		{"borrow, not of the first sixteen", []model.Pool{v4}, borrow(v4, 16), 2, "of other"},
		{"borrow the last of 65,536 addresses", []model.Pool{v4}, borrow(v4, -1), 2, "of other"},
		{"borrow, other pools beside it have room", []model.Pool{of("10.0.0.0/17", 26), of("10.0.128.0/17", 26)}, func(s *etcd) {
			s.pool(model.Pool{CIDR: cidr("10.0.128.0/17"), BlockSize: 26, Disabled: true})
			for i := range 32 {
				s.room(nth(host, of("10.0.128.0/17", 26), i))
			}
			borrow(of("10.0.0.0/17", 26), 300)(s)
		}, 2, "of other"},
		{"borrow, other pools of the /24 have room", []model.Pool{of("10.0.0.0/25", 31), of("10.0.0.128/25", 31)}, func(s *etcd) {
			s.pool(model.Pool{CIDR: cidr("10.0.0.128/25"), BlockSize: 31, Disabled: true})
			for i := range 64 {
				s.room(nth(host, of("10.0.0.128/25", 31), i))
			}
			full(s, of("10.0.0.0/25", 31))
			s.room(cidr("10.0.0.98/31"))
		}, 2, "of other"},
		{"take over, not of the first sixteen", []model.Pool{v4}, func(s *etcd) { borrow(v4, 16)(s); s.empty(nth(host, v4, 300), time.Hour) }, 2, "taken over from other"},
		{"take over where affinity is strict", []model.Pool{v4}, func(s *etcd) {
			for i := range 1 << 10 {
				s.room(nth(host, v4, i))
			}
			s.empty(nth(host, v4, 300), time.Hour)
			s.config(true, true)
		}, 2, "taken over from other"},
		{"borrow where a block became empty a moment ago", []model.Pool{v4}, func(s *etcd) { full(s, v4); s.empty(nth(host, v4, 0), 0) }, 2, "of other"},
		{"last block among smaller ones", []model.Pool{v4}, func(s *etcd) { full(s, of("10.0.0.0/16", 27)); halves(s, nth(host, v4, -2)) }, 2, "new"},
		{"borrow of a smaller block", []model.Pool{v4}, func(s *etcd) { borrow(of("10.0.0.0/16", 27), 600)(s) }, 2, "of other"},
		{"last of 65,536 blocks", []model.Pool{of("10.0.0.0/10", 26)}, last(of("10.0.0.0/10", 26)), 2, "new"},
		{"fifth pool", nine, func(s *etcd) { full(s, nine[:4]...) }, 2, "new"},
		{"last block of the eighth pool", nine, func(s *etcd) { full(s, nine[:7]...); last(nine[7])(s) }, 2, "new"},
		{"borrow where eight pools are full", nine[:8], func(s *etcd) { full(s, nine[:8]...); s.room(nth(host, nine[4], 60)) }, 2, "of other"},
		{"ninth pool", nine, func(s *etcd) { full(s, nine[:8]...) }, 2, "new"},

		{"last block of the ninth pool", nine, func(s *etcd) { full(s, nine[:8]...); last(nine[8])(s) }, 3, "new"},
		{"last block among larger ones", []model.Pool{v4}, func(s *etcd) { s.stuff(of("10.0.0.0/16", 24), netip.PrefixFrom(nth(host, v4, -2).Addr(), 24).Masked()) }, 3, "new"},
		{"last block among larger ones of half a /16", []model.Pool{of("10.0.0.0/17", 26)}, func(s *etcd) {
			s.stuff(of("10.0.0.0/17", 24), netip.PrefixFrom(nth(host, of("10.0.0.0/17", 26), -2).Addr(), 24).Masked())
		}, 3, "new"},
		{"its host left the cluster a moment ago, affinity is strict", []model.Pool{v4}, func(s *etcd) {
			full(s, v4)
			s.empty(nth(host, v4, 0), 0)
			s.config(true, true)
		}, 3, "taken over from other"},
		{"borrow among blocks in a form of others", []model.Pool{v4}, func(s *etcd) {
			borrow(v4, 200)(s)
			for i := range 100 {
				s.otherForm(nth(host, v4, i))
			}
		}, 3, "of other"},
		{"borrow beside a pool whose addresses begin likewise and that has room", likewise[:1], beside(100), 3, "of other"},
		{"borrow beside one that has very much", likewise[:1], beside(300), 4, "of other"},
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

// TestRoundsForNothing has it found in two rounds that there is no address, also where others have some that they keep.
func TestRoundsForNothing(t *testing.T) {
	p := model.Pool{CIDR: cidr("10.0.0.0/16"), BlockSize: 26}
	for _, strict := range []bool{false, true} {
		s := world(t, p)
		s.stuff(p, netip.Prefix{})
		want := "1024 of its 1024 blocks are full"
		if s.config(strict, true); strict {
			for i := range 1 << 10 {
				s.room(nth("x", p, i))
			}
			want = "1024 of its 1024 blocks are in use, and what is free there may not be borrowed: affinity is strict"
		}
		s.rounds = 0
		_, _, err := s.planAssign(Request{Host: "a", Handle: "h", IPv4: true, Now: noon})
		if none, ok := errors.AsType[*ExhaustedError](err); !ok || !strings.HasSuffix(none.Pools[0].Reason, want) || s.rounds != 2 {
			t.Errorf("strict %t: after %d rounds: %v", strict, s.rounds, err)
		}
	}
}

// TestFindsWhatThereIs fills a pool with blocks of all kinds: an address is found if there is one that the host may have,
// and where none is found the reason is right.
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
			default:
				s.otherForm(c)
				continue
			}
			if random.IntN(3) == 0 && s.block(c.String()) != nil {
				s.otherForm(c)
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

// TestFullAsOf takes a block for full only if it hasn't changed since those were read that have room.
func TestFullAsOf(t *testing.T) {
	s := world(t)
	s.fill("10.0.0.4/30", "b", 4)
	c := cidr("10.0.0.4/30")
	names := Want{Prefix: model.BlockPrefix(false), KeysOnly: true}
	for before, want := range []bool{true, false} {
		v := NewView()
		v.Add(Want{Prefix: names.Prefix, Before: model.FullBlock, Limit: 1}, s.revision-int64(before), nil)
		v.Add(names, s.revision, s.read(names))
		if got := v.beyond(c, model.FullBlock); got != want {
			t.Errorf("%d revisions later: full %t", before, got)
		}
	}
}

// TestFreedWhileReading has an address freed between the transactions of one round: the one that reads blocks with room sees
// it, and those that read names are earlier.
func TestFreedWhileReading(t *testing.T) {
	p := model.Pool{CIDR: cidr("10.0.0.0/16"), BlockSize: 26}
	s := world(t, p)
	s.stuff(p, netip.Prefix{})
	freed := nth("a", p, 300)
	r := Request{Host: "a", Handle: "h", IPv4: true, Now: noon}
	v := NewView()
	s.show(v, FirstRead(r))
	_, err := NewPlan(v).Assign(r)
	need, ok := errors.AsType[*NeedError](err)
	if !ok {
		t.Fatal(err)
	}
	revision := s.revision
	read := make([][]model.Entry, len(need.Wants))
	for _, late := range []bool{false, true} {
		for i, w := range need.Wants {
			if late == (w.Before != "") {
				read[i] = s.read(w)
			}
		}
		s.room(freed)
	}
	for i, w := range need.Wants {
		v.Add(w, revision, read[i])
	}
	choice, err := NewPlan(v).Assign(r)
	if err != nil || len(choice.Addrs) != 1 || choice.Addrs[0].Block != freed {
		t.Errorf("got %v, %v, want an address of %s", choice, err, freed)
	}
}

// TestAheadOfManyPools bounds what is asked for should all pools be full.
func TestAheadOfManyPools(t *testing.T) {
	ahead := func(n int) int {
		var pools []model.Pool
		for i := range n {
			pools = append(pools, model.Pool{CIDR: cidr(fmt.Sprintf("10.%d.0.0/20", i)), BlockSize: 26})
		}
		s, v := world(t, pools...), NewView()
		r := Request{Host: "a", Handle: "h", IPv4: true, Now: noon}
		s.show(v, FirstRead(r))
		_, err := NewPlan(v).Assign(r)
		need, ok := errors.AsType[*NeedError](err)
		if !ok {
			t.Fatal(err)
		}
		return len(need.Wants)
	}
	if some, many := ahead(2*maxAhead), ahead(250); some != many {
		t.Errorf("%d ranges with %d pools, %d with 250", some, 2*maxAhead, many)
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
	for i, want := range []int{2, 2, 2} {
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

// TestRoundsBesideOthers finds the last address of an IPv6 pool beside another one that has room and isn't for the host.
func TestRoundsBesideOthers(t *testing.T) {
	for full, other := range map[string]string{"fd00:10:0:1::/112": "fd00:10:0:2::/64", "fd01::/112": "fd01:1::/112"} {
		p, q := model.Pool{CIDR: cidr(full), BlockSize: 122}, model.Pool{CIDR: cidr(other), BlockSize: 122, NodeSelector: `name == "b"`}
		s := world(t, p, q)
		s.stuff(p, netip.Prefix{})
		last := nth("a", p, 700)
		s.room(last)
		for i := range 20 {
			s.fill(nth("b", q, i).String(), "b", 1)
		}
		s.rounds = 0
		choice, _, err := s.planAssign(Request{Host: "a", Handle: "h", IPv6: true, Now: noon})
		if err != nil || choice.Addrs[0].Block != last || s.rounds != 2 {
			t.Errorf("%s beside %s: %v after %d rounds, %v", full, other, choice, s.rounds, err)
		}
	}
}

// TestIfTaken has other calls of a host take what the host's known block has left, while one waits for them: what that reads
// then is enough.
func TestIfTaken(t *testing.T) {
	p := model.Pool{CIDR: cidr("10.0.0.0/20"), BlockSize: 26}
	full := func(s *etcd) { s.stuff(p, netip.Prefix{}) }
	for _, tt := range []struct {
		name   string
		before func(*etcd)
		left   int // addresses of the known block
		want   string
	}{
		{"a new block", func(*etcd) {}, 3, "new"},
		{"a new block, of many left", func(*etcd) {}, 60, "new"},
		{"another of its own", func(s *etcd) { s.fill("10.0.8.0/26", "a", 63) }, 3, "of a"},
		{"another of its own, which is full", func(s *etcd) { s.fill("10.0.8.0/26", "a", 64) }, 3, "new"},
		{"another of its own, and no new ones", func(s *etcd) { s.config(true, false); s.fill("10.0.8.0/26", "a", 63) }, 3, "of a"},
		{"none of its own in a full pool", func(s *etcd) { full(s); s.fill("10.0.8.0/26", "a", 64); s.room(nth("a", p, 40)) }, 3, "of other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := world(t, p)
			tt.before(s)
			known := nth("a", p, 0)
			s.fill(known.String(), "a", 64-tt.left)
			r := Request{Host: "a", Handle: "h", IPv4: true, Now: noon}
			first := append(FirstRead(r), Want{Key: model.BlockKey{CIDR: known}})
			v := NewView()
			s.show(v, first)
			if choice, err := NewPlan(v).Assign(r); err != nil || choice.Addrs[0].Block != known {
				t.Fatalf("at first: %v, %v", choice, err)
			}
			before := s.revision
			for i := range tt.left {
				s.edit(known.String(), func(b *model.Block) { take(b, b.Unallocated[0], model.Attributes{HandleID: fmt.Sprint("o", i)}) })
			}
			wants := append(first, NewPlan(v).IfTaken(r, s.revision-before)...)
			v = NewView()
			s.show(v, wants)
			plan := NewPlan(v)
			choice, err := plan.Assign(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.describe(choice, plan)[0]; !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
