// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"net/netip"
	"slices"
)

// SetEtcd replaces the addresses of etcd that are known. Of each it says whether
// packets to it went by a route of ours while etcd answered: only then may etcd be a
// workload of the cluster, at the address of an endpoint. That an endpoint has the
// address is not enough: in a pool over the hosts' own network one gets it by mistake.
func (e *Engine) SetEtcd(addrs map[netip.Addr]bool) {
	if maps.Equal(addrs, e.etcd) {
		return
	}
	was := e.etcd
	e.etcd = maps.Clone(addrs)
	for _, set := range []map[netip.Addr]bool{was, addrs} {
		for a := range set {
			e.fix(a)
		}
	}
}

// fix follows what became of an address that may be one that this host can't do without.
func (e *Engine) fix(a netip.Addr) {
	_, is := e.etcd[a]
	is = is || e.isPeer(a)
	i, was := slices.BinarySearchFunc(e.fixed, a, netip.Addr.Compare)
	switch {
	case is && !was:
		e.fixed = slices.Insert(e.fixed, i, a)
	case !is && was:
		e.fixed = slices.Delete(e.fixed, i, i+1)
	}
	if is || was {
		e.touchAround(a)
		e.dirty.config = true // a tunnel of ours may have it
	}
}

// isPeer reports whether this host has an explicit peer of this address.
func (e *Engine) isPeer(a netip.Addr) bool {
	hosts := e.peers[a]
	_, own := hosts[e.self]
	_, all := hosts[""]
	return own || all
}

// etcdName is what neededAt calls etcd.
const etcdName = "etcd"

// neededAt says what this host can't do without has an address, "" = nothing. What is a
// workload of the cluster is reached by routes to workloads.
func (e *Engine) neededAt(a netip.Addr) string {
	taken := len(e.ends[a]) > 0
	if byRoutes, ok := e.etcd[a]; ok && !(byRoutes && taken) {
		return etcdName
	}
	if e.isPeer(a) && !taken {
		return "a BGP neighbour"
	}
	return ""
}

// neededIn is an address of those in a prefix, and what has it; "" = none.
func (e *Engine) neededIn(p netip.Prefix) (a netip.Addr, what string) {
	i, _ := slices.BinarySearchFunc(e.fixed, p.Addr(), netip.Addr.Compare)
	for ; i < len(e.fixed) && p.Contains(e.fixed[i]); i++ {
		if what := e.neededAt(e.fixed[i]); what != "" {
			return e.fixed[i], what
		}
	}
	return netip.Addr{}, ""
}

// occupied reports whether hosts, or what this one can't do without, have addresses in a prefix.
func (e *Engine) occupied(p netip.Prefix) bool {
	i, _ := slices.BinarySearchFunc(e.addrs, p.Addr(), netip.Addr.Compare)
	if i < len(e.addrs) && p.Contains(e.addrs[i]) {
		return true
	}
	_, what := e.neededIn(p)
	return what != ""
}
