// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/model"
)

// TestAbandon ends the affinities of a host that is gone.
func TestAbandon(t *testing.T) {
	for name, tt := range map[string]struct {
		addrs    int
		also     func(*etcd)
		there    bool
		affinity string
	}{
		"empty":         {},
		"borrowed from": {addrs: 2, there: true},
		"a person's":    {also: func(s *etcd) { s.edit("10.0.0.0/30", func(b *model.Block) { b.StrictAffinity = true }) }, there: true},
		"made by hand":  {also: func(s *etcd) { s.config(true, false) }, there: true},
		"another's since": {addrs: 1, also: func(s *etcd) {
			s.edit("10.0.0.0/30", func(b *model.Block) { b.Affinity = "b" })
			s.put(model.AffinityKey{Host: "b", CIDR: cidr("10.0.0.0/30")}, model.Affinity{})
		}, there: true, affinity: "b"},
		"deleted by another": {also: func(s *etcd) { s.remove(model.BlockKey{CIDR: cidr("10.0.0.0/30")}.Path()) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEtcd(t)
			s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30})
			s.fill("10.0.0.0/30", "a", tt.addrs)
			if tt.also != nil {
				tt.also(s)
			}
			p, err := s.plan(FirstReadGiveBack(cidr("10.0.0.0/30")), func(p *Plan) error { return p.Abandon("a", cidr("10.0.0.0/30")) })
			if err != nil {
				t.Fatal(err)
			}
			if err := s.commit(p.Change()); err != nil {
				t.Fatal(err)
			}
			b := s.block("10.0.0.0/30")
			if (b != nil) != tt.there || b != nil && b.Affinity != tt.affinity {
				t.Errorf("block: %+v", b)
			}
			if left := s.below(model.AffinityPrefix("a"), ""); len(left) > 0 {
				t.Errorf("affinities are left: %v", left)
			}
			for _, v := range invariants.Check(s.dump()) {
				t.Error(v)
			}
		})
	}
}

// TestGiveBackSpare gives back an empty block of a host that keeps another.
func TestGiveBackSpare(t *testing.T) {
	const c, other = "10.0.0.0/30", "10.0.0.4/30"
	for name, tt := range map[string]struct {
		also func(*etcd)
		done bool
	}{
		"spare": {done: true},
		"the only one": {also: func(s *etcd) {
			s.remove(model.BlockKey{CIDR: cidr(other)}.Path())
			s.remove(model.AffinityKey{Host: "a", CIDR: cidr(other)}.Path())
		}},
		"in use":             {also: func(s *etcd) { s.fill(c, "a", 1) }},
		"empty again since":  {also: func(s *etcd) { s.edit(c, func(b *model.Block) { b.EmptySince = noon.Add(time.Second) }) }},
		"another host's now": {also: func(s *etcd) { s.fill(c, "b", 0) }},
		"a person's":         {also: func(s *etcd) { s.edit(c, func(b *model.Block) { b.StrictAffinity = true }) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEtcd(t)
			s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30})
			s.fill(c, "a", 0)
			s.fill(other, "a", 4)
			if tt.also != nil {
				tt.also(s)
			}
			var done bool
			p, err := s.plan(FirstReadGiveBackSpare("a", cidr(c)), func(p *Plan) (err error) {
				done, err = p.GiveBackSpare("a", cidr(c), noon)
				return err
			})
			if err != nil || done != tt.done {
				t.Fatalf("done is %v, %v", done, err)
			}
			if !done {
				return
			}
			change := p.Change()
			// The block that the host would keep goes first.
			s.put(model.AffinityKey{Host: "a", CIDR: netip.MustParsePrefix(other)}, model.Affinity{})
			if err := s.commit(change); err == nil {
				t.Error("it is given back although what the host keeps has changed")
			}
		})
	}
}
