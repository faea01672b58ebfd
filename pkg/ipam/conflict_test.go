// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/model"
)

// A change by others between reading and commit makes the commit fail if, and only if, the decision depends on it.
func TestDependsOn(t *testing.T) {
	r := Request{Host: "a", Handle: "h", IPv4: true, Now: noon.Add(10 * time.Minute)}
	assign := func(r Request) func(*etcd) *Plan {
		return func(s *etcd) *Plan {
			_, p, err := s.planAssign(r)
			if err != nil {
				s.t.Fatal(err)
			}
			return p
		}
	}
	release := func(handle string) func(*etcd) *Plan {
		return func(s *etcd) *Plan {
			p, err := s.plan(FirstReadRelease(handle), func(p *Plan) error { _, err := p.Release(handle, noon); return err })
			if err != nil {
				s.t.Fatal(err)
			}
			return p
		}
	}
	own := func(s *etcd) { s.fill("10.0.0.4/30", "a", 1) }
	full := func(s *etcd) { s.fillAll("b", 4, quarters...) }
	borrow := func(s *etcd) { full(s); s.fill("10.0.0.8/30", "b", 2) }
	left := func(s *etcd) {
		s.config(true, true)
		full(s)
		s.fill("10.0.0.8/30", "gone", 0)
		s.edit("10.0.0.8/30", func(b *model.Block) { b.EmptySince = r.Now })
	}
	pool := model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30}
	resized := model.Pool{CIDR: pool.CIDR, BlockSize: 29}
	again := r
	again.Handle = "x.10.0.0.4"
	cases := []struct {
		name      string
		setup     func(*etcd)
		plan      func(*etcd) *Plan
		meanwhile func(*etcd)
		conflict  bool
	}{
		{"own block, another took of it", own, assign(r), func(s *etcd) { s.fill("10.0.0.4/30", "a", 2) }, true},
		{"own block, another block changed", func(s *etcd) { s.fill("10.0.0.0/30", "a", 1); own(s) }, assign(r), func(s *etcd) { s.fill("10.0.0.0/30", "a", 2) }, false},
		{"own block, the pool was disabled", own, assign(r), func(s *etcd) { p := pool; p.Disabled = true; s.pool(p) }, true},
		{"own block, the settings changed", own, assign(r), func(s *etcd) { s.config(true, true) }, false},
		{"own block, it was taken over", own, assign(r), func(s *etcd) { s.fill("10.0.0.4/30", "b", 1) }, true},
		{"own block, the handle came to be", own, assign(r), func(s *etcd) { s.put(model.HandleKey{ID: "h"}, model.Handle{ID: "h"}) }, true},
		{"new block, another made it", nil, assign(r), func(s *etcd) { s.fill("10.0.0.0/30", "b", 1) }, true},
		{"new block, another made another", nil, assign(r), func(s *etcd) { s.fill("10.0.0.4/30", "b", 1) }, false},
		{"new block, the pool has another size", nil, assign(r), func(s *etcd) { s.pool(resized) }, true},
		{"new block, the pool is gone", nil, assign(r), func(s *etcd) { s.delete(model.PoolKey{CIDR: pool.CIDR}) }, true},
		{"new block, no more are allowed", nil, assign(r), func(s *etcd) { s.config(true, false) }, true},
		{"new block, the node has other labels", nil, assign(r), func(s *etcd) { s.put(model.HostMetadataKey{Host: "a"}, model.HostMetadata{}) }, false},
		{"borrowed, affinity is strict", borrow, assign(r), func(s *etcd) { s.config(true, true) }, true},
		{"borrowed, the block is strict", borrow, assign(r), func(s *etcd) { s.edit("10.0.0.8/30", func(b *model.Block) { b.StrictAffinity = true }) }, true},
		{"taken over, its node uses it", func(s *etcd) { full(s); s.fill("10.0.0.8/30", "b", 0) }, assign(r), func(s *etcd) { s.fill("10.0.0.8/30", "b", 1) }, true},
		{"taken over, its node is back", left, assign(r), func(s *etcd) { s.put(model.HostMetadataKey{Host: "gone"}, model.HostMetadata{}) }, true},
		{"existing, released", own, assign(again), func(s *etcd) {
			if _, err := s.release(again.Handle, noon); err != nil {
				s.t.Fatal(err)
			}
		}, true},
		{"existing, others took of the block", own, assign(again), func(s *etcd) {
			if _, err := s.assign(r); err != nil {
				s.t.Fatal(err)
			}
		}, false},
		{"release, others took of the block", own, release(again.Handle), func(s *etcd) {
			if _, err := s.assign(r); err != nil {
				s.t.Fatal(err)
			}
		}, true},
		{"release, the handle got more", own, release(again.Handle), func(s *etcd) {
			more := again
			more.IPv6 = true
			if _, err := s.assign(more); err != nil {
				s.t.Fatal(err)
			}
		}, true},
		{"release of nothing, the handle came to be", nil, release("h"), func(s *etcd) {
			if _, err := s.assign(r); err != nil {
				s.t.Fatal(err)
			}
		}, true},
		{"release of what is in no block, the block came to be", func(s *etcd) {
			s.put(model.HandleKey{ID: "h"}, model.Handle{ID: "h", Blocks: map[netip.Prefix]int{cidr("10.0.0.4/30"): 1}})
		}, release("h"), own, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := world(t)
			if c.setup != nil {
				c.setup(s)
			}
			p := c.plan(s)
			c.meanwhile(s)
			err := s.commit(p.Change())
			if errors.Is(err, errConflict) != c.conflict {
				t.Errorf("conflict: %v", err)
			}
			if !c.conflict {
				s.mustBeSound()
			}
		})
	}
}

// A key with an unusual spelling can't be compared: its content is left alone.
func TestNotCanonical(t *testing.T) {
	s := world(t)
	s.fill("fd00::4/126", "a", 1)
	e := s.entry(model.BlockKey{CIDR: cidr("fd00::4/126")}.Path(), false)
	e.Path = "/calico/ipam/v2/assignment/ipv6/block/fd00:0::4-126"
	v := model.NewView()
	v.Add(model.PrefixRange(model.BlockPrefix(true)), 1, []model.Entry{e})
	if _, err := NewPlan(v).peek(cidr("fd00::4/126")); !errors.Is(err, errNotCanonical) {
		t.Errorf("got %v", err)
	}
	if found := invariants.Check([]model.Entry{e}); len(found) == 0 || found[0].Invariant != 0 {
		t.Errorf("got %v", found)
	}
}
