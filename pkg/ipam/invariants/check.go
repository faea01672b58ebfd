// SPDX-License-Identifier: Apache-2.0

// Package invariants finds violations of the data model's invariants in the content of etcd.
package invariants

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

var errNotCanonical = errors.New("the key is not in its canonical form, so it can't be compared")

// Violation is a violation of one invariant of the data model.
type Violation struct {
	// Invariant is the number of the invariant:
	//
	//	1  blocks do not overlap, and each lies inside exactly one pool, apart from disabled ones
	//	2  a block's affinity and the host's affinity key agree
	//	3  a handle counts what the blocks say it holds
	//	4  unallocated holds each free ordinal exactly once
	//	5  an endpoint's address is allocated to the endpoint's handle
	// 0  an entry that the other invariants need does not parse
	Invariant int
	Key       model.Key
	Text      string
	// Note marks something worth reporting but allowed: the block's pool was deleted, or another was made over it.
	Note bool
}

// String returns the violation as one line for people.
func (v Violation) String() string {
	return fmt.Sprintf("invariant %d: %s: %s", v.Invariant, v.Key.Path(), v.Text)
}

// Check finds every violation in what etcd holds at one revision. It looks at pools, reservations, blocks, affinities, handles and
// workload endpoints, and ignores other entries.
func Check(dump []model.Entry) []Violation {
	c := checker{
		pools:      map[netip.Prefix]bool{},
		blocks:     map[netip.Prefix]*model.Block{},
		affinities: map[netip.Prefix][]string{},
		handles:    map[string]*model.Handle{},
		legacy:     map[string]*model.Handle{},
	}
	for _, e := range dump {
		if e.Exists() {
			c.add(e)
		}
	}
	c.checkPlaces()
	c.checkAffinities()
	c.checkHandles()
	c.checkEndpoints()
	return c.ordered()
}

// ordered returns the violations sorted by invariant, key and text.
func (c *checker) ordered() []Violation {
	type placed struct {
		path string
		Violation
	}
	all := make([]placed, len(c.found))
	for i, v := range c.found {
		all[i] = placed{v.Key.Path(), v}
	}
	slices.SortFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.Invariant, b.Invariant), cmp.Compare(a.path, b.path), cmp.Compare(a.Text, b.Text))
	})
	for i, v := range all {
		c.found[i] = v.Violation
	}
	return c.found
}

type checker struct {
	pools      map[netip.Prefix]bool         // whether the pool counts among those that overlap, that is, isn't disabled
	blocks     map[netip.Prefix]*model.Block // nil if it exists but is invalid
	affinities map[netip.Prefix][]string
	handles    map[string]*model.Handle // nil if it exists but is invalid
	legacy     map[string]*model.Handle
	endpoints  []endpoint
	found      []Violation
}

type endpoint struct {
	key   model.WorkloadEndpointKey
	value model.WorkloadEndpoint
}

