// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// decision is everything decided about one prefix.
type decision struct {
	route         *Route
	advertisement *Advertisement
	problems      []Problem
	peers         []netip.Addr // neighbours whose paths the route uses
	passed        bool         // the best paths are not used
}

// decider decides about one prefix.
type decider struct {
	*view
	allocated *allocations
	p         netip.Prefix
	holder    string // the host that etcd gives the prefix to, "" = none
	decision
}

// decide computes the decision about a prefix, from its holder and what BGP knows about it.
func (v *view) decide(p netip.Prefix, allocated *allocations, known learnedRoute) decision {
	r := decider{view: v, allocated: allocated, p: p}
	_, pool, inPool := v.pools.longest(p)
	holder, ours := allocated.holder(p)
	r.holder = holder
	hit := v.hostIn(p)
	r.reportBlock(inPool, hit)
	r.reportEndpoints()
	if inPool && pool.tunnel == "" && !ours && hit == "" {
		r.reportNoNeighbour()
	}
	paths := r.accepted(known.paths)
	refused, astray := "", ""
	switch {
	case holder == v.hosts.self:
		r.route = r.ownRoute(inPool, hit)
		if inPool && hit == "" && !pool.hidden {
			r.advertise(pool)
		}
		refused = "it is this host's own"
	case ours:
		refused = "it lies in a block of this host, or an endpoint of it has it"
	case holder == "" && allocated.inBlock(p):
		refused = "it lies in a block of another host, which etcd does not give to a third"
	case hit != "" && (holder != "" || inPool):
		refused = hit
	case holder != "" && inPool && pool.tunnel != "":
		r.route = r.toHost(pool)
	case inPool && pool.tunnel != "":
		refused = "it lies in a pool with an encapsulation, where routes come from etcd alone, and etcd gives it to no host"
	default:
		if refused = r.strange(); refused == "" {
			astray = r.byBGP(paths, known)
		}
	}
	r.reportForeign()
	if refused != "" && len(paths) > 0 {
		r.report(refusedRoute, p.String(), fmt.Sprintf("neighbour %s sends %s, which is not taken: %s; correct its filters", paths[0].Peer, p, refused))
	} else if astray != "" {
		r.report(refusedRoute, p.String(), astray)
	}
	return r.decision
}

func (r *decider) report(kind ProblemKind, subject, reason string) {
	r.decision.problems = append(r.decision.problems, Problem{ProblemID{kind, subject}, reason})
}

// reportBlock reports problems with a block.
func (r *decider) reportBlock(inPool bool, hit string) {
	block, isBlock := r.allocated.blocks.all[r.p]
	if !isBlock {
		return
	}
	path := model.BlockKey{CIDR: r.p}.Path
	if hit != "" {
		r.report(HostInBlock, path(), fmt.Sprintf("block %s is not routed: %s; delete the pool, and choose one that is used nowhere else", r.p, hit))
	}
	switch self := r.hosts.self; {
	case block.affinity != self || inPool:
	case block.empty():
		r.report(noPool, path(), fmt.Sprintf("block %s of this host is in no pool, and nobody has an address of it: the agent deletes it within minutes, but not where its affinity is strict or auto_allocate_blocks is false; delete it there, and %s",
			r.p, model.AffinityKey{Host: self, CIDR: r.p}.Path()))
	default:
		r.report(noPool, path(), fmt.Sprintf("block %s of this host is in no pool, so other hosts are not told of it: make the pool again, or remove the workloads that have addresses of it", r.p))
	}
	f := familyOf(r.p.Addr())
	if h := r.hosts.byName[block.affinity]; h.exists && !h.addrs[f].addr.IsValid() {
		r.report(noHostAddress, model.BGPHostKey{Host: block.affinity, Field: addrField(f)}.Path(),
			fmt.Sprintf("host %s holds %s blocks but has no address that can be read: they are not routed until its agent has written one: its /debug/invalid says by %[3]s what keeps it from that; where it doesn't, start it with %[3]s, such as %[3]s=first-found",
				block.affinity, familyName(f), addrSetting(f)))
	}
}

// reportEndpoints reports an address that endpoints of several hosts have.
func (r *decider) reportEndpoints() {
	if !r.p.IsSingleIP() {
		return
	}
	a := r.p.Addr()
	hosts := r.allocated.hostsAt(a)
	if len(hosts) < 2 {
		return
	}
	others := "the others"
	for i, host := range hosts {
		theirs := func(n end) bool { return n.host == host }
		if !slices.ContainsFunc(r.allocated.ends[a], func(n end) bool { return theirs(n) && !n.ext }) {
			hosts[i], others = host+" (as ext_ip)", "the others, or their ext_ip"
		}
		if !slices.ContainsFunc(r.allocated.ends[a], func(n end) bool { return theirs(n) && r.allocated.isUp(n) }) {
			hosts[i] += " (not up)"
		}
	}
	r.report(sameEndpointAddress, a.String(), fmt.Sprintf("endpoints of hosts %s have %s: packets go to %s; delete %s",
		strings.Join(hosts, ", "), a, r.allocated.owner(a), others))
}

