// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// needs are what a route was made from, beside what bears its very prefix.
type needs struct {
	host     string       // that it leads to, or would
	gateways []netip.Addr // that were resolved for it
	hops     []netip.Addr // those of them without which the route can't be
	peers    []netip.Addr // that its paths came from
}

func (n needs) empty() bool {
	return n.host == "" && len(n.gateways) == 0 && len(n.peers) == 0
}

// refresh works out all that is said of one prefix.
func (e *Engine) refresh(p netip.Prefix) {
	var n needs
	route, advertisement := e.decide(p, &n)
	e.need(p, n)
	e.reportForeign(p, route)
	tellBy(e.out.Routes, e.told.Routes, p, route, Route.equal)
	tell(e.out.Advertisements, e.told.Advertisements, p, advertisement)
}

// reportForeign says that another program has a route to the destination of one that
// follows from etcd. One that is learned isn't made then.
func (e *Engine) reportForeign(p netip.Prefix, r *Route) {
	reason := ""
	if hops := e.links.routes.all[p]; len(hops) > 0 && r != nil && r.Origin != FromBGP {
		foreign := hops[0]
		way, ours := "dev "+foreign.Device, "that to host "+r.Host
		if foreign.Gateway.IsValid() {
			way = Hop{Gateway: foreign.Gateway, Device: foreign.Device}.String()
		}
		if r.Origin == FromBlock {
			ours = "that of this host's block"
		}
		reason = fmt.Sprintf("the host has another route to %s, %s, which may come before %s: delete it, or have the program that makes it leave out what lies in pools",
			p, way, ours)
	}
	e.report(ForeignRoute, p.String(), reason)
}

func (r Route) equal(o Route) bool {
	return r.Destination == o.Destination && r.Kind == o.Kind && slices.Equal(r.Hops, o.Hops) &&
		r.Source == o.Source && r.Origin == o.Origin && r.Host == o.Host
}

// need remembers what a route was made from.
func (e *Engine) need(p netip.Prefix, n needs) {
	was := e.needs[p]
	if was.host != n.host && was.host != "" {
		e.byHost.remove(was.host, p)
	}
	for _, a := range was.peers {
		e.byPeer.remove(a, p)
	}
	for _, a := range was.gateways {
		e.byGateway.remove(a, p)
	}
	for _, a := range was.hops {
		e.hopUsers.remove(a, p)
	}
	if n.host != "" {
		e.byHost.add(n.host, p)
	}
	if was.host != n.host {
		for _, name := range []string{was.host, n.host} {
			if name != "" {
				e.reportDead(name)
			}
		}
	}
	for _, a := range n.peers {
		e.byPeer.add(a, p)
	}
	for _, a := range n.gateways {
		e.byGateway.add(a, p)
	}
	for _, a := range n.hops {
		e.hopUsers.add(a, p)
	}
	for _, list := range [][]netip.Addr{was.gateways, n.gateways} {
		for _, a := range list {
			if e.byGateway[a] == nil {
				delete(e.reached, a)
			} else if _, ok := e.reached[a]; !ok {
				e.reached[a] = e.reachNow(a)
			}
			e.reportHop(a)
		}
	}
	if n.empty() {
		delete(e.needs, p)
	} else {
		e.needs[p] = n
	}
}

// reportHop says of a next hop whether it can be reached.
func (e *Engine) reportHop(a netip.Addr) {
	reason := ""
	if e.hopUsers[a] != nil && !e.reach(a).ok() {
		reason = fmt.Sprintf("no link that is up and no route of this host leads to next hop %s: what BGP learned by way of it is left out", a)
		if subnet, _, ok := e.links.subnets.longest(single(a)); ok && isBroadcast(a, subnet) {
			reason = fmt.Sprintf("next hop %s is the broadcast address of %s: what BGP learned by way of it is left out; have the neighbour send another", a, subnet)
		}
	}
	e.report(NoNextHop, a.String(), reason)
}

