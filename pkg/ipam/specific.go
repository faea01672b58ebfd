// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// specific picks the specific addresses of the family that were asked for.
func (a *assignment) specific(e *eligible, picks *[]pick) error {
	seen := map[netip.Addr]bool{}
	for _, addr := range a.Addrs {
		if addr.Is6() != e.v6 || seen[addr] {
			continue
		}
		seen[addr] = true
		got, err := a.pickAddr(e, addr)
		if err == nil && (got == nil || got.from != fromHandle) {
			err = a.unused(addr)
		}
		if err != nil {
			return err
		}
		*picks = appendPick(*picks, got)
	}
	return nil
}

// endpointPage is the page size for reading the endpoints of all hosts.
const endpointPage = 5000

// unused returns an error if an endpoint has the address although its block may have it as free: the pod is running,
// but its allocation was lost when blocks were restored or edited. Only specific addresses are checked. The pod with an
// address of a block is on the block's host or, most often, on this one; if there is no block, it may be on any host.
// If it borrowed the address on a third host, the agent there claims the address again.
func (a *assignment) unused(addr netip.Addr) error {
	if a.Living || a.Reserve {
		return nil
	}
	hosts := []string{""}
	if c, known := a.holding(&a.needs, addr); !known {
		return nil // read the block first
	} else if c.IsValid() {
		if b, err := a.peek(c); err != nil {
			return err
		} else if b.Affinity != "" {
			hosts = []string{a.Host, b.Affinity}
		}
	}
	for _, host := range hosts {
		if err := a.unusedOn(host, addr); err != nil {
			return err
		}
	}
	return nil
}

// unusedOn searches the endpoints of one host, or of all if host is "".
func (a *assignment) unusedOn(host string, addr netip.Addr) error {
	prefix := model.WorkloadEndpointPrefix(host)
	for _, r := range a.view.Ranges() {
		if !strings.HasPrefix(prefix, r.Prefix) && !strings.HasPrefix(r.Prefix, prefix) {
			continue
		}
		entries, _ := a.view.Read(r)
		for _, e := range entries {
			if w, ok := e.Value.(model.WorkloadEndpoint); ok && e.Key != a.Endpoint && slices.Contains(w.Addrs(), addr) {
				return &TakenError{Addr: addr, Endpoint: e.Path}
			}
		}
	}
	a.needs.add(model.Range{Prefix: prefix, From: a.pages[prefix], Limit: endpointPage})
	return nil
}

// pickAddr returns nil without an error if more must be read.
func (a *assignment) pickAddr(e *eligible, addr netip.Addr) (*pick, error) {
	c, known := a.holding(&a.needs, addr)
	p := a.poolOf(netip.PrefixFrom(addr, addr.BitLen()))
	if !known {
		if e.has(p) && !c.IsValid() { // also ask for what making its block needs
			a.needs.addAll(overlapRanges(p.blockOf(addr)))
		}
		return nil, nil
	}
	if !c.IsValid() {
		if err := a.refused(e, p, addr); err != nil {
			return nil, err
		}
		return a.makeFor(p, addr)
	}
	b, err := a.peek(c)
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", addr, err)
	}
	o := ordinalOf(b, addr)
	if b.Allocations[o] != model.Free {
		who := holder(b, o)
		if who.HandleID != a.Handle {
			return nil, &TakenError{Addr: addr, Block: c, Handle: who.HandleID, Attributes: who.Secondary}
		}
		return &pick{from: fromHandle, block: c, ordinal: o, pool: a.poolOf(c)}, nil
	}
	if err := a.refused(e, p, addr); err != nil {
		return nil, err
	}
	if a.poolOf(c) != p {
		if a.leftover(b) {
			return a.makeFor(p, addr)
		}
		return nil, &UnavailableError{addr, fmt.Sprintf("block %s reaches beyond pool %s", c, p.CIDR)}
	}
	got := &pick{from: fromOwn, block: c, ordinal: o, pool: p}
	if b.Affinity == a.Host {
		return got, nil
	}
	config, err := a.config()
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", addr, err)
	}
	take, left, known := a.reclaimable(b, config)
	switch {
	case !known:
		return nil, nil
	case take:
		got.from, got.left = fromEmpty, left
	case a.Reserve, a.Living, borrowable(b, config):
		got.from = fromOther
	default:
		return nil, &UnavailableError{addr, fmt.Sprintf("block %s belongs to node %q and affinity is strict", c, b.Affinity)}
	}
	return got, nil
}

// holding returns the existing block that contains the address, or the zero Prefix.
func (p *Plan) holding(n *needs, addr netip.Addr) (c netip.Prefix, known bool) {
	known = true
	for _, r := range holdingRanges(addr) {
		at := r.Key.(model.BlockKey).CIDR
		if !n.add(r) {
			known = false
		} else if p.exists(at) && !c.IsValid() {
			c = at
		}
	}
	return c, known
}

// refused says why the address's pool may not serve the request.
func (a *assignment) refused(e *eligible, p *pool, addr netip.Addr) error {
	if e.has(p) {
		return nil
	}
	if p == nil {
		if len(e.pools) == 0 {
			return fmt.Errorf("address %s: %w", addr, &NoPoolError{IPv6: e.v6, Pools: e.refused})
		}
		names := ""
		for i, q := range e.pools {
			if i > 0 {
				names += ", "
			}
			names += q.CIDR.String()
		}
		return &UnavailableError{addr, "in no pool; pools that may serve this node: " + names}
	}
	why := "it is not among the requested pools"
	for _, r := range e.refused {
		if r.CIDR == p.CIDR {
			why = r.Reason
		}
	}
	return &UnavailableError{addr, fmt.Sprintf("pool %s may not serve it: %s", p.CIDR, why)}
}

// makeFor claims the block of an address that is in no block.
func (a *assignment) makeFor(p *pool, addr netip.Addr) (*pick, error) {
	config, err := a.config()
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", addr, err)
	}
	if !config.AutoAllocateBlocks {
		return nil, &UnavailableError{addr, "no block has it, and auto_allocate_blocks is false"}
	}
	c := p.blockOf(addr)
	leftovers, ok, known := a.room(c, p)
	switch {
	case !known:
		return nil, nil
	case ok:
		return &pick{from: fromNew, block: c, ordinal: int(numberOf(addr).sub(numberOf(c.Addr())).lo), pool: p, clears: leftovers}, nil
	}
	if b := a.overlap(c); b.IsValid() {
		return nil, &UnavailableError{addr, fmt.Sprintf("its block would be %s, which overlaps block %s", c, b)}
	}
	return nil, &UnavailableError{addr, fmt.Sprintf("its block would be %s, where two pools overlap", c)}
}
