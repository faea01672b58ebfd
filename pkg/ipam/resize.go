// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Resize replaces blocks by blocks with the prefix length bits in which the same addresses are allocated to the same
// handles. blocks are all blocks of a pool in one unit, which is a block of the larger of both sizes; blocks that are
// gone, or have that size already, are skipped. A new block gets the affinity of the node whose blocks most of its
// allocated addresses come from, or none if those had none; without allocated addresses no block is made. Resize
// returns how many blocks it replaces.
//
// Errors: *model.NeedRangesError; *InvalidError.
func (p *Plan) Resize(blocks []netip.Prefix, bits int) (replaced int, err error) {
	n := &needs{index: p.index}
	for _, c := range blocks {
		n.block(c)
	}
	if err := n.err(); err != nil {
		return 0, err
	}
	var old []netip.Prefix
	handles := map[string]bool{}
	for _, c := range blocks {
		b, err := p.peek(c)
		if err != nil {
			return 0, err
		}
		if b == nil || c.Bits() == bits {
			continue
		}
		old = append(old, c)
		for _, a := range b.Attributes {
			if a.HandleID != "" && len(heldBy(b, a.HandleID)) > 0 {
				handles[a.HandleID] = true
				n.addAll(handleRanges(a.HandleID))
			}
		}
	}
	if err := n.err(); err != nil {
		return 0, err
	}
	for id := range handles {
		if _, err := p.valid(id); err != nil {
			return 0, err
		}
	}
	made := map[netip.Prefix]*draft{}
	votes := map[netip.Prefix]map[string]int{}
	for _, c := range old {
		d := p.edit(c)
		for o, a := range d.Allocations {
			if a == model.Free {
				continue
			}
			addr := addrOf(&d.Block, o)
			at := netip.PrefixFrom(addr, bits).Masked()
			if made[at] == nil {
				made[at] = &draft{Block: newBlock(at, "")}
				votes[at] = map[string]int{}
			}
			b := &made[at].Block
			take(b, ordinalOf(b, addr), holder(&d.Block, o))
			b.StrictAffinity = b.StrictAffinity || d.StrictAffinity
			votes[at][d.Affinity]++
		}
		p.remove(d)
	}
	for at, d := range made {
		p.drafts[at] = d
		hosts := slices.SortedFunc(maps.Keys(votes[at]), func(a, b string) int {
			return cmp.Or(cmp.Compare(votes[at][b], votes[at][a]), cmp.Compare(a, b))
		})
		if hosts[0] != "" {
			p.giveTo(d, hosts[0])
		}
	}
	for id := range handles {
		for _, d := range p.drafts {
			p.recount(id, d)
		}
	}
	return len(old), nil
}
