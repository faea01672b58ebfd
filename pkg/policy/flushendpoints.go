// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// flushEndpoints tells what became of local endpoints that were touched.
func (e *Engine) flushEndpoints() map[string]*Endpoint {
	out := map[string]*Endpoint{}
	r := newRuling()
	for path := range e.dirty {
		l := e.locals[path]
		if l == nil {
			continue
		}
		if l.gone() {
			if l.told != nil {
				out[path] = nil
			}
			r.uses[l.applied]--
			delete(e.locals, path)
			continue
		}
		ep, a := e.build(l, r)
		if l.told != nil && ep.sameBut(l.told) && r.same(l.applied, a) {
			continue
		}
		r.uses[l.applied]--
		r.uses[a]++
		l.told, l.applied = ep, a
		out[path] = ep
	}
	clear(e.dirty)
	for a, n := range r.uses {
		if a != nil {
			e.useRules(a.all, n)
		}
	}
	return out
}

// gone reports whether the endpoint is kept only until the next Flush tells so.
func (l *local) gone() bool { return l.workload == nil && l.host == nil && l.invalid == nil }

// build makes what is told of an endpoint.
func (e *Engine) build(l *local, r *ruling) (*Endpoint, *applied) {
	ep := &Endpoint{Path: l.path, Workload: !l.isHost}
	switch {
	case l.invalid != nil:
		ep.Dropped = "invalid: " + l.invalid.Error()
	case l.workload != nil:
		e.buildWorkload(l, ep)
	default:
		ep.Interface = l.iface
		if l.iface == "*" {
			ep.Interface, ep.Wildcard = "", true
		}
	}
	if ep.Dropped != "" || ep.Interface == "" && !ep.Wildcard {
		return ep, nil
	}
	a := r.of(e.endpoints[l.path], !ep.Workload && !ep.Wildcard)
	ep.Inbound, ep.Outbound, ep.UntrackedInbound, ep.UntrackedOutbound = a.in, a.out, a.rawIn, a.rawOut
	return ep, a
}

func (e *Engine) buildWorkload(l *local, ep *Endpoint) {
	w := l.workload
	ep.MAC = w.MAC
	if !e.isWorkload(w.Name) {
		ep.Dropped = fmt.Sprintf("interface %s: the name of a workload's interface begins with %s here", w.Name, strings.Join(e.prefixes, " or "))
		return
	}
	for _, c := range l.claims {
		if owner := slices.MinFunc(e.claims[c], byAge); owner != l {
			ep.Dropped = fmt.Sprintf("%s belongs to an older endpoint, %s", c, owner.path)
			return
		}
	}
	ep.Interface = w.Name
	if w.State != model.StateActive {
		ep.Dropped = "inactive"
		return
	}
	ep.Addrs = w.Addrs()
	ep.NAT = append(slices.Clone(w.IPv4NAT), w.IPv6NAT...)
}

// sameBut compares all but the rules.
func (ep *Endpoint) sameBut(o *Endpoint) bool {
	return ep.Path == o.Path && ep.Workload == o.Workload && ep.Interface == o.Interface && ep.Wildcard == o.Wildcard &&
		ep.Dropped == o.Dropped && ep.MAC == o.MAC && slices.Equal(ep.Addrs, o.Addrs) && slices.Equal(ep.NAT, o.NAT)
}
