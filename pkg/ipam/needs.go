// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// maxRanges bounds a round of reading, but for the host's own blocks. What is beyond is read in the next round.
const maxRanges = 112

// needs collects what must be read and isn't known yet.
type needs struct {
	index  *index
	ranges []model.Range
	own    int // of ranges: the host's own blocks
}

// add reports whether r is known; if not it is needed.
func (n *needs) add(r model.Range) bool {
	if n.index.knows(r) {
		return true
	}
	if len(n.ranges)-n.own < maxRanges && !slices.Contains(n.ranges, r) {
		n.ranges = append(n.ranges, r)
	}
	return false
}

// addAll reports whether all of them are known.
func (n *needs) addAll(ranges []model.Range) bool {
	known := true
	for _, r := range ranges {
		known = n.add(r) && known
	}
	return known
}

// block reports whether the block's content is known, or its absence.
func (n *needs) block(c netip.Prefix) bool { return n.add(model.KeyRange(model.BlockKey{CIDR: c})) }

// addOwn needs blocks of the host's own, all of them. One that is needed already is read twice.
func (n *needs) addOwn(blocks []netip.Prefix) {
	for _, c := range blocks {
		n.ranges = append(n.ranges, model.KeyRange(model.BlockKey{CIDR: c}))
	}
	n.own += len(blocks)
}

// err is nil where nothing is needed.
func (n *needs) err() error {
	if len(n.ranges) == 0 {
		return nil
	}
	return &model.NeedRangesError{Ranges: n.ranges}
}
