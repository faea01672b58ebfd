// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"maps"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

// checkHandles checks invariant 3.
func (c *checker) checkHandles() {
	said := map[string]map[netip.Prefix]int{} // by blocks
	for cidr, b := range c.blocks {
		if b == nil {
			continue
		}
		for _, a := range b.Allocations {
			if a == model.Free || b.Attributes[a].HandleID == "" {
				continue
			}
			id := b.Attributes[a].HandleID
			if said[id] == nil {
				said[id] = map[netip.Prefix]int{}
			}
			said[id][cidr]++
		}
	}
	for id, blocks := range said {
		k, counted, valid := c.handle(id)
		if k == nil {
			for cidr := range blocks {
				c.report(3, model.BlockKey{CIDR: cidr}, "has addresses of handle %q, which does not exist", id)
			}
			continue
		}
		for cidr, n := range blocks {
			if have, ok := counted[cidr]; valid && have != n {
				if !ok {
					have = 0
				}
				c.report(3, k, "counts %d in block %s, which has %d of its addresses", have, cidr, n)
			}
		}
	}
	for id := range c.handles {
		c.checkHandle(id, said[id])
	}
	for id := range c.legacy {
		if _, both := c.handles[id]; !both {
			c.checkHandle(id, said[id])
		}
	}
}

// checkHandle checks the handle's own counts, which the blocks don't show.
func (c *checker) checkHandle(id string, said map[netip.Prefix]int) {
	k, counted, valid := c.handle(id)
	if !valid {
		return
	}
	if len(counted) == 0 {
		c.report(3, k, "counts no addresses, and is still there")
	}
	for cidr, n := range counted {
		switch b, exists := c.blocks[cidr]; {
		case n == 0:
			c.report(3, k, "counts 0 in block %s", cidr)
		case !exists:
			c.report(3, k, "counts %d in block %s, which does not exist", n, cidr)
		case b != nil && said[cidr] == 0:
			c.report(3, k, "counts %d in block %s, which has 0 of its addresses", n, cidr)
		}
	}
}

// handle merges both keys of a handle. k is nil if there is neither.
func (c *checker) handle(id string) (k model.Key, counted map[netip.Prefix]int, valid bool) {
	h, canonical := c.handles[id]
	old, legacy := c.legacy[id]
	if !canonical && !legacy {
		return nil, nil, false
	}
	if canonical && h == nil || legacy && old == nil {
		return model.HandleKey{ID: id, Legacy: !canonical}, nil, false
	}
	counted = map[netip.Prefix]int{}
	if legacy {
		maps.Copy(counted, old.Blocks)
	}
	if canonical {
		maps.Copy(counted, h.Blocks)
	}
	return model.HandleKey{ID: id, Legacy: !canonical}, counted, true
}
