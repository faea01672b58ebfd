// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// reservations are all networks that are reserved now.
func (h *history) reservations() (all []netip.Prefix) {
	for _, e := range h.dump() {
		if r, ok := e.Value.(model.Reservation); ok {
			all = append(all, r.CIDRs...)
		}
	}
	return all
}

func inAny(a netip.Addr, cidrs []netip.Prefix) bool {
	return slices.ContainsFunc(cidrs, func(c netip.Prefix) bool { return c.Contains(a) })
}

// unasked reports whether a pool of a history serves those that don't ask for it.
func unasked(r Request, p model.Pool) bool {
	return !p.Manual && (p.NamespaceSelector == "" || r.Namespace == "n1")
}

// take checks that an address is assigned once, to a host that may have it now, and that it is the one that has been
// free the longest of those that weren't reserved when the request began.
func (h *history) take(r Request, a netip.Addr, reserved []netip.Prefix) {
	if !r.named(a.Is6()) && inAny(a, reserved) {
		h.t.Fatalf("%s given to %s, it was reserved: %v", a, r.Handle, reserved)
	}
	if inAny(a, reserved) {
		h.counts["assign a reserved one by name"]++
	}
	handle := r.Handle
	for other, addrs := range h.held {
		if addrs[a] {
			h.t.Fatalf("%s given to %s, %s has it", a, handle, other)
		}
	}
	if h.held[handle] == nil {
		h.held[handle] = map[netip.Addr]bool{}
	}
	h.held[handle][a] = true
	config, inPool := model.DefaultIPAMConfig, false
	var block model.Block
	var created int64
	for _, e := range h.dump() {
		switch v := e.Value.(type) {
		case model.Block:
			if v.CIDR.Contains(a) {
				block, created = v, e.Created
			}
		case model.IPAMConfig:
			config = v
		case model.Pool:
			inPool = inPool || v.CIDR.Contains(a) && !v.Disabled && (r.named(a.Is6()) || len(r.requested(a.Is6())) > 0 || unasked(r, v))
		}
	}
	if !inPool {
		h.t.Fatalf("%s is given out, and no pool hands it out", a)
	}
	if config.StrictAffinity && block.Affinity != r.Host {
		h.t.Fatalf("%s is given to node %s, the block is %s's", a, r.Host, block.Affinity)
	}
	if r.Addrs != nil || created == h.revision {
		return
	}
	for o, at := range block.Allocations {
		f := addrOf(&block, o)
		if at == model.Free && !inAny(f, reserved) && max(h.freeSince[f], created) < max(h.freeSince[a], created) {
			h.t.Fatalf("%s given out, free since %d; %s has been free since %d", a, h.freeSince[a], f, h.freeSince[f])
		}
	}
}

func (h *history) forget(handle string, addrs []netip.Addr) {
	for _, a := range addrs {
		if !h.held[handle][a] {
			h.t.Fatalf("freed %s of %s, which holds %v", a, handle, h.held[handle])
		}
		delete(h.held[handle], a)
		h.freeSince[a] = h.revision
	}
	if len(h.held[handle]) == 0 {
		delete(h.held, handle)
	}
}

// compare compares etcd with the model, and checks the invariants.
func (h *history) compare() {
	h.mustBeSound()
	got := map[string]map[netip.Addr]bool{}
	for _, e := range h.dump() {
		b, ok := e.Value.(model.Block)
		if !ok {
			continue
		}
		for o, at := range b.Allocations {
			if at == model.Free {
				continue
			}
			id := b.Attributes[at].HandleID
			if got[id] == nil {
				got[id] = map[netip.Addr]bool{}
			}
			got[id][addrOf(&b, o)] = true
		}
		if len(b.Attributes) > len(b.Allocations)-len(b.Unallocated) {
			h.t.Fatalf("block %s keeps attributes of nobody: %v", b.CIDR, b.Attributes)
		}
		if isEmpty(&b) == b.EmptySince.IsZero() {
			h.t.Fatalf("block %s is empty: %v, and empty since %s", b.CIDR, isEmpty(&b), b.EmptySince)
		}
	}
	if diff := cmp.Diff(h.held, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		h.t.Fatalf("revision %d: the model holds -, etcd +:\n%s", h.revision, diff)
	}
}

