// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// local is an endpoint of this host, valid or not.
type local struct {
	path     string
	id       string // of a host endpoint
	created  int64
	workload *model.WorkloadEndpoint // nil = a host endpoint, or invalid
	host     *model.HostEndpoint
	isHost   bool
	invalid  error
	iface    string // that a host endpoint was found to be
	claims   []claim
	told     *Endpoint // by the last Flush
	applied  *applied  // the rules that it goes by, as told
}

// claim is what only one workload endpoint of a host may have.
type claim struct {
	iface string
	addr  netip.Addr
}

func (c claim) String() string {
	if c.addr.IsValid() {
		return "address " + c.addr.String()
	}
	return "interface " + c.iface
}

// byAge orders endpoints by age, and those of one transaction by path.
func byAge(a, b *local) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.path, b.path))
}

// claim enters what a workload endpoint claims, instead of what it did.
func (e *Engine) claim(l *local, claims []claim) {
	for _, c := range l.claims {
		rest := slices.DeleteFunc(e.claims[c], func(o *local) bool { return o == l })
		if len(rest) == 0 {
			delete(e.claims, c)
		} else {
			e.claims[c] = rest
		}
		e.touchClaim(c)
	}
	l.claims = claims
	for _, c := range claims {
		e.touchClaim(c)
		e.claims[c] = append(e.claims[c], l)
	}
}

func (e *Engine) touchClaim(c claim) {
	for _, o := range e.claims[c] {
		e.dirty[o.path] = struct{}{}
	}
}

// claimsOf lists what an endpoint claims: nothing where its name is none for
// a workload's interface.
func (e *Engine) claimsOf(w *model.WorkloadEndpoint) []claim {
	if !e.isWorkload(w.Name) {
		return nil
	}
	addrs := slices.Clone(w.Addrs())
	for _, nats := range [][]model.NAT{w.IPv4NAT, w.IPv6NAT} {
		for _, n := range nats {
			addrs = append(addrs, n.ExtIP)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	claims := []claim{{iface: w.Name}}
	for _, a := range slices.Compact(addrs) {
		claims = append(claims, claim{addr: a})
	}
	return claims
}

func (e *Engine) isWorkload(name string) bool {
	return len(e.prefixes) == 0 || slices.ContainsFunc(e.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// updateLocal takes in an endpoint of this host.
func (e *Engine) updateLocal(entry model.Entry, l *local) {
	e.dirty[entry.Path] = struct{}{}
	old := e.locals[entry.Path]
	if old != nil {
		e.claim(old, nil)
		l.told, l.applied, l.iface = old.told, old.applied, old.iface
	}
	e.place = e.place || l.isHost
	e.locals[entry.Path] = l
	if ep := e.endpoints[entry.Path]; ep != nil {
		if ep.local == nil {
			e.adopt(ep, l)
		}
		ep.local = l
	}
	if l.workload != nil {
		e.claim(l, e.claimsOf(l.workload))
	}
}

// placeHosts finds out which interface each host endpoint is. In the order of
// their ids, each takes the interface of its name, there or not, else the first
// by name that has one of its addresses; one that is taken is not had again.
func (e *Engine) placeHosts() {
	e.place = false
	var hosts []*local
	for _, l := range e.locals {
		if l.host != nil {
			hosts = append(hosts, l)
		}
	}
	slices.SortFunc(hosts, func(a, b *local) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.path, b.path)) })
	taken := map[string]bool{}
	for _, l := range hosts {
		name := e.findInterface(l.host, taken)
		taken[name] = true
		if name != l.iface {
			l.iface = name
			e.dirty[l.path] = struct{}{}
		}
	}
}

func (e *Engine) findInterface(h *model.HostEndpoint, taken map[string]bool) string {
	switch {
	case h.Name != "" && (taken[h.Name] || len(e.prefixes) > 0 && e.isWorkload(h.Name)):
		return ""
	case h.Name != "":
		return h.Name
	}
	for _, i := range e.interfaces {
		if taken[i.Name] {
			continue
		}
		for _, a := range i.Addrs {
			if slices.Contains(h.ExpectedIPv4Addrs, a) || slices.Contains(h.ExpectedIPv6Addrs, a) {
				return i.Name
			}
		}
	}
	return ""
}
