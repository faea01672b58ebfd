// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net/netip"
	"slices"
)

// allocations record which host each address belongs to, according to IPAM's blocks and active endpoints.
type allocations struct {
	self   string
	alive  func(host string) bool
	blocks index[*blockFact]
	// ends has the active endpoints of each address. A list is replaced, never modified.
	ends map[netip.Addr][]end
}

// end says that an active endpoint of a host has an address.
type end struct {
	host    string
	ext     bool  // as ext_ip, not as an address of its own
	up      bool  // the host reports the endpoint as up
	created int64 // creation revision of the endpoint
}

func newAllocations(self string, alive func(host string) bool) allocations {
	return allocations{self: self, alive: alive, blocks: newIndex[*blockFact](), ends: map[netip.Addr][]end{}}
}

// removeEnd removes an end of an address; addEnd adds one.
func (s *allocations) removeEnd(a netip.Addr, n end) {
	i := slices.Index(s.ends[a], n)
	if s.ends[a] = slices.Delete(slices.Clone(s.ends[a]), i, i+1); len(s.ends[a]) == 0 {
		delete(s.ends, a)
	}
}

func (s *allocations) addEnd(a netip.Addr, n end) { s.ends[a] = append(slices.Clone(s.ends[a]), n) }

// holder returns the host that packets for a prefix must go to according to etcd, "" if etcd says nothing or says so
// for a larger block. ours reports that the prefix lies within what is this host's.
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
			return "", true // several hosts have it: this one routes it to its own endpoint, which is up here
		case owner != "" && (exact || owner != affinity):
			return owner, owner == s.self
		}
	}
	if exact {
		return affinity, ours
	}
	return "", ours
}

// inBlock reports whether a prefix is part of a larger block with an affinity.
func (s *allocations) inBlock(p netip.Prefix) bool {
	at, block, ok := s.blocks.longest(p)
	return ok && at != p && block.affinity != ""
}

// hostsAt returns the hosts of the active endpoints with an address, sorted.
func (s *allocations) hostsAt(a netip.Addr) []string {
	var hosts []string
	for _, end := range s.ends[a] {
		hosts = append(hosts, end.host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// owner returns the host that has an address: the one whose endpoint has it, else the one that it is allocated to.
func (s *allocations) owner(a netip.Addr) string {
	if ends := s.ends[a]; len(ends) > 0 {
		return slices.MinFunc(ends, s.compare).host
	}
	if at, block, ok := s.blocks.longest(single(a)); ok && block.isTaken(ordinal(at, a)) {
		return cmp.Or(block.others[a], block.affinity)
	}
	return ""
}

// compare orders the endpoints of an address: those with the address as their own before those with it as ext_ip; then
// those that a live host reports as up; then the younger. After a failed start or a move, the older one is a leftover.
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

// ordinal returns the position of an address in its block, which has at most 2^12.
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

// tunnelAddrs returns the addresses that this host's tunnels hold.
func (s *allocations) tunnelAddrs() map[TunnelKind][]netip.Addr {
	held := map[TunnelKind][]netip.Addr{}
	for _, block := range s.blocks.all {
		for kind, addrs := range block.held {
			held[kind] = append(held[kind], addrs...)
		}
	}
	return held
}
