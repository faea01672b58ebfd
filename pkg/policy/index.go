// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// endpoint has the data of a valid endpoint of any host, or of a network set.
type endpoint struct {
	path     string
	labels   map[string]string // its own; shared with the value it came from
	profiles []*profile        // in order
	addrs    []netip.Addr      // each once
	nets     []netip.Prefix    // a network set's
	ports    []model.EndpointPort
	matches  [2][]match // by matcher
	local    *local     // nil = on another host
	service  bool       // it is what a service leads to, for the sets of its ports alone
}

// bag is a set of endpoints. The zero value is empty.
type bag struct{ all map[*endpoint]struct{} }

func (b *bag) add(ep *endpoint) {
	if b.all == nil {
		b.all = map[*endpoint]struct{}{}
	}
	b.all[ep] = struct{}{}
}

func (b *bag) remove(ep *endpoint) { delete(b.all, ep) }

func (b *bag) len() int { return len(b.all) }

// each calls f for every endpoint. f must not change the bag.
func (b *bag) each(f func(*endpoint)) {
	for ep := range b.all {
		f(ep)
	}
}

// match is a query that an endpoint matches, and the endpoint's index in the query's endpoints.
type match struct {
	query *query
	pos   int
}

// matched is an endpoint that matches a query, and the query's index in the endpoint's matches.
type matched struct {
	*endpoint
	at int
}

// label returns the value of an effective label: the endpoint's own, else that of the last profile that has it, else ""
// if a profile has a tag of that name.
func (ep *endpoint) label(name string) (string, bool) {
	if v, ok := ep.labels[name]; ok {
		return v, true
	}
	for _, p := range slices.Backward(ep.profiles) {
		if v, ok := p.labels[name]; ok {
			return v, true
		}
	}
	return "", ep.tagged(name)
}

func (ep *endpoint) tagged(tag string) bool {
	return slices.ContainsFunc(ep.profiles, func(p *profile) bool {
		_, ok := p.tags[tag]
		return ok
	})
}

func (ep *endpoint) hasPort(name string) bool {
	return slices.ContainsFunc(ep.ports, func(p model.EndpointPort) bool { return p.Name == name })
}

// picked reports whether the endpoint matches a query of a set.
func (ep *endpoint) picked(q *query) bool {
	return slices.ContainsFunc(ep.matches[forAll], func(m match) bool { return m.query == q })
}

// details are the parts of an endpoint that determine matches and membership.
type details struct {
	labels   map[string]string
	profiles []string
	addrs    []netip.Addr
	nets     []netip.Prefix
	ports    []model.EndpointPort
	service  bool
}

func uniqueAddrs(addrs []netip.Addr) []netip.Addr {
	for i := 1; i < len(addrs); i++ {
		if slices.Contains(addrs[:i], addrs[i]) { // rare, so sorting them is fine
			addrs = slices.Clone(addrs)
			slices.SortFunc(addrs, netip.Addr.Compare)
			return slices.Compact(addrs)
		}
	}
	return addrs
}

// index has the valid endpoints and the profiles of all hosts, and which endpoints match: those of all hosts for the
// sets of rules, and those of this host for policies.
type index struct {
	endpoints    map[string]*endpoint // by path
	owners       owners
	profiles     map[string]*profile
	missing      map[*profile]struct{} // profiles that this host's endpoints name and that don't exist
	profileIndex profileIndex
	all, own     *matcher
}

func newIndex() *index {
	x := &index{
		endpoints: map[string]*endpoint{}, owners: owners{}, profiles: map[string]*profile{}, missing: map[*profile]struct{}{},
		profileIndex: profileIndex{map[string]map[string]map[*profile]struct{}{}, map[string]map[*profile]struct{}{}},
	}
	x.all, x.own = newMatcher(forAll, &x.profileIndex), newMatcher(forOwn, &x.profileIndex)
	return x
}