// reportNoNeighbour reports that only BGP could provide a route to another host's prefix but this host has no neighbour
// of that family. A session carries one family, so a peer of the other one doesn't help.
func (r *decider) reportNoNeighbour() {
	f := familyOf(r.p.Addr())
	if r.holder == "" || r.sessions[f] > 0 || !r.hosts.me()[f].IsValid() || !r.hosts.byName[r.holder].mine[f].IsValid() || r.links.hasOwnRoute(r.p) {
		return
	}
	r.report(noNeighbour, familyName(f), fmt.Sprintf("other hosts hold %s blocks in pools without encapsulation, and no BGP neighbour of that family tells this host routes to them: make one at /calico/bgp/v1/global/peer_v%d/<address>, switch the mesh on, or give the pools an encapsulation",
		familyName(f), 4+2*f))
}

// reportForeign reports that another program has a route to the destination of a route that follows from etcd. (A
// learned route isn't made in that case.)
func (r *decider) reportForeign() {
	foreign := r.links.routes.all[r.p]
	if len(foreign) == 0 || r.route == nil || r.route.Origin == FromBGP {
		return
	}
	theirs, ours := "dev "+foreign[0].Device, "that to host "+r.route.Host
	if foreign[0].Gateway.IsValid() {
		theirs = Hop{Gateway: foreign[0].Gateway, Device: foreign[0].Device}.String()
	}
	if r.route.Origin == FromBlock {
		ours = "that of this host's block"
	}
	r.report(foreignRoute, r.p.String(), fmt.Sprintf("the host has another route to %s, %s, which may come before %s: delete it, or have the program that makes it leave out what lies in pools",
		r.p, theirs, ours))
}

// ownRoute returns the blackhole of one of our blocks. An allocated address has a route to its endpoint, which isn't
// made here. An empty block in no pool has no blackhole: its addresses may belong to another network by now. Nor has a
// block in the subnet of a link with the gateway of another main plugin's workloads, such as bridge's, since there are
// no routes to the individual workloads. For the subnets of other links the main table may have no route; without a
// blackhole, packets to free addresses would come back through the default route again and again.
func (r *decider) ownRoute(inPool bool, hit string) *Route {
	block, isBlock := r.allocated.blocks.all[r.p]
	switch {
	case !isBlock || hit != "" || !inPool && block.empty(),
		r.p.IsSingleIP() && r.allocated.owner(r.p.Addr()) == r.hosts.self,
		slices.ContainsFunc(r.gatewayNets, func(subnet netip.Prefix) bool { return within(r.p, subnet) }):
		return nil
	}
	return &Route{Destination: r.p, Kind: Blackhole, Origin: FromBlock, Host: r.hosts.self}
}

func (r *decider) advertise(pool poolFact) {
	if a := r.hosts.me()[familyOf(r.p.Addr())]; a.IsValid() {
		r.advertisement = &Advertisement{Prefix: r.p, NextHop: a, NoMesh: pool.tunnel != ""}
	}
}

// toHost returns the route to what another host holds in a pool with encapsulation.
func (r *decider) toHost(pool poolFact) *Route {
	h := r.hosts.byName[r.holder]
	outer := h.mine[familyOf(r.p.Addr())]
	if h.exists && !h.alive {
		r.report(deadHost, model.StatusKey{Host: r.holder}.Path(),
			fmt.Sprintf("host %s is taken for dead, as its agent's status is not in etcd: nothing is sent to its workloads in pools with an encapsulation; see that calico-node runs there and reaches etcd, or, if the host is gone, delete what etcd has of it",
				r.holder))
	}
	if !h.alive || !outer.IsValid() {
		return nil
	}
	route := &Route{Destination: r.p, Kind: Unicast, Origin: FromHost, Host: r.holder}
	if by := r.links.reach(outer); pool.cross && by.direct {
		route.Hops, route.Source = slices.Clone(r.links.withCarrier(by.hops)), r.source(r.p)
		return route
	}
	t, ok := r.tunnels[pool.tunnel]
	if !ok {
		return nil
	}
	route.Hops = []Hop{{Gateway: outer, Device: t.Device, OnLink: true}}
	if pool.tunnel == VXLAN6 {
		route.Hops = []Hop{{Gateway: linkLocal(tunnelMAC(VXLAN6, r.holder)), Device: t.Device}}
	}
	return route
}

func (r Route) equal(o Route) bool {
	return r.Destination == o.Destination && r.Kind == o.Kind && slices.Equal(r.Hops, o.Hops) &&
		r.Source == o.Source && r.Origin == o.Origin && r.Host == o.Host
}
