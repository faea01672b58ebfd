// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// maxRanges bounds one round of reading, not counting the host's own blocks. The rest is read in the next round.
const maxRanges = 112

// needs collects the ranges that must be read first.
type needs struct {
	index  *index
	ranges []model.Range
	own    int // how many of ranges are the host's own blocks
}

// add reports whether r is known, and adds it to the needed ranges if not.
func (n *needs) add(r model.Range) bool {
	if n.index.knows(r) {
		return true
	}
	if len(n.ranges)-n.own < maxRanges && !slices.Contains(n.ranges, r) {
		n.ranges = append(n.ranges, r)
	}
	return false
}

// addAll adds all ranges and reports whether all of them are known.
func (n *needs) addAll(ranges []model.Range) bool {
	known := true
	for _, r := range ranges {
		known = n.add(r) && known
	}
	return known
}

// block reports whether the block's content, or its absence, is known, and adds it if not.
func (n *needs) block(c netip.Prefix) bool { return n.add(model.KeyRange(model.BlockKey{CIDR: c})) }

// addOwn adds all of the host's own blocks. One that is already in the ranges is read twice.
func (n *needs) addOwn(blocks []netip.Prefix) {
	for _, c := range blocks {
		n.ranges = append(n.ranges, model.KeyRange(model.BlockKey{CIDR: c}))
	}
	n.own += len(blocks)
}

// err returns nil if nothing more must be read.
func (n *needs) err() error {
	if len(n.ranges) == 0 {
		return nil
	}
	return &model.NeedRangesError{Ranges: n.ranges}
}