// decide works out the route and the advertisement of a prefix, at most one of each.
func (e *Engine) decide(p netip.Prefix, n *needs) (*Route, *Advertisement) {
	_, pool, inPool := e.pools.longest(p)
	holder, ours := e.holder(p)
	hit := e.hostIn(p)
	e.reportPrefix(p, inPool, hit)
	from := ""
	if inPool && pool.tunnel == "" && !ours && hit == "" {
		from = holder
	}
	e.await(p, from)
	paths := e.accepted(p, n)
	refused, astray, passed := "", "", false
	var route *Route
	var advertisement *Advertisement
	switch {
	case holder == e.self:
		route = e.ownRoute(p, inPool, hit)
		if inPool && hit == "" {
			advertisement = e.advertise(p, pool)
		}
		refused = "it is this host's own"
	case ours:
		refused = "it lies in a block of this host, or an endpoint of it has it"
	case e.inBlock(p) && holder == "":
		refused = "it lies in a block of another host, which etcd does not give to a third"
	case hit != "" && (holder != "" || inPool):
		refused = hit
	case holder != "" && inPool && pool.tunnel != "":
		route = e.toHost(p, holder, pool, n)
	case !inPool || pool.tunnel == "":
		if refused = e.strange(p); refused == "" {
			var fit []Path
			fit, astray = e.toHolder(p, holder, paths, n)
			route, passed = e.learnedRoute(p, fit, n)
			passed = passed && len(paths) > 0
			if was := e.learned.all[p]; was.retained != nil && len(was.paths) == 0 && e.leadsTo(holder, was.retained, n) {
				route = was.retained
			}
		}
	default:
		refused = "it lies in a pool with an encapsulation, where routes come from etcd alone, and etcd gives it to no host"
	}
	if passed {
		e.passed[p] = struct{}{}
	} else {
		delete(e.passed, p)
	}
	if len(paths) == 0 {
		refused = ""
	} else if refused != "" {
		refused = fmt.Sprintf("neighbour %s sends %s, which is not taken: %s; correct its filters", paths[0].Peer, p, refused)
	}
	e.report(RefusedRoute, p.String(), cmp.Or(refused, astray))
	return route, advertisement
}

// holder is the host that packets to a prefix must go to by what etcd says, ""
// where it does not say, or a larger block says it. ours: it lies in what is this
// host's.
func (e *Engine) holder(p netip.Prefix) (host string, ours bool) {
	at, block, ok := e.blocks.longest(p)
	affinity, exact := "", ok && at == p
	if ok {
		affinity = block.affinity
	}
	ours = affinity == e.self && ok
	if p.IsSingleIP() {
		owner := e.owner(p.Addr())
		switch {
		case owner != e.self && slices.ContainsFunc(e.ends[p.Addr()], func(n end) bool { return n.host == e.self }):
			return "", true // two hosts have it: here it is led to our endpoint
		case owner != "" && (exact || owner != affinity):
			return owner, owner == e.self
		}
	}
	if exact {
		return affinity, ours
	}
	return "", ours
}

// inBlock reports whether a prefix is a part of a block with an affinity.
func (e *Engine) inBlock(p netip.Prefix) bool {
	at, block, ok := e.blocks.longest(p)
	return ok && at != p && block.affinity != ""
}

// end is that the active endpoint of a host has an address.
type end struct {
	host string
	ext  bool // as ext_ip, not for its own
}

