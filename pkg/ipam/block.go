// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// newBlock returns a block whose addresses are all free.
func newBlock(c netip.Prefix, host string) model.Block {
	b := model.Block{CIDR: c, Affinity: host}
	size := b.Size()
	b.Allocations = make([]int, size)
	b.Unallocated = make([]int, size)
	for i := range size {
		b.Allocations[i] = model.Free
		b.Unallocated[i] = i
	}
	return b
}

// clone returns a copy that can be changed without changing b.
func clone(b model.Block) model.Block {
	b.Allocations = slices.Clone(b.Allocations)
	b.Unallocated = slices.Clone(b.Unallocated)
	b.Attributes = slices.Clone(b.Attributes)
	return b
}

// take allocates a free ordinal.
func take(b *model.Block, ordinal int, a model.Attributes) {
	if b.Unallocated[0] == ordinal {
		b.Unallocated = b.Unallocated[1:]
	} else {
		i := slices.Index(b.Unallocated, ordinal)
		b.Unallocated = slices.Delete(b.Unallocated, i, i+1)
	}
	i := slices.IndexFunc(b.Attributes, func(have model.Attributes) bool {
		return have.HandleID == a.HandleID && maps.Equal(have.Secondary, a.Secondary)
	})
	if i < 0 {
		i = len(b.Attributes)
		b.Attributes = append(b.Attributes, a)
	}
	b.Allocations[ordinal] = i
	b.EmptySince = time.Time{}
}

// put frees an allocated ordinal, which will be the last to be taken again. It keeps attributes that no address refers
// to any more; compact drops them.
func put(b *model.Block, ordinal int) {
	b.Allocations[ordinal] = model.Free
	b.Unallocated = append(b.Unallocated, ordinal)
}

// compact drops attributes that no address refers to.
func compact(b *model.Block) {
	place := make([]int, len(b.Attributes))
	for _, a := range b.Allocations {
		if a != model.Free {
			place[a] = 1
		}
	}
	kept := b.Attributes[:0]
	for i, used := range place {
		if used == 1 {
			place[i] = len(kept)
			kept = append(kept, b.Attributes[i])
		}
	}
	clear(b.Attributes[len(kept):])
	b.Attributes = kept
	for i, a := range b.Allocations {
		if a != model.Free {
			b.Allocations[i] = place[a]
		}
	}
}

func isEmpty(b *model.Block) bool { return len(b.Unallocated) == len(b.Allocations) }

// holder returns the attributes of an allocated ordinal.
func holder(b *model.Block, ordinal int) model.Attributes {
	return b.Attributes[b.Allocations[ordinal]]
}

// heldBy returns the ordinals of the handle in ascending order.
func heldBy(b *model.Block, handle string) []int {
	var out []int
	for o, a := range b.Allocations {
		if a != model.Free && b.Attributes[a].HandleID == handle {
			out = append(out, o)
		}
	}
	return out
}

func ordinalOf(b *model.Block, a netip.Addr) int {
	return int(numberOf(a).sub(numberOf(b.CIDR.Addr())).lo)
}

func addrOf(b *model.Block, ordinal int) netip.Addr {
	return numberOf(b.CIDR.Addr()).add(number{lo: uint64(ordinal)}).addr(isV6(b.CIDR))
}
