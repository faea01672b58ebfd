// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// Abandon ends the affinity of a removed host to a block: an empty block is deleted, and one with addresses, borrowed
// by others, keeps them but has no host from then on. A block that a person made stays.
//
// Errors: *model.NeedRangesError; *InvalidError.
func (p *Plan) Abandon(host string, block netip.Prefix) error {
	n := &needs{index: p.index}
	if !n.addAll(FirstReadGiveBack(block)) {
		return n.err()
	}
	b, err := p.peek(block)
	if err != nil {
		return err
	}
	switch {
	case b == nil:
		p.compares[model.BlockKey{CIDR: block}] = 0
	case b.Affinity == host && isEmpty(b) && p.automatic(b):
		p.remove(p.edit(block))
		return nil
	case b.Affinity == host:
		p.edit(block).Affinity = ""
	default:
		p.edit(block) // only compared
	}
	p.affinities[model.AffinityKey{Host: host, CIDR: block}] = false
	return nil
}

// FirstReadGiveBackSpare returns the ranges that GiveBackSpare must see first.
func FirstReadGiveBackSpare(host string, block netip.Prefix) []model.Range {
	return append(FirstReadGiveBack(block), model.Range{Prefix: model.AffinityPrefix(host), KeysOnly: true})
}

// GiveBackSpare deletes a block of the host that has been empty since the given time, provided that the host keeps
// another block of the family. It reports whether it deleted the block.
//
// Errors: *model.NeedRangesError; *InvalidError.
func (p *Plan) GiveBackSpare(host string, block netip.Prefix, since time.Time) (bool, error) {
	n := &needs{index: p.index}
	if !n.addAll(FirstReadGiveBackSpare(host, block)) {
		return false, n.err()
	}
	b, err := p.peek(block)
	if err != nil || b == nil || b.Affinity != host || !isEmpty(b) || !b.EmptySince.Equal(since) || !p.automatic(b) {
		return false, err
	}
	keeps := slices.IndexFunc(p.own[host], func(a affinity) bool { return a.cidr != block && isV6(a.cidr) == isV6(block) })
	if keeps < 0 {
		return false, nil
	}
	kept := model.AffinityKey{Host: host, CIDR: p.own[host][keeps].cidr}
	entries, _ := p.view.Read(model.Range{Prefix: model.AffinityPrefix(host), KeysOnly: true})
	for _, e := range entries {
		if e.Key == kept {
			p.compares[kept] = e.Revision
		}
	}
	p.remove(p.edit(block))
	return true, nil
}

// automatic reports whether a block was made by an allocation rather than by a person.
func (p *Plan) automatic(b *model.Block) bool {
	config, err := p.config()
	return err == nil && config.AutoAllocateBlocks && !b.StrictAffinity
}
