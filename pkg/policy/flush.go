// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// flush tells what became of endpoints that were touched.
func (ls *locals) flush(rules *rulebook) map[string]*Endpoint {
	out := make(map[string]*Endpoint, len(ls.dirty))
	r := newRuling(ls.index)
	for _, l := range ls.dirty {
		if l.gone() {
			if l.told != nil {
				out[l.path] = nil
			}
			rules.apply(l, nil)
			delete(ls.byPath, l.path)
			continue
		}
		ep := l.told
		if ep == nil || l.dirty == anything {
			if ep = ls.build(l); ep.sameBut(l.told) {
				ep = l.told
			}
		}
		l.dirty = nothing
		a := r.of(l, ep)
		if ep == l.told {
			if a.equal(l.applied) {
				continue
			}
			other := *ep // who was told has the one before
			ep = &other
		}
		rules.apply(l, a)
		l.told = ep
		if a != nil {
			ep.Inbound, ep.Outbound, ep.UntrackedInbound, ep.UntrackedOutbound = a.in, a.out, a.rawIn, a.rawOut
			ep.PreDNAT, ep.ForwardInbound, ep.ForwardOutbound = a.preDNAT, a.forwardIn, a.forwardOut
			if ep.Path == MetricsPath { // it is asked about connections with the ports alone
				*ep = Endpoint{Path: ep.Path, Interface: ep.Interface, Inbound: a.in}
			}
		}
		out[l.path] = ep
	}
	clear(ls.dirty)
	ls.dirty = ls.dirty[:0]
	return out
}

// gone reports whether the endpoint is kept only until the next Flush tells so.
func (l *local) gone() bool { return l.workload == nil && l.host == nil && l.invalid == nil }

// build makes what is told of an endpoint, but for its rules.
func (ls *locals) build(l *local) *Endpoint {
	ep := &Endpoint{Path: l.path, Workload: !l.isHost}
	switch {
	case l.invalid != nil && l.iface == "":
		ep.Dropped = "invalid: " + l.invalid.Error()
	case l.workload != nil:
		ls.buildWorkload(l, ep)
	default:
		ep.Interface = l.iface
		if l.iface == "*" {
			ep.Interface, ep.Wildcard = "", true
		}
	}
	return ep
}

func (ls *locals) buildWorkload(l *local, ep *Endpoint) {
	w := l.workload
	ep.MAC = w.MAC
	if !ls.isWorkload(w.Name) {
		ep.Interface = w.Name // which is shut
		ep.Dropped = fmt.Sprintf("interface %s: the name of a workload's interface begins with %s here", w.Name, strings.Join(ls.prefixes, " or "))
		return
	}
	var without []netip.Addr // the ext_ip that are another's
	for _, c := range ls.owners.Claims(l.path) {
		switch owner := ls.owners.Holder(l.path, c); {
		case owner == "":
		case !ls.owners.Needs(l.path, c):
			without = append(without, c.Addr)
		default:
			ep.Dropped = fmt.Sprintf("%s belongs to an older endpoint, %s", c, owner)
			return
		}
	}
	ep.Interface = w.Name
	if w.State != model.StateActive {
		ep.Dropped = "inactive"
		return
	}
	ep.Addrs = w.Addrs()
	ep.MaxConnections = w.MaxConnections
	ep.NAT = slices.DeleteFunc(slices.Concat(w.IPv4NAT, w.IPv6NAT), func(n model.NAT) bool { return slices.Contains(without, n.ExtIP) })
}

// sameBut compares all but the rules; nil is like none.
func (ep *Endpoint) sameBut(o *Endpoint) bool {
	return o != nil && ep.Path == o.Path && ep.Workload == o.Workload && ep.Interface == o.Interface && ep.Wildcard == o.Wildcard &&
		ep.Dropped == o.Dropped && ep.MAC == o.MAC && ep.MaxConnections == o.MaxConnections && slices.Equal(ep.Addrs, o.Addrs) && slices.Equal(ep.NAT, o.NAT)
}