// satisfied checks that a choice fulfils the request.
func (h *history) satisfied(r Request, c Choice) {
	var v4, v6 int
	for _, a := range c.Addrs {
		if a.Addr.Is4() {
			v4++
		} else {
			v6++
		}
		if !h.held[r.Handle][a.Addr] {
			h.t.Fatalf("%s got %s, which isn't its own", r.Handle, a.Addr)
		}
	}
	if r.IPv4 && v4 == 0 || r.IPv6 && v6 == 0 {
		h.t.Fatalf("%+v got only %v", r, c.Addrs)
	}
	for _, a := range r.Addrs {
		if !slices.ContainsFunc(c.Addrs, func(got Assigned) bool { return got.Addr == a }) {
			h.t.Fatalf("%+v got %v", r, c.Addrs)
		}
	}
}

// mustBeTrue looks at every address of every pool to check that an error is right. Nothing has changed since the
// request began.
func (h *history) mustBeTrue(r Request, err error) {
	var exhausted *ExhaustedError
	var noPool *NoPoolError
	var v6 bool
	switch {
	case errors.As(err, &exhausted):
		v6 = exhausted.IPv6
	case errors.As(err, &noPool) && len(r.Addrs) == 0:
		v6 = noPool.IPv6
	default:
		return
	}
	if a, why := h.someFree(r, v6); a.IsValid() {
		h.t.Fatalf("%+v: %v\nbut %s is free: %s", r, err, a, why)
	}
}

// giving returns the pools that assign addresses: those that aren't disabled; of overlapping ones, the oldest.
func (h *history) giving() (out []model.Pool) {
	enabled := slices.DeleteFunc(h.dump(), func(e model.Entry) bool { p, ok := e.Value.(model.Pool); return !ok || p.Disabled })
	for _, e := range enabled {
		p := e.Value.(model.Pool)
		if !slices.ContainsFunc(enabled, func(o model.Entry) bool { return o.Created < e.Created && o.Value.(model.Pool).CIDR.Overlaps(p.CIDR) }) {
			out = append(out, p)
		}
	}
	return out
}

func (h *history) someFree(r Request, v6 bool) (netip.Addr, string) {
	config := model.DefaultIPAMConfig
	labels := map[string]string{}
	nodes := map[string]bool{}
	var blocks []model.Block
	pools := slices.DeleteFunc(h.giving(), func(p model.Pool) bool { return isV6(p.CIDR) != v6 })
	for _, e := range h.dump() {
		switch v := e.Value.(type) {
		case model.IPAMConfig:
			config = v
		case model.HostMetadata:
			k, _ := e.Key.(model.HostMetadataKey)
			nodes[k.Host] = true
			if k.Host == r.Host {
				labels = v.Labels
			}
		case model.Block:
			blocks = append(blocks, v)
		}
	}
	leftover := func(b model.Block) bool {
		if !isEmpty(&b) || b.StrictAffinity || !config.AutoAllocateBlocks {
			return false
		}
		for _, p := range pools {
			if p.CIDR.Bits() <= b.CIDR.Bits() && p.CIDR.Contains(b.CIDR.Addr()) && p.BlockSize == b.CIDR.Bits() {
				return b.Affinity == ""
			}
		}
		return true
	}
	reserved := h.reservations()
	for _, p := range pools {
		requested := r.requested(v6)
		named := slices.ContainsFunc(requested, func(ref model.PoolRef) bool { return ref.Names(p) })
		if !named && (len(requested) > 0 || !unasked(r, p) || p.NodeSelector != "" && labels["rack"] != "1") {
			continue
		}
		for a := p.CIDR.Addr(); p.CIDR.Contains(a); a = a.Next() {
			if inAny(a, reserved) {
				continue
			}
			own := netip.PrefixFrom(a, p.BlockSize).Masked()
			overlapped := false
			for _, b := range blocks {
				overlapped = overlapped || b.CIDR.Overlaps(own) && (b.CIDR == own || !leftover(b))
				if !b.CIDR.Contains(a) || b.CIDR.Bits() < p.CIDR.Bits() || b.Allocations[ordinalOf(&b, a)] != model.Free {
					continue
				}
				switch {
				case b.Affinity == r.Host:
					return a, "own block"
				case !config.StrictAffinity:
					return a, "another's block"
				case isEmpty(&b) && (r.Now.Sub(b.EmptySince).Abs() >= time.Minute || !nodes[b.Affinity]):
					return a, "another's empty block"
				}
			}
			if !overlapped {
				return a, "a new block"
			}
		}
	}
	return netip.Addr{}, ""
}
