// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net/netip"
	"slices"
)

// allocations say which host each address is of: by the blocks of IPAM and by active endpoints.
type allocations struct {
	self   string
	alive  func(host string) bool
	blocks index[*blockFact]
	// ends are the active endpoints with an address. A list is replaced, never changed.
	ends map[netip.Addr][]end
}

// end says that an active endpoint of a host has an address.
type end struct {
	host    string
	ext     bool  // as ext_ip, not as its own
	up      bool  // the host reports the endpoint so
	created int64 // when the endpoint was
}

func newAllocations(self string, alive func(host string) bool) allocations {
	return allocations{self: self, alive: alive, blocks: newIndex[*blockFact](), ends: map[netip.Addr][]end{}}
}

// removeEnd and addEnd follow an endpoint of a host.
func (s *allocations) removeEnd(a netip.Addr, n end) {
	i := slices.Index(s.ends[a], n)
	if s.ends[a] = slices.Delete(slices.Clone(s.ends[a]), i, i+1); len(s.ends[a]) == 0 {
		delete(s.ends, a)
	}
}

func (s *allocations) addEnd(a netip.Addr, n end) { s.ends[a] = append(slices.Clone(s.ends[a]), n) }

// holder is the host to which etcd says packets for a prefix must go, "" where it doesn't say
// or says so of a larger block. ours: the prefix lies in what is this host's.
func (s *allocations) holder(p netip.Prefix) (host string, ours bool) {
	at, block, ok := s.blocks.longest(p)
	affinity, exact := "", ok && at == p
	if ok {
		affinity = block.affinity
	}
	ours = ok && affinity == s.self
	if p.IsSingleIP() {
		owner := s.owner(p.Addr())
		switch {
		case owner != s.self && slices.ContainsFunc(s.ends[p.Addr()], func(n end) bool { return n.host == s.self && n.up }):
			return "", true // two hosts have it: this one leads it to its own endpoint, which is there
		case owner != "" && (exact || owner != affinity):
			return owner, owner == s.self
		}
	}
	if exact {
		return affinity, ours
	}
	return "", ours
}

// inBlock reports whether a prefix is a part of a block with an affinity.
func (s *allocations) inBlock(p netip.Prefix) bool {
	at, block, ok := s.blocks.longest(p)
	return ok && at != p && block.affinity != ""
}

// hostsAt are the hosts of the active endpoints with an address, sorted.
func (s *allocations) hostsAt(a netip.Addr) []string {
	var hosts []string
	for _, end := range s.ends[a] {
		hosts = append(hosts, end.host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// owner is the host that has an address: the one whose endpoint has it, else the one for which
// it is allocated.
func (s *allocations) owner(a netip.Addr) string {
	if ends := s.ends[a]; len(ends) > 0 {
		return slices.MinFunc(ends, s.compare).host
	}
	if at, block, ok := s.blocks.longest(single(a)); ok && block.isTaken(ordinal(at, a)) {
		return cmp.Or(block.others[a], block.affinity)
	}
	return ""
}

// compare orders the endpoints of an address: those whose own it is come before those that have
// it as ext_ip, then those that a living host reports to be up, then the younger: after a failed start,
// or a move, the older is what was left behind.
func (s *allocations) compare(a, b end) int {
	rank := func(n end) int {
		switch {
		case n.ext && !s.isUp(n):
			return 3
		case n.ext:
			return 2
		case !s.isUp(n):
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.created, a.created), cmp.Compare(a.host, b.host))
}

func (s *allocations) isUp(n end) bool { return n.up && s.alive(n.host) }

// ordinal is the place of an address in its block, which has 2^12 at most.
func ordinal(block netip.Prefix, a netip.Addr) int {
	b := a.AsSlice()
	low := int(b[len(b)-2])<<8 | int(b[len(b)-1])
	return low & (1<<(a.BitLen()-block.Bits()) - 1)
}

// isGateway reports whether an address is the gateway of another main plugin's workloads.
func (s *allocations) isGateway(a netip.Addr) bool {
	for _, block := range s.blocks.around(single(a)) {
		if block.gateways[a] {
			return true
		}
	}
	return false
}

// tunnelAddrs are the addresses that this host's tunnels hold.
func (s *allocations) tunnelAddrs() map[TunnelKind][]netip.Addr {
	held := map[TunnelKind][]netip.Addr{}
	for _, block := range s.blocks.all {
		for kind, addrs := range block.held {
			held[kind] = append(held[kind], addrs...)
		}
	}
	return held
}
