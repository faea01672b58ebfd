// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// view is what all routes depend on: hosts, pools, links, tunnels and BGP. It is recomputed when any of these changes,
// which is rare. Blocks, endpoints and learned routes change all the time, and are not part of it.
type view struct {
	hosts  hosts
	links  *links
	pools  *index[poolFact]
	needed map[netip.Addr]string // what this host depends on, by address
	fixed  []netip.Addr          // the keys of needed, sorted
	fabric []netip.Prefix        // addresses of the uplinks, with their subnets
	// gatewayNets are the subnets of links with the gateway of another main plugin's workloads.
	gatewayNets []netip.Prefix
	// later maps pools that ipam doesn't use, because they overlap an older one, to the oldest such pool.
	later map[netip.Prefix]netip.Prefix

	tunnels    map[TunnelKind]Tunnel
	devices    Devices
	remotes    map[RemoteID]Remote
	mtu        mtu
	speaker    Speaker
	named      []namedPeer
	neighbours map[netip.Addr]Neighbour
	sessions   [2]int // number of neighbours of each family
	problems   map[ProblemID]Problem
}

// newView computes the complete view.
func (e *engine) newView() *view {
	v := &view{
		hosts: newHosts(e.self, e.said), links: e.links, pools: &e.pools,
		needed: map[netip.Addr]string{}, tunnels: map[TunnelKind]Tunnel{}, remotes: map[RemoteID]Remote{},
		neighbours: map[netip.Addr]Neighbour{}, problems: map[ProblemID]Problem{},
	}
	for _, p := range v.hosts.shared() {
		v.problems[p.ProblemID] = p
	}
	v.named = e.namedPeers()
	v.findNeeded(e)
	uplinks := v.links.uplinks(v.hosts.me())
	for _, l := range uplinks {
		v.fabric = append(v.fabric, l.Addrs...)
	}
	for subnet := range v.links.networks {
		if e.allocations.isGateway(subnet.Addr()) {
			v.gatewayNets = append(v.gatewayNets, subnet.Masked())
		}
	}
	used := v.poolsInUse()
	inside := v.setMTU(e.settings, uplinks, used)
	v.setTunnels(e, inside, used)
	v.setRemotes()
	v.setSpeaker(e)
	v.setNeighbours(e)
	v.later = e.laterPools()
	v.reportOverlaps(&e.allocations)
	return v
}

// report reports a problem. Of several with the same subject, the first one counts.
func (v *view) report(kind ProblemKind, subject, reason string) {
	id := ProblemID{kind, subject}
	if _, ok := v.problems[id]; !ok {
		v.problems[id] = Problem{id, reason}
	}
}

// etcdName is etcd's name in needed.
const etcdName = "etcd"

// findNeeded finds the addresses of etcd and of this host's explicit peers, without those that are workloads of the
// cluster: these are reached through routes to workloads.
func (v *view) findNeeded(e *engine) {
	addrs := slices.Collect(maps.Keys(e.peers))
	for _, p := range v.named {
		addrs = append(addrs, p.IP)
	}
	for _, a := range addrs {
		if a.IsValid() && v.isPeer(e, a) && len(e.allocations.ends[a]) == 0 {
			v.needed[a] = "a BGP neighbour"
		}
	}
	for a, byRoutes := range e.etcd {
		if !byRoutes || len(e.allocations.ends[a]) == 0 {
			v.needed[a] = etcdName
		}
	}
	v.fixed = slices.SortedFunc(maps.Keys(v.needed), netip.Addr.Compare)
}

// firstIn returns the first of a sorted list of addresses that lies in a prefix.
func firstIn(list []netip.Addr, p netip.Prefix) (netip.Addr, bool) {
	i, _ := slices.BinarySearchFunc(list, p.Addr(), netip.Addr.Compare)
	if i < len(list) && p.Contains(list[i]) {
		return list[i], true
	}
	return netip.Addr{}, false
}