// endsAt are the hosts of the active endpoints with an address, in order.
func (e *Engine) endsAt(a netip.Addr) []string {
	var hosts []string
	for _, end := range e.ends[a] {
		hosts = append(hosts, end.host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// owner is the host that has an address: the one whose endpoint has it, be it as ext_ip
// where it is no endpoint's own, else the one for which it is allocated. Of several that
// have such endpoints, the one for which it is allocated, else the first by name.
func (e *Engine) owner(a netip.Addr) string {
	allocated := ""
	if at, block, ok := e.blocks.longest(single(a)); ok && block.isTaken(ordinal(at, a)) {
		if allocated = block.others[a]; allocated == "" {
			allocated = block.affinity
		}
	}
	ends := e.ends[a]
	own := slices.ContainsFunc(ends, func(n end) bool { return !n.ext })
	first := ""
	for _, n := range ends {
		switch {
		case own && n.ext:
		case n.host == allocated:
			return allocated
		case first == "" || n.host < first:
			first = n.host
		}
	}
	return cmp.Or(first, allocated)
}

// ordinal is the place of an address in its block, which has 2^12 at most.
func ordinal(block netip.Prefix, a netip.Addr) int {
	b := a.AsSlice()
	low := int(b[len(b)-2])<<8 | int(b[len(b)-1])
	return low & (1<<(a.BitLen()-block.Bits()) - 1)
}

// hostIn says which part of the hosts' own network, or of what they need of it, lies in
// a prefix, or has the prefix inside; "" = none. To route such a prefix would cut hosts off.
func (e *Engine) hostIn(p netip.Prefix) string {
	i, _ := slices.BinarySearchFunc(e.addrs, p.Addr(), netip.Addr.Compare)
	if i < len(e.addrs) && p.Contains(e.addrs[i]) {
		return fmt.Sprintf("%s, the address of a host, lies in it", e.addrs[i])
	}
	if a, what := e.neededIn(p); what != "" {
		return fmt.Sprintf("%s, the address of %s, lies in it", a, what)
	}
	for _, f := range e.fabric {
		switch {
		case p.Contains(f.Addr()):
			return fmt.Sprintf("%s, an address of this host, lies in it", f.Addr())
		case within(p, f.Masked()):
			return fmt.Sprintf("it lies in %s, the subnet of a link of this host", f.Masked())
		}
	}
	return ""
}

func (e *Engine) reportPrefix(p netip.Prefix, inPool bool, hit string) {
	block, isBlock := e.blocks.all[p]
	path, reason := model.BlockKey{CIDR: p}.Path(), ""
	if isBlock && hit != "" {
		reason = fmt.Sprintf("block %s is not routed: %s; delete the pool, and choose one that is used nowhere else", p, hit)
	}
	e.report(HostInBlock, path, reason)
	reason = ""
	if isBlock && block.affinity == e.self && !inPool {
		reason = fmt.Sprintf("block %s of this host is in no pool, so other hosts are not told of it: make the pool again, or remove the workloads that have addresses of it", p)
		if block.empty() {
			reason = fmt.Sprintf("block %s of this host is in no pool, and nobody has an address of it: the agent deletes it within minutes, but not where its affinity is strict or auto_allocate_blocks is false; delete it there, and %s",
				p, model.AffinityKey{Host: e.self, CIDR: p}.Path())
		}
	}
	e.report(NoPool, path, reason)
	if !p.IsSingleIP() {
		return
	}
	reason = ""
	if hosts := e.endsAt(p.Addr()); len(hosts) > 1 {
		others := "the others"
		for i, host := range hosts {
			if !slices.Contains(e.ends[p.Addr()], end{host: host}) {
				hosts[i], others = host+" (as ext_ip)", "the others, or their ext_ip"
			}
		}
		reason = fmt.Sprintf("endpoints of hosts %s have %s: packets go to %s; delete %s",
			strings.Join(hosts, ", "), p.Addr(), e.owner(p.Addr()), others)
	}
	e.report(SameEndpointAddress, p.Addr().String(), reason)
}

// ownRoute is the blackhole of a block of ours. An address that is taken has a
// route to its endpoint, which is not ours to make. An empty block that is in no pool has
// none: its addresses may be another network's now. Nor has one behind a gateway.
func (e *Engine) ownRoute(p netip.Prefix, inPool bool, hit string) *Route {
	block, isBlock := e.blocks.all[p]
	if !isBlock || hit != "" || p.IsSingleIP() && e.owner(p.Addr()) == e.self || !inPool && block.empty() || e.behindGateway(p) {
		return nil
	}
	return &Route{Destination: p, Kind: Blackhole, Origin: FromBlock, Host: e.self}
}

// behindGateway reports whether a prefix lies in the subnet of a link with the gateway of another
// main plugin's workloads, such as bridge's: no route leads to each of them. Of any other link's
// subnet the main table may have no route, and what is sent to a free address would come back by
// the default route, again and again.
func (e *Engine) behindGateway(p netip.Prefix) bool {
	for subnet := range e.links.networks {
		if within(p, subnet.Masked()) && e.isGateway(subnet.Addr()) {
			return true
		}
	}
	return false
}

func (e *Engine) advertise(p netip.Prefix, pool poolFact) *Advertisement {
	a := e.hosts[e.self].mine[familyOf(p.Addr())]
	if !a.IsValid() {
		return nil
	}
	return &Advertisement{Prefix: p, NextHop: a, NoMesh: pool.tunnel != ""}
}

// toHost is the route to what another host holds in a pool with an encapsulation.
func (e *Engine) toHost(p netip.Prefix, name string, pool poolFact, n *needs) *Route {
	n.host = name
	h := e.hosts[name]
	outer := h.mine[familyOf(p.Addr())]
	if !h.alive || !outer.IsValid() {
		return nil
	}
	r := &Route{Destination: p, Kind: Unicast, Origin: FromHost, Host: name}
	if pool.cross {
		n.gateways = append(n.gateways, outer)
		if by := e.reach(outer); by.direct {
			r.Hops, r.Source = slices.Clone(e.heard(by.hops)), e.source(p)
			return r
		}
	}
	t, ok := e.tunnels[pool.tunnel]
	if !ok {
		return nil
	}
	hop := Hop{Gateway: outer, Device: t.Device, OnLink: true}
	if pool.tunnel == VXLAN6 {
		hop = Hop{Gateway: linkLocal(tunnelMAC(VXLAN6, name)), Device: t.Device}
	}
	r.Hops = []Hop{hop}
	return r
}

// source is what the host shall send from when no tunnel changes its packets: the
// address that the other hosts know it by.
func (e *Engine) source(p netip.Prefix) netip.Addr {
	a := e.hosts[e.self].mine[familyOf(p.Addr())]
	if _, ok := e.links.own[a]; !ok {
		return netip.Addr{}
	}
	return a
}