func (c *checker) report(invariant int, k model.Key, format string, args ...any) {
	c.found = append(c.found, Violation{Invariant: invariant, Key: k, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) add(e model.Entry) {
	switch e.Key.(type) {
	case model.PoolKey, model.BlockKey, model.HandleKey, model.AffinityKey, model.WorkloadEndpointKey, model.ReservationKey:
	default:
		return
	}
	if e.Err == nil && e.Path != "" && e.Path != e.Key.Path() {
		e.Err = errNotCanonical
	}
	if e.Err != nil {
		c.report(0, e.Key, "%v", e.Err)
	}
	switch k := e.Key.(type) {
	case model.PoolKey:
		p, _ := e.Value.(model.Pool)
		c.pools[k.CIDR] = e.Err != nil || !p.Disabled
	case model.BlockKey:
		b, ok := e.Value.(model.Block)
		if !ok || e.Err != nil || b.CIDR != k.CIDR {
			c.blocks[k.CIDR] = nil
			break
		}
		c.blocks[k.CIDR] = &b
		if err := checkOrdinals(&b); err != nil {
			c.blocks[k.CIDR] = nil
			c.report(4, k, "%v", err)
		}
	case model.AffinityKey:
		c.affinities[k.CIDR] = append(c.affinities[k.CIDR], k.Host)
	case model.HandleKey:
		in := c.handles
		if k.Legacy {
			in = c.legacy
		}
		in[k.ID] = nil
		if h, ok := e.Value.(model.Handle); ok && e.Err == nil {
			in[k.ID] = &h
		}
	case model.WorkloadEndpointKey:
		if w, ok := e.Value.(model.WorkloadEndpoint); ok && e.Err == nil {
			c.endpoints = append(c.endpoints, endpoint{k, w})
		}
	}
}

// sorted returns the blocks by address, each one after the blocks around it.
func (c *checker) sorted() []netip.Prefix {
	return slices.SortedFunc(maps.Keys(c.blocks), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
}

// checkPlaces checks invariant 1.
func (c *checker) checkPlaces() {
	var around []netip.Prefix // the chain of blocks that may contain the current one
	for _, b := range c.sorted() {
		k := model.BlockKey{CIDR: b}
		for len(around) > 0 && !around[len(around)-1].Overlaps(b) {
			around = around[:len(around)-1]
		}
		for _, outer := range around {
			c.report(1, k, "overlaps block %s", outer)
		}
		around = append(around, b)

		var in []string
		pooled := false
		for p, counts := range c.pools {
			if p.Bits() <= b.Bits() && p.Contains(b.Addr()) {
				if pooled = true; counts {
					in = append(in, p.String())
				}
			}
		}
		switch {
		case !pooled:
			c.report(1, k, "lies in no pool: its pool was deleted or changed")
			c.found[len(c.found)-1].Note = true
		case len(in) > 1:
			slices.Sort(in)
			c.report(1, k, "lies in %d pools: %s", len(in), strings.Join(in, ", "))
			c.found[len(c.found)-1].Note = true
		}
	}
}

// checkAffinities checks invariant 2.
func (c *checker) checkAffinities() {
	for cidr, b := range c.blocks {
		if b != nil && b.Affinity != "" && !slices.Contains(c.affinities[cidr], b.Affinity) {
			c.report(2, model.BlockKey{CIDR: cidr}, "has affinity to %s, which has no affinity key for it", b.Affinity)
		}
	}
	for cidr, hosts := range c.affinities {
		b, exists := c.blocks[cidr]
		for _, h := range hosts {
			k := model.AffinityKey{Host: h, CIDR: cidr}
			switch {
			case !exists:
				c.report(2, k, "there is no such block")
			case b != nil && b.Affinity == "":
				c.report(2, k, "the block has affinity to nobody")
			case b != nil && b.Affinity != h:
				c.report(2, k, "the block has affinity to %s", b.Affinity)
			}
		}
	}
}

// checkEndpoints checks invariant 5. An address outside every block was assigned by another IPAM plugin or by a person.
func (c *checker) checkEndpoints() {
	for _, e := range c.endpoints {
		for _, addr := range e.value.Addrs() {
			b := c.blockWith(addr)
			if b == nil {
				continue
			}
			o := ordinalOf(b, addr)
			if b.Allocations[o] == model.Free {
				c.report(5, e.key, "its address %s is free in block %s", addr, b.CIDR)
				continue
			}
			id := b.Attributes[b.Allocations[o]].HandleID
			if e.value.ContainerID != "" && !IsHandle(id, e.key, e.value) {
				c.report(5, e.key, "its address %s is allocated to handle %q, which does not end in .%s.%s", addr, id, e.value.ContainerID, e.key.Endpoint)
			}
		}
	}
}

// IsHandle reports whether id, the handle of one of an endpoint's addresses, is the endpoint's own: that of its
// container, or a name that older versions of Calico used.
func IsHandle(id string, key model.WorkloadEndpointKey, endpoint model.WorkloadEndpoint) bool {
	for _, name := range []string{endpoint.ContainerID + "." + key.Endpoint, key.Workload, endpoint.ContainerID} {
		if id == name || strings.HasSuffix(id, "."+name) {
			return true
		}
	}
	return id == ""
}

// blockWith returns the valid block that contains the address, or nil.
func (c *checker) blockWith(a netip.Addr) *model.Block {
	for l := range a.BitLen() + 1 {
		if b := c.blocks[netip.PrefixFrom(a, l).Masked()]; b != nil {
			return b
		}
	}
	return nil
}

// ordinalOf returns the position of an address in its block, which has at most 2^12.
func ordinalOf(b *model.Block, a netip.Addr) int {
	low := func(a netip.Addr) int {
		bytes := a.As16()
		return int(bytes[14])<<8 | int(bytes[15])
	}
	return low(a) - low(b.CIDR.Addr())
}

// checkOrdinals checks invariant 4, and that every index is in range.
func checkOrdinals(b *model.Block) error {
	if len(b.Allocations) != b.Size() {
		return fmt.Errorf("allocations has %d entries for %d addresses", len(b.Allocations), b.Size())
	}
	for o, a := range b.Allocations {
		if a != model.Free && (a < 0 || a >= len(b.Attributes)) {
			return fmt.Errorf("allocation %d names attributes %d, there are %d", o, a, len(b.Attributes))
		}
	}
	seen := make([]bool, len(b.Allocations))
	for _, o := range b.Unallocated {
		switch {
		case o < 0 || o >= len(seen):
			return fmt.Errorf("unallocated has %d, the block has %d addresses", o, len(seen))
		case b.Allocations[o] != model.Free:
			return fmt.Errorf("unallocated has %d, which is allocated", o)
		case seen[o]:
			return fmt.Errorf("unallocated has %d twice", o)
		}
		seen[o] = true
	}
	for o, a := range b.Allocations {
		if a == model.Free && !seen[o] {
			return fmt.Errorf("unallocated lacks %d, which is free", o)
		}
	}
	return nil
}
