// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/calico-go/calico/pkg/plan"
)

// Only this host has its blocks, and a default route isn't BGP's to make. The library refuses them by policy without a
// word, so updates are looked through here.

// maxNoted is how many such prefixes of a neighbour are noted in a session.
const maxNoted = 100

// update is what a neighbour sends, by the library's log of it.
type update struct {
	announced, withdrawn []bgp.PathNLRI
	attrs                []bgp.PathAttributeInterface
}

func updateOf(r slog.Record) (u update) {
	u.announced, _ = attr(r, "nlri").Any().([]bgp.PathNLRI)
	u.withdrawn, _ = attr(r, "withdrawals").Any().([]bgp.PathNLRI)
	u.attrs, _ = attr(r, "path_attributes").Any().([]bgp.PathAttributeInterface)
	for _, a := range u.attrs {
		switch a := a.(type) {
		case *bgp.PathAttributeMpReachNLRI:
			u.announced = slices.Concat(u.announced, a.Value)
		case *bgp.PathAttributeMpUnreachNLRI:
			u.withdrawn = slices.Concat(u.withdrawn, a.Value)
		}
	}
	return u
}

// us is what makes a route ours.
type us struct {
	as       uint32
	routerID netip.Addr
	prefixes map[netip.Prefix]plan.Advertisement
}

// returned says whether an update brings back what has been here: reflectors, and many switches, send
// to whom they have it from too. That is in order, and never taken (RFC 4271, section 9; RFC 4456, section 8).
func (o us) returned(u update) bool {
	for _, a := range u.attrs {
		switch a := a.(type) {
		case *bgp.PathAttributeOriginatorId:
			if a.Value == o.routerID {
				return true
			}
		case *bgp.PathAttributeAsPath:
			for _, part := range a.Value {
				if slices.Contains(part.GetAS(), o.as) {
					return true
				}
			}
		}
	}
	return false
}

// refuses says why a prefix is not taken from any neighbour, "" if it may be.
func (o us) refuses(p netip.Prefix) string {
	if p.Bits() == 0 {
		return "a default route would replace the host's own: let it send none"
	}
	if _, ok := o.prefixes[p]; ok {
		return "this host announces the prefix itself: find out who else does, behind that neighbour"
	}
	return ""
}

// setUs says what is ours now.
func (t *sessions) setUs(d Desired) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.us = us{uint32(d.Speaker.AS), d.Speaker.RouterID, d.Advertisements}
	for _, e := range t.table {
		maps.DeleteFunc(e.refused, func(p netip.Prefix, _ struct{}) bool { return t.us.refuses(p) == "" })
	}
}

// heard takes in what a neighbour sends.
func (t *sessions) heard(a netip.Addr, u update) {
	t.notice(a, u)
	t.announced(a, len(u.announced))
}

// notice looks for prefixes that are refused.
func (t *sessions) notice(a netip.Addr, u update) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.table[a]
	if e == nil || e.state == Flooded {
		return
	}
	gone, sent := u.withdrawn, u.announced
	if t.us.returned(u) {
		t.sayLooped(a, e, sent)
		gone, sent = slices.Concat(gone, sent), nil
	}
	for p := range prefixesOf(gone) {
		delete(e.refused, p)
	}
	for p := range prefixesOf(sent) {
		why := t.us.refuses(p)
		if _, known := e.refused[p]; why == "" || known || len(e.refused) >= maxNoted {
			continue
		}
		if e.refused == nil {
			e.refused = make(map[netip.Prefix]struct{})
		}
		e.refused[p] = struct{}{}
		if !slices.Contains(e.reasons, why) {
			e.reasons = append(e.reasons, why)
			t.log.Warn("BGP neighbour sends a route that is not taken", "neighbour", a, "as", e.neighbour.AS, "prefix", p, "reason", why)
		}
	}
}

// sayLooped says, once in a session, that routes of others come with our AS number: hosts
// that have one number don't hear of one another by a neighbour that has another. Where there is
// a mesh beside it that is no matter.
func (t *sessions) sayLooped(a netip.Addr, e *sessionState, sent []bgp.PathNLRI) {
	for p := range prefixesOf(sent) {
		if _, ours := t.us.prefixes[p]; ours || e.looped {
			continue
		}
		e.looped = true
		t.log.Info("BGP neighbour sends routes of others with this host's AS number in their path: they are not taken from it",
			"neighbour", a, "as", e.neighbour.AS, "first", p,
			"advice", "hosts that are to hear of one another by that neighbour need numbers of their own, or it must replace them")
	}
}

func prefixesOf(list []bgp.PathNLRI) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for _, n := range list {
			if p, ok := prefixOf(n.NLRI); ok && !yield(p) {
				return
			}
		}
	}
}
