// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// flush returns the new state of the endpoints that were touched.
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
			other := *ep // the caller of an earlier Flush holds the old one
			ep = &other
		}
		rules.apply(l, a)
		l.told = ep
		if a != nil {
			ep.Inbound, ep.Outbound, ep.UntrackedInbound, ep.UntrackedOutbound = a.in, a.out, a.rawIn, a.rawOut
			ep.PreDNAT, ep.ForwardInbound, ep.ForwardOutbound = a.preDNAT, a.forwardIn, a.forwardOut
			if ep.Path == MetricsPath { // it applies only to connections to the metrics ports
				*ep = Endpoint{Path: ep.Path, Interface: ep.Interface, Inbound: a.in}
			}
		}
		out[l.path] = ep
	}
	clear(ls.dirty)
	ls.dirty = ls.dirty[:0]
	return out
}

// gone reports whether the endpoint is kept only until the next Flush reports its removal.
func (l *local) gone() bool { return l.workload == nil && l.host == nil && l.invalid == nil }

// build returns the endpoint to report, without its rules.
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
		ep.Interface = w.Name // this interface is shut
		ep.Dropped = fmt.Sprintf("interface %s: the name of a workload's interface begins with %s here", w.Name, strings.Join(ls.prefixes, " or "))
		return
	}
	var without []netip.Addr // its ext_ip that belong to another endpoint
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

// sameBut compares everything except the rules. It reports false if o is nil.
func (ep *Endpoint) sameBut(o *Endpoint) bool {
	return o != nil && ep.Path == o.Path && ep.Workload == o.Workload && ep.Interface == o.Interface && ep.Wildcard == o.Wildcard &&
		ep.Dropped == o.Dropped && ep.MAC == o.MAC && ep.MaxConnections == o.MaxConnections && slices.Equal(ep.Addrs, o.Addrs) && slices.Equal(ep.NAT, o.NAT)
}