// hostIn says which part of the hosts' own network, or of what they depend on, overlaps a prefix; "" = none. Routing
// such a prefix would cut hosts off.
func (v *view) hostIn(p netip.Prefix) string {
	if a, ok := firstIn(v.hosts.addrs, p); ok {
		return fmt.Sprintf("%s, the address of a host, lies in it", a)
	}
	if a, ok := firstIn(v.fixed, p); ok {
		return fmt.Sprintf("%s, the address of %s, lies in it", a, v.needed[a])
	}
	for _, f := range v.fabric {
		if p.Contains(f.Addr()) {
			return fmt.Sprintf("%s, an address of this host, lies in it", f.Addr())
		}
	}
	if subnet, ok := v.inFabric(p); ok {
		return fmt.Sprintf("it lies in %s, the subnet of a link of this host", subnet)
	}
	return ""
}

// inFabric returns the subnet of an uplink that contains a prefix.
func (v *view) inFabric(p netip.Prefix) (netip.Prefix, bool) {
	for _, f := range v.fabric {
		if within(p, f.Masked()) {
			return f.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// isSelf reports whether an address is one of this host's. An address of another host that a link was just given is
// not: the kernel is about to refuse it (duplicate address detection).
func (v *view) isSelf(a netip.Addr) bool {
	_, onLink := v.links.own[a]
	if name := v.hosts.at(a); v.links.pending[a] && name != v.hosts.self && name != "" {
		return false
	}
	return onLink || a.IsValid() && a == v.hosts.me()[familyOf(a)]
}

// source returns the address from which the host sends if no tunnel changes its packets: the one by which the other
// hosts know it.
func (v *view) source(p netip.Prefix) netip.Addr {
	a := v.hosts.me()[familyOf(p.Addr())]
	if _, ok := v.links.own[a]; !ok {
		return netip.Addr{}
	}
	return a
}

// poolsInUse returns the pools of each kind of tunnel, sorted.
func (v *view) poolsInUse() map[TunnelKind][]netip.Prefix {
	used := map[TunnelKind][]netip.Prefix{}
	for _, p := range slices.SortedFunc(maps.Keys(v.pools.all), comparePrefixes) {
		if kind := v.pools.all[p].tunnel; kind != "" {
			used[kind] = append(used[kind], p)
		}
	}
	return used
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// laterPools finds the pools that overlap an older one, if both assign addresses or may do so once they can be read.
func (e *engine) laterPools() map[netip.Prefix]netip.Prefix {
	entry := func(p netip.Prefix) *object { return e.objects.byKey[model.PoolKey{CIDR: p}] }
	var giving []netip.Prefix
	later := map[netip.Prefix]netip.Prefix{}
	for _, p := range slices.SortedFunc(maps.Keys(e.pools.all), func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(entry(a).created, entry(b).created), a.Compare(b))
	}) {
		if !e.pools.all[p].gives && entry(p).err == nil {
			continue
		}
		if i := slices.IndexFunc(giving, p.Overlaps); i >= 0 {
			later[p] = giving[i]
		} else {
			giving = append(giving, p)
		}
	}
	return later
}

// reportOverlaps reports pools that overlap an older one, or a subnet of the host's own links.
func (v *view) reportOverlaps(allocated *allocations) {
	for p := range v.pools.all {
		reason := v.overlapOf(p, allocated)
		if older, ok := v.later[p]; ok {
			over := fmt.Sprintf("pool %s overlaps pool %s, which is older: nothing is given out from %s; delete or disable one of them", p, older, p)
			reason = strings.TrimSuffix(over+"; "+reason, "; ")
		}
		if reason != "" {
			v.report(poolOverlap, model.PoolKey{CIDR: p}.Path(), reason)
		}
	}
}

// overlapOf says which subnet of a link a pool overlaps, "" = none. A subnet of the hosts' own network comes first.
func (v *view) overlapOf(p netip.Prefix, allocated *allocations) string {
	other := ""
	for _, l := range v.links.all {
		for _, subnet := range l.Addrs {
			if !subnet.IsValid() || !subnet.Overlaps(p) || allocated.isGateway(subnet.Addr()) {
				continue
			}
			overlap := fmt.Sprintf("pool %s overlaps %s, the subnet of %s", p, subnet.Masked(), l.Name)
			if slices.Contains(v.fabric, subnet) {
				return overlap + ": blocks in the hosts' own subnets are not routed; delete the pool, and choose one that is used nowhere else"
			}
			other = cmp.Or(other, overlap+": its blocks are routed all the same, so a workload may be given an address that is in use on that link, and hosts reach only one of the two; give the link another subnet, or delete the pool and choose one that is used nowhere else")
		}
	}
	return other
}
