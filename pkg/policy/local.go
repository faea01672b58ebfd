// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"maps"
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
	used     []RulesID
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
		l.told, l.used, l.iface = old.told, old.used, old.iface
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

// flushEndpoints tells what became of local endpoints that were touched.
func (e *Engine) flushEndpoints() map[string]*Endpoint {
	out := map[string]*Endpoint{}
	for path := range e.dirty {
		l := e.locals[path]
		if l == nil {
			continue
		}
		if l.gone() {
			if l.told != nil {
				out[path] = nil
			}
			e.useRules(nil, l.used)
			delete(e.locals, path)
			continue
		}
		ep := e.build(l)
		if l.told != nil && ep.equal(l.told) {
			continue
		}
		used := ep.rules()
		e.useRules(used, l.used)
		l.told, l.used = ep, used
		out[path] = ep
	}
	clear(e.dirty)
	return out
}

// gone reports whether the endpoint is kept only until the next Flush tells so.
func (l *local) gone() bool { return l.workload == nil && l.host == nil && l.invalid == nil }

// build makes what is told of an endpoint.
func (e *Engine) build(l *local) *Endpoint {
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
	if ep.Dropped == "" && (ep.Interface != "" || ep.Wildcard) {
		e.addRules(e.endpoints[l.path], ep)
	}
	return ep
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

// addRules says which policies and profiles hold for an endpoint.
func (e *Engine) addRules(of *endpoint, ep *Endpoint) {
	var policies []*policy
	for _, m := range of.matches[forOwn] {
		policies = append(policies, m.query.policies...)
	}
	slices.SortFunc(policies, (*policy).compare)
	for _, p := range policies {
		in, out := &ep.Inbound.Policies, &ep.Outbound.Policies
		if p.untracked {
			if ep.Workload || ep.Wildcard {
				continue
			}
			in, out = &ep.UntrackedInbound, &ep.UntrackedOutbound
		}
		if p.in {
			*in = addOnce(*in, p.id)
		}
		if p.out {
			*out = addOnce(*out, p.id)
		}
	}
	var profiles []RulesID
	for _, p := range of.profiles {
		if id := (RulesID{KindProfile, p.name}); !slices.Contains(profiles, id) {
			profiles = append(profiles, id)
		}
	}
	ep.Inbound.Profiles, ep.Outbound.Profiles = profiles, profiles
}

// addOnce knows that equal ids stand side by side.
func addOnce(ids []RulesID, id RulesID) []RulesID {
	if n := len(ids); n > 0 && ids[n-1] == id {
		return ids
	}
	return append(ids, id)
}

// rules are all that the endpoint goes by, each once.
func (ep *Endpoint) rules() []RulesID {
	all := map[RulesID]struct{}{}
	for _, ids := range [...][]RulesID{
		ep.Inbound.Policies, ep.Inbound.Profiles, ep.Outbound.Policies, ep.Outbound.Profiles,
		ep.UntrackedInbound, ep.UntrackedOutbound,
	} {
		for _, id := range ids {
			all[id] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(all))
}

func (ep *Endpoint) equal(o *Endpoint) bool {
	return ep.Path == o.Path && ep.Workload == o.Workload && ep.Interface == o.Interface && ep.Wildcard == o.Wildcard &&
		ep.Dropped == o.Dropped && ep.MAC == o.MAC && slices.Equal(ep.Addrs, o.Addrs) && slices.Equal(ep.NAT, o.NAT) &&
		ep.Inbound.equal(o.Inbound) && ep.Outbound.equal(o.Outbound) &&
		slices.Equal(ep.UntrackedInbound, o.UntrackedInbound) && slices.Equal(ep.UntrackedOutbound, o.UntrackedOutbound)
}

func (v Verdicts) equal(o Verdicts) bool {
	return slices.Equal(v.Policies, o.Policies) && slices.Equal(v.Profiles, o.Profiles)
}
