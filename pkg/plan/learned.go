// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// bgpFact is what BGP has to do with a prefix.
type bgpFact struct {
	paths    []Path // that it knows now
	retained *Route // that it made before the agent started anew
}

// remember sets what BGP has to do with a prefix.
func (e *Engine) remember(p netip.Prefix, f bgpFact) {
	if len(f.paths) == 0 && f.retained == nil {
		e.learned.remove(p)
	} else {
		e.learned.set(p, f)
	}
	e.touch(p)
}

func isDestination(p netip.Prefix) bool { return p.IsValid() && p == p.Masked() && !p.Addr().Is4In6() }

// Learn takes in what BGP knows now of some prefixes. A prefix with host bits, or
// of IPv4 written as IPv6, is ignored.
func (e *Engine) Learn(routes ...Learned) {
	for _, l := range routes {
		if f := e.learned.all[l.Prefix]; isDestination(l.Prefix) && !slices.Equal(f.paths, l.Paths) {
			f.paths = slices.Clone(l.Paths)
			slices.SortStableFunc(f.paths, func(a, b Path) int { return cmp.Compare(a.Rank, b.Rank) })
			e.remember(l.Prefix, f)
		}
	}
}

// Retain says which routes BGP had brought into the kernel before the agent started
// anew; they replace those that it said before. They stay as they are, unless they
// must not be taken, until their prefix is learned again or they are no longer
// retained: say so, with none, when the neighbours have told all that they know.
func (e *Engine) Retain(routes ...Route) {
	for p, f := range e.learned.all {
		if f.retained != nil {
			f.retained = nil
			e.remember(p, f)
		}
	}
	for _, r := range routes {
		if r.Kind != Unicast || len(r.Hops) == 0 || !isDestination(r.Destination) {
			continue
		}
		r.Hops, r.Origin, r.Host = slices.Clone(r.Hops), FromBGP, ""
		f := e.learned.all[r.Destination]
		f.retained = &r
		e.remember(r.Destination, f)
	}
}

// accepted are the paths of a learned prefix that the filters of their neighbours
// let in. The speaker filters as well; this follows at once when filters or pools
// change.
func (e *Engine) accepted(p netip.Prefix, n *needs) []Path {
	var paths []Path
	for _, path := range e.learned.all[p].paths {
		n.peers = append(n.peers, path.Peer)
		if neighbour, ok := e.neighbourNow(path.Peer); ok && neighbour.takes(p, e.speaker.Import) {
			paths = append(paths, path)
		}
	}
	return paths
}

// toHolder leaves out the paths of a prefix that lead to another host than the one that etcd
// gives it to, if any: a host that is cut off from etcd announces what it has lost. It
// says of one of them what is wrong. What comes by switches and reflectors stays.
func (e *Engine) toHolder(p netip.Prefix, holder string, paths []Path, n *needs) (fit []Path, astray string) {
	if holder == "" {
		return paths, ""
	}
	for _, path := range paths {
		n.gateways = append(n.gateways, path.NextHop)
		other := e.otherThan(holder, path.NextHop)
		if other == "" && e.claims[path.NextHop] == nil {
			if from, _ := e.neighbourNow(path.Peer); from.Kind == FromMesh && from.Host != holder {
				other = from.Host
			}
		}
		switch {
		case other == "" || e.isSelf(path.NextHop):
			fit = append(fit, path)
		case astray == "":
			astray = fmt.Sprintf("neighbour %s sends %s with next hop %s, which is not taken: that is host %s, and etcd gives it to host %s; see whether the agent of host %s is cut off from etcd",
				path.Peer, p, path.NextHop, other, holder, other)
		}
	}
	return fit, astray
}

// Used counts, by neighbour, the routes of the last Flush that go by paths which it sent.
func (e *Engine) Used() map[netip.Addr]int {
	used := map[netip.Addr]int{}
	for p, r := range e.told.Routes {
		if r.Origin != FromBGP {
			continue
		}
		var n needs // of no use here
		holder, _ := e.holder(p)
		fit, _ := e.toHolder(p, holder, e.accepted(p, &n), &n)
		taken, _ := e.usable(p, fit)
		for _, path := range taken {
			if slices.ContainsFunc(e.reach(path.NextHop).hops, func(h Hop) bool { return slices.Contains(r.Hops, h) }) {
				used[path.Peer]++
			}
		}
	}
	return used
}

// otherThan is the host that has an address, where that isn't the holder; "" = none.
func (e *Engine) otherThan(holder string, a netip.Addr) string {
	if _, ok := e.claims[a][holder]; ok {
		return ""
	}
	return e.hostAt(a)
}

