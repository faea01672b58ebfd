// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/model"
)

// crowd makes blocks of other hosts, /26 and /122, each with some addresses assigned.
func (s *etcd) crowd(n int) {
	s.revision++
	for i := range n {
		host := fmt.Sprint("other-", i/2)
		for _, c := range []netip.Prefix{
			netip.PrefixFrom(number{lo: 10<<24 | uint64(i*7919%(1<<18))<<6}.addr(false), 26),
			netip.PrefixFrom(number{0xfd00<<48 | uint64(i), uint64(i) * 7919 << 6}.addr(true), 122),
		} {
			b := newBlock(c, host)
			for o := range 8 {
				take(&b, o, model.Attributes{HandleID: fmt.Sprint("net.c", i*8+o, ".eth0"), Secondary: map[string]string{"pod": "default/web", "node": host}})
			}
			s.write(model.BlockKey{CIDR: c}.Path(), must(model.FormatValue(b)))
			s.write(model.AffinityKey{Host: host, CIDR: c}.Path(), []byte("{}"))
		}
	}
}

// However large the cluster, an ADD takes two rounds of reading and the commit, and the amount it reads does not grow.
func TestCostDoesNotGrow(t *testing.T) {
	read := map[string]int{}
	for _, blocks := range []int{10, 1000, 10000} {
		s := newEtcd(t)
		s.pool(model.Pool{CIDR: cidr("10.0.0.0/8")})
		s.pool(model.Pool{CIDR: cidr("fd00::/16")})
		s.crowd(blocks)
		for i := range 70 {
			s.rounds, s.bytesRead = 0, 0
			r := Request{Host: "host", Handle: fmt.Sprint("h", i), IPv4: true, IPv6: true, Now: noon}
			if _, err := s.assign(r); err != nil {
				t.Fatal(err)
			}
			if s.rounds != 2 {
				t.Errorf("%d blocks of others: ADD %d reads %d times, want 2", blocks, i, s.rounds)
			}
			what := fmt.Sprint("ADD ", i)
			// A region may hold up to three more keys of IPv4 and of IPv6.
			if before, ok := read[what]; ok && s.bytesRead > before+6*80 {
				t.Errorf("%d blocks of others: %s reads %d bytes, with 10 blocks %d", blocks, what, s.bytesRead, before)
			} else if !ok {
				read[what] = s.bytesRead
			}
		}
	}
}

// viewOf returns what the rounds of reading for the request have read.
func (s *etcd) viewOf(r Request) *model.View {
	_, p, err := s.planAssign(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return p.view
}

// ownBlocks makes a host with that many blocks, all full except the first few.
func ownBlocks(t testing.TB, blocks, free int) (*etcd, Request) {
	s := newEtcd(t)
	s.pool(model.Pool{CIDR: cidr("10.0.0.0/8")})
	for i := range blocks {
		s.revision++
		b := newBlock(netip.PrefixFrom(number{lo: 10<<24 | uint64(i)<<6}.addr(false), 26), "host")
		for o := range 64 {
			if i >= free || o < 20 {
				id := fmt.Sprint("net.c", i*64+o, ".eth0")
				take(&b, o, model.Attributes{HandleID: id, Secondary: map[string]string{"pod": fmt.Sprint("default/web-", o), "node": "host"}})
				s.write(model.HandleKey{ID: id}.Path(), must(model.FormatValue(model.Handle{ID: id, Blocks: map[netip.Prefix]int{b.CIDR: 1}})))
			}
		}
		s.write(model.BlockKey{CIDR: b.CIDR}.Path(), must(model.FormatValue(b)))
		s.write(model.AffinityKey{Host: "host", CIDR: b.CIDR}.Path(), []byte("{}"))
	}
	return s, Request{Host: "host", Handle: "net.new.eth0", IPv4: true, Now: noon}
}

func benchmarkAssign(b *testing.B, blocks, free int) {
	s, r := ownBlocks(b, blocks, free)
	v := s.viewOf(r)
	b.ReportAllocs()
	for b.Loop() {
		p := NewPlan(v)
		if _, err := p.Assign(r); err != nil {
			b.Fatal(err)
		}
		if p.Change().Empty() {
			b.Fatal("nothing is written")
		}
	}
}

// The worst case: only the block claimed first has room.
func BenchmarkAssignOwnBlocks1000(b *testing.B) { benchmarkAssign(b, 1000, 1) }

// All blocks have room.
func BenchmarkAssignOwnBlocks1000Free(b *testing.B) { benchmarkAssign(b, 1000, 1000) }

// All blocks are full: a new one is made.
func BenchmarkAssignOwnBlocks1000Full(b *testing.B) { benchmarkAssign(b, 1000, 0) }

// A node as most are.
func BenchmarkAssignOwnBlocks2(b *testing.B) { benchmarkAssign(b, 2, 1) }

// Everything but the round trips: the views are made anew.
func BenchmarkAddWhole(b *testing.B) {
	s, r := ownBlocks(b, 2, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.planAssign(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRelease(b *testing.B) {
	s, r := ownBlocks(b, 2, 1)
	if _, err := s.assign(r); err != nil {
		b.Fatal(err)
	}
	p, err := s.plan(FirstReadRelease(r.Handle), func(p *Plan) error { _, err := p.Release(r.Handle, noon); return err })
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewPlan(p.view).Release(r.Handle, noon); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck1000Blocks(b *testing.B) {
	s, _ := ownBlocks(b, 1000, 1)
	s.mustBeSound()
	dump := s.dump()
	b.ReportAllocs()
	for b.Loop() {
		invariants.Check(dump)
	}
}