// putEndpoint creates or changes an endpoint.
func (x *index) putEndpoint(path string, d details) *endpoint {
	ep := x.endpoints[path]
	if ep == nil {
		ep = &endpoint{path: path, service: d.service}
		x.endpoints[path] = ep
		x.all.enter(ep)
	}
	d.addrs = uniqueAddrs(d.addrs)
	if !slices.Equal(ep.addrs, d.addrs) || !slices.Equal(ep.nets, d.nets) || !slices.Equal(ep.ports, d.ports) {
		// End its memberships, which were made with the old addresses, networks and ports.
		x.all.unmatch(ep)
		for _, a := range ep.addrs {
			x.owners.remove(a, ep)
		}
		x.all.setPorts(ep, d.ports)
		ep.addrs, ep.nets = d.addrs, d.nets
		for _, a := range ep.addrs {
			x.owners.add(a, ep)
		}
	}
	if !maps.Equal(ep.labels, d.labels) {
		x.all.setLabels(ep, d.labels)
		if ep.local != nil {
			x.own.setLabels(ep, d.labels)
		}
		ep.labels = d.labels
	}
	if !slices.EqualFunc(ep.profiles, d.profiles, func(p *profile, name string) bool { return p.name == name }) {
		x.setProfiles(ep, d.profiles)
	}
	x.all.rematch(ep)
	if ep.local != nil {
		x.own.rematch(ep)
	}
	return ep
}

func (x *index) removeEndpoint(path string) {
	ep := x.endpoints[path]
	if ep == nil {
		return
	}
	x.all.unmatch(ep)
	x.all.setLabels(ep, nil)
	x.all.setPorts(ep, nil)
	x.all.leave(ep)
	for _, a := range ep.addrs {
		x.owners.remove(a, ep)
	}
	x.disown(ep)
	x.setProfiles(ep, nil)
	delete(x.endpoints, path)
}

// setProfiles sets the profiles that an endpoint refers to. They need not exist.
func (x *index) setProfiles(ep *endpoint, names []string) {
	old := ep.profiles
	ep.profiles = make([]*profile, len(names))
	for i, name := range names {
		p := x.profile(name)
		p.endpoints[forAll].add(ep)
		if ep.local != nil {
			p.endpoints[forOwn].add(ep)
			x.settle(p)
		}
		ep.profiles[i] = p
	}
	for _, p := range old {
		if slices.Contains(ep.profiles, p) {
			continue
		}
		p.endpoints[forAll].remove(ep)
		p.endpoints[forOwn].remove(ep)
		x.settle(p)
	}
}

// adopt turns a known endpoint into one of this host, which is matched against policies.
func (x *index) adopt(ep *endpoint, l *local) {
	ep.local = l
	x.own.enter(ep)
	x.own.setLabelsFrom(ep, nil, ep.labels)
	for _, p := range ep.profiles {
		p.endpoints[forOwn].add(ep)
		x.settle(p)
	}
	x.own.rematch(ep)
}

func (x *index) disown(ep *endpoint) {
	if ep.local == nil {
		return
	}
	x.own.unmatch(ep)
	x.own.setLabelsFrom(ep, ep.labels, nil)
	x.own.leave(ep)
	for _, p := range ep.profiles {
		p.endpoints[forOwn].remove(ep)
		x.settle(p)
	}
	ep.local = nil
}

// owners has the endpoints of each address, usually one.
type owners map[netip.Addr]owner

type owner struct {
	first *endpoint
	more  []*endpoint
}

func (o owners) add(a netip.Addr, ep *endpoint) {
	w := o[a]
	if w.first == nil {
		w.first = ep
	} else {
		w.more = append(w.more, ep)
	}
	o[a] = w
}

func (o owners) remove(a netip.Addr, ep *endpoint) {
	w := o[a]
	switch {
	case w.first == ep && len(w.more) == 0:
		delete(o, a)
		return
	case w.first == ep:
		last := len(w.more) - 1
		w.first, w.more = w.more[last], w.more[:last]
	default:
		w.more = slices.DeleteFunc(w.more, func(x *endpoint) bool { return x == ep })
	}
	o[a] = w
}

// others reports whether f is true for any endpoint with the address other than ep.
func (o owners) others(a netip.Addr, ep *endpoint, f func(*endpoint) bool) bool {
	w := o[a]
	if w.first != nil && w.first != ep && f(w.first) {
		return true
	}
	return slices.ContainsFunc(w.more, func(x *endpoint) bool { return x != ep && f(x) })
}
