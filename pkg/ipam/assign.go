// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Assign assigns addresses to the request's handle: those that it has already, else from the host's own blocks, else
// from a new block, else from a block that another host left empty, else from another host's block. It assigns all that
// are asked for, or none.
//
// Errors: *model.NeedRangesError, *NoPoolError, *UnknownPoolError, *ExhaustedError,
// *TakenError, *UnavailableError, *UnknownNamespaceError, *InvalidError.
func (p *Plan) Assign(r Request) (Choice, error) {
	a := &assignment{Plan: p, Request: r, needs: needs{index: p.index}}
	if err := a.check(); err != nil {
		return Choice{}, err
	}
	if !a.needs.addAll(FirstRead(a.Request)) {
		return Choice{}, a.needs.err()
	}
	got, err := a.decide()
	if err != nil {
		return Choice{}, err
	}
	if err := a.needs.err(); err != nil {
		return Choice{}, err
	}
	return a.apply(got), nil
}

// assignment is one request being decided.
type assignment struct {
	*Plan
	Request
	needs needs
}

// source says where an address comes from.
type source int

const (
	fromHandle source = iota // the handle has it
	fromOwn                  // a block with affinity to the host
	fromNew                  // a block claimed by this request
	fromEmpty                // another host's empty block, taken over
	fromOther                // another host's block, or one without a host
)

// pick is one address decided on.
type pick struct {
	from    source
	block   netip.Prefix
	ordinal int // nextFree: the one that has been free the longest, and isn't reserved
	pool    *pool
	left    string         // fromEmpty: the host, if known to have left the cluster
	clears  []netip.Prefix // fromNew: leftovers deleted to make room
}

const nextFree = -1

func (a *assignment) check() error {
	if a.Host == "" || a.Handle == "" {
		return errors.New("assign addresses: a request names its host and its handle")
	}
	for i, addr := range a.Addrs {
		if !addr.IsValid() || addr.Zone() != "" {
			return &UnavailableError{Addr: addr, Reason: "not an address that a workload may have"}
		}
		if addr.Is4In6() {
			a.Addrs = slices.Clone(a.Addrs)
			a.Addrs[i] = addr.Unmap()
		}
	}
	if !a.wants(false) && !a.wants(true) {
		return errors.New("assign addresses: neither IPv4 nor IPv6 is asked for")
	}
	return nil
}

// wants reports whether the request asks for an address of the family, specific or not.
func (a *assignment) wants(v6 bool) bool { return v6 && a.IPv6 || !v6 && a.IPv4 || a.named(v6) }

// decide picks all addresses. Its result counts only if nothing more must be read.
func (a *assignment) decide() ([]pick, error) {
	held, err := a.held()
	if err != nil || len(a.needs.ranges) > 0 {
		return nil, err
	}
	var picks []pick
	for _, v6 := range []bool{false, true} {
		if !a.wants(v6) {
			continue
		}
		e, err := a.eligible(a.Request, v6)
		if err != nil {
			return nil, err
		}
		if a.named(v6) {
			err = a.specific(e, &picks)
		} else if had := ofFamily(held, v6); len(had) > 0 {
			picks = append(picks, had...)
		} else {
			err = a.any(e, &picks)
		}
		if err != nil {
			return nil, err
		}
	}
	return picks, nil
}

// held returns the addresses that the handle has.
func (a *assignment) held() ([]pick, error) {
	h, err := a.valid(a.Handle)
	if err != nil {
		return nil, err
	}
	var out []pick
	for _, c := range h.sorted() {
		if !a.wants(isV6(c)) || !a.needs.block(c) {
			continue
		}
		b, err := a.peek(c)
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		for _, o := range heldBy(b, a.Handle) {
			out = append(out, pick{from: fromHandle, block: c, ordinal: o, pool: a.poolOf(c)})
		}
	}
	return out, nil
}

func ofFamily(picks []pick, v6 bool) []pick {
	var out []pick
	for _, p := range picks {
		if isV6(p.block) == v6 {
			out = append(out, p)
		}
	}
	return out
}

// any picks one address of the family.
func (a *assignment) any(e *eligible, picks *[]pick) error {
	if len(e.pools) == 0 {
		return &NoPoolError{IPv6: e.v6, Pools: e.refused}
	}
	if a.unreadable != nil {
		return fmt.Errorf("which addresses are reserved? %w", a.unreadable)
	}
	got, unread := a.fromOwn(e)
	if got != nil {
		*picks = append(*picks, *got)
		return nil
	}
	if len(unread) > 0 {
		// In case the host's own blocks are full, ask for what the next step needs in the same round.
		if c, err := a.config(); err == nil && c.AutoAllocateBlocks {
			a.fromNew(e)
		}
		a.needs.addOwn(unread)
		return nil
	}
	config, err := a.config()
	if err != nil {
		return fmt.Errorf("may this node claim a block or borrow? %w", err)
	}
	if config.AutoAllocateBlocks {
		if got, known := a.fromNew(e); got != nil || !known {
			*picks = appendPick(*picks, got)
			return nil
		}
	}
	got, err = a.fromOthers(e, config)
	*picks = appendPick(*picks, got)
	return err
}

func appendPick(picks []pick, got *pick) []pick {
	if got == nil {
		return picks
	}
	return append(picks, *got)
}

// apply carries out the decision. It cannot fail.
func (a *assignment) apply(picks []pick) Choice {
	var out Choice
	attributes := model.Attributes{HandleID: a.Handle, Secondary: a.Attributes}
	for _, p := range picks {
		got := Assigned{Block: p.block, Existing: p.from == fromHandle}
		if p.pool != nil {
			got.Pool = p.pool.CIDR
		}
		if got.Existing {
			b := model.Block{CIDR: p.block}
			got.Addr = addrOf(&b, p.ordinal)
			out.Addrs = append(out.Addrs, got)
			continue
		}
		d := a.ready(p)
		ordinal := p.ordinal
		if ordinal == nextFree {
			ordinal, _ = a.next(&d.Block)
		}
		take(&d.Block, ordinal, attributes)
		a.recount(a.Handle, d)
		a.compares[p.pool.entry.Key] = p.pool.entry.Revision
		got.Addr = addrOf(&d.Block, ordinal)
		out.Addrs = append(out.Addrs, got)
	}
	return out
}

// ready returns the block of a pick as a draft, after settling its affinity.
func (a *assignment) ready(p pick) *draft {
	if p.from != fromOwn {
		a.compares[model.IPAMConfigKey{}] = a.view.Get(model.IPAMConfigKey{}).Revision
	}
	for _, c := range p.clears {
		a.remove(a.edit(c))
	}
	switch {
	case p.from == fromNew && !a.exists(p.block):
		for _, q := range a.pools { // fail the commit if an older pool claims the range meanwhile
			if q.CIDR.Overlaps(p.block) && q.entry.Created <= p.pool.entry.Created {
				a.compares[q.entry.Key] = q.entry.Revision
			}
		}
		return a.create(p.block, a.Host)
	case p.from == fromEmpty:
		if p.left != "" {
			a.compares[model.HostMetadataKey{Host: p.left}] = 0
		}
		d := a.edit(p.block)
		a.giveTo(d, a.Host)
		return d
	}
	return a.edit(p.block)
}
