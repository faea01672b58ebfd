// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
)

// learnedRoute is what BGP contributes to a prefix.
type learnedRoute struct {
	paths    []Path // currently known
	retained *Route // installed before the agent restarted
}

// accepted returns those of a prefix's paths that their neighbours' filters accept. The speaker filters too, but this
// takes effect at once when filters or pools change.
func (r *decider) accepted(paths []Path) []Path {
	var accepted []Path
	for _, path := range paths {
		if n, ok := r.neighbours[path.Peer]; ok && n.takes(r.p, r.speaker.Import) {
			accepted = append(accepted, path)
		}
	}
	return accepted
}

// byBGP makes the route learned by BGP. astray describes a path that leads to another host than the one that etcd gives
// the prefix to: a host that is cut off from etcd announces prefixes that it has lost. Paths through switches and
// reflectors are fine.
func (r *decider) byBGP(paths []Path, known learnedRoute) (astray string) {
	var fit []Path
	for _, path := range paths {
		switch other := r.leadsAstray(path); {
		case other == "":
			fit = append(fit, path)
		case astray == "":
			astray = fmt.Sprintf("neighbour %s sends %s with next hop %s, which is not taken: that is host %s, and etcd gives it to host %s; see whether the agent of host %s is cut off from etcd",
				path.Peer, r.p, path.NextHop, other, r.holder, other)
		}
	}
	used := r.usable(fit)
	r.passed = len(paths) > 0 && len(used) == 0
	if len(used) > 0 {
		r.learn(used)
	}
	if known.retained != nil && len(known.paths) == 0 && r.suits(known.retained) {
		r.route = known.retained
	}
	return astray
}

// leadsAstray returns the host that a path leads to if etcd gives the prefix to another one, else "".
func (r *decider) leadsAstray(path Path) string {
	if r.holder == "" || r.isSelf(path.NextHop) {
		return ""
	}
	other := r.hosts.otherThan(r.holder, path.NextHop)
	if other == "" && r.hosts.claims[path.NextHop] == nil {
		if from := r.neighbours[path.Peer]; from.Kind == FromMesh && from.Host != r.holder {
			other = from.Host
		}
	}
	return other
}

// suits reports whether a route of a former run doesn't lead to another host than the holder.
func (r *decider) suits(retained *Route) bool {
	return r.holder == "" || !slices.ContainsFunc(retained.Hops, func(h Hop) bool { return r.hosts.otherThan(r.holder, h.Gateway) != "" })
}

// usable returns the best of the paths whose next hop is reachable (RFC 4271, section 9.1.2, excludes the others before
// comparing), through a link with a carrier if there is one. It reports unreachable next hops.
func (r *decider) usable(paths []Path) (used []Path) {
	carried := false
	for _, path := range paths {
		a := path.NextHop
		if carried && path.Rank != used[0].Rank {
			break
		}
		if !a.IsValid() || a.Is4() != r.p.Addr().Is4() || r.isSelf(a) {
			continue
		}
		hops := r.links.reach(a).hops
		if len(hops) == 0 {
			r.reportNextHop(a)
			continue
		}
		hasCarrier := r.links.hasCarrier(hops)
		if len(used) > 0 && used[0].Rank != path.Rank {
			if !hasCarrier {
				continue
			}
			used = nil
		}
		used, carried = append(used, path), carried || hasCarrier
	}
	return used
}

func (r *decider) reportNextHop(a netip.Addr) {
	reason := fmt.Sprintf("no link that is up and no route of this host leads to next hop %s: what BGP learned by way of it is left out", a)
	if subnet, _, ok := r.links.subnets.longest(single(a)); ok && isBroadcast(a, subnet) {
		reason = fmt.Sprintf("next hop %s is the broadcast address of %s: what BGP learned by way of it is left out; have the neighbour send another", a, subnet)
	}
	if !slices.ContainsFunc(r.decision.problems, func(p Problem) bool { return p.Kind == noNextHop && p.Subject == a.String() }) {
		r.report(noNextHop, a.String(), reason)
	}
}

// learn makes a route from the paths in use, with ECMP for equally good ones.
func (r *decider) learn(used []Path) {
	route := &Route{Destination: r.p, Kind: Unicast, Origin: FromBGP, Source: r.source(r.p)}
	for _, path := range used {
		route.Hops = append(route.Hops, r.links.reach(path.NextHop).hops...)
	}
	route.Hops = distinct(r.links.withCarrier(route.Hops))
	for _, path := range used {
		if slices.ContainsFunc(r.links.reach(path.NextHop).hops, func(h Hop) bool { return slices.Contains(route.Hops, h) }) {
			r.peers = append(r.peers, path.Peer)
		}
	}
	r.route = route
	// Without a carrier anywhere, a worse path might be better.
	r.passed = used[0].Rank > 0 || !r.links.hasCarrier(route.Hops)
}

// special are the prefixes in which no route is learned from any neighbour.
var special = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// strange says why no neighbour may send us the prefix, "" if it is an ordinary one.
func (r *decider) strange() string {
	for _, s := range special {
		if within(r.p, s) {
			return fmt.Sprintf("it lies in %s", s)
		}
	}
	if _, ok := r.links.routes.all[r.p]; ok {
		return "the host has a route of its own to it"
	}
	if _, ok := r.links.subnets.all[r.p]; ok {
		return "it is the subnet of a link of this host"
	}
	if subnet, ok := r.inFabric(r.p); ok {
		return fmt.Sprintf("it lies in %s, the subnet of a link of this host", subnet)
	}
	switch a := r.p.Addr(); {
	case !r.p.IsSingleIP():
	case r.hosts.claims[a] != nil:
		return "it is the address of a host"
	case r.needed[a] == etcdName:
		return "it is the address of etcd"
	}
	return ""
}