// leadsTo reports whether a route of a former run doesn't lead to another host than the holder.
func (e *Engine) leadsTo(holder string, r *Route, n *needs) bool {
	if holder == "" {
		return true
	}
	to := true
	for _, h := range r.Hops {
		n.gateways = append(n.gateways, h.Gateway)
		to = to && e.otherThan(holder, h.Gateway) == ""
	}
	return to
}

// takes reports whether a neighbour may send a prefix.
func (n *Neighbour) takes(p netip.Prefix, imports []netip.Prefix) bool {
	if p.Addr().Is4() != n.Address.Is4() {
		return false
	}
	for _, f := range n.Import {
		if within(p, f.CIDR.Masked()) {
			return f.Action == "accept"
		}
	}
	return slices.ContainsFunc(imports, func(outer netip.Prefix) bool { return within(p, outer) })
}

// strange says why nobody may send us a prefix, "" = it is an ordinary one.
func (e *Engine) strange(p netip.Prefix) string {
	for _, text := range []string{"127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::1/128", "fe80::/10", "ff00::/8"} {
		if within(p, netip.MustParsePrefix(text)) {
			return "it lies in " + text
		}
	}
	if _, ok := e.links.routes.all[p]; ok {
		return "the host has a route of its own to it"
	}
	if _, ok := e.links.subnets.all[p]; ok {
		return "it is the subnet of a link of this host"
	}
	for _, f := range e.fabric {
		if within(p, f.Masked()) {
			return fmt.Sprintf("it lies in %s, the subnet of a link of this host", f.Masked())
		}
	}
	switch a := p.Addr(); {
	case !p.IsSingleIP():
	case e.claims[a] != nil:
		return "it is the address of a host"
	case e.neededAt(a) == etcdName:
		return "it is the address of etcd"
	}
	return ""
}

// learnedRoute is the route by the best paths whose next hop can be reached, nil where
// none can, and says whether better ones had to be passed over.
func (e *Engine) learnedRoute(p netip.Prefix, paths []Path, n *needs) (route *Route, passed bool) {
	r := &Route{Destination: p, Kind: Unicast, Origin: FromBGP}
	used, tried := e.usable(p, paths)
	for _, path := range tried {
		n.gateways = append(n.gateways, path.NextHop)
		n.hops = append(n.hops, path.NextHop)
	}
	if len(used) == 0 {
		return nil, true
	}
	for _, path := range used {
		r.Hops = append(r.Hops, e.reach(path.NextHop).hops...)
	}
	r.Hops = distinct(e.heard(r.Hops))
	r.Source = e.source(p)
	// Without a carrier anywhere a worse path would do better.
	return r, used[0].Rank > 0 || e.links.silent[r.Hops[0].Device]
}

// usable are the best of the paths whose next hop can be reached (RFC 4271, section 9.1.2,
// leaves out the others before it compares), by a link with a carrier if there is one, and
// those that were tried, these included.
func (e *Engine) usable(p netip.Prefix, paths []Path) (used, tried []Path) {
	heard := false
	for _, path := range paths {
		a := path.NextHop
		if heard && path.Rank != used[0].Rank {
			break
		}
		if !a.IsValid() || a.Is4() != p.Addr().Is4() || e.isSelf(a) {
			continue
		}
		tried = append(tried, path)
		hops := e.reach(a).hops
		carried := slices.ContainsFunc(hops, func(h Hop) bool { return !e.links.silent[h.Device] })
		if worse := len(used) > 0 && used[0].Rank != path.Rank; worse && !carried || len(hops) == 0 {
			continue
		} else if worse {
			used = nil
		}
		used, heard = append(used, path), heard || carried
	}
	return used, tried
}

// Passed gives prefixes, so many at most, of which the best paths are not used, or none: BGP
// tells by itself only of what becomes of the best ones.
func (e *Engine) Passed(most int) []netip.Prefix {
	var list []netip.Prefix
	for p := range e.passed {
		if len(list) == most {
			break
		}
		list = append(list, p)
	}
	return list
}

// distinct sorts next hops and has each neighbour once, which is on the link if it is so for any of
// the routes that lead to it.
func distinct(hops []Hop) []Hop {
	var list []Hop
	for _, h := range hops {
		i, there := slices.BinarySearchFunc(list, h, compareHops)
		if !there {
			list = slices.Insert(list, i, h)
		}
		list[i].OnLink = list[i].OnLink || h.OnLink
	}
	return list
}

func compareHops(a, b Hop) int {
	return cmp.Or(a.Gateway.Compare(b.Gateway), cmp.Compare(a.Device, b.Device))
}
