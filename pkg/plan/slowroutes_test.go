// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

func (s *slow) isSelf(a netip.Addr) bool {
	_, on := s.onLink(a)
	if s.pending(a) && s.at(a) != s.self && s.at(a) != "" {
		return false
	}
	return on || a.IsValid() && s.mine(s.self, familyOf(a)) == a
}

// explicit is the entry of an explicit peer.
func (s *slow) explicit(host string, a netip.Addr) (model.Entry, bool) {
	for _, legacy := range []bool{false, true} {
		if entry, ok := s.objects[model.BGPPeerKey{Host: host, IP: a, Legacy: legacy}]; ok {
			return entry, true
		}
	}
	return model.Entry{}, false
}

func (s *slow) neighbours(settings Settings) {
	addrs := maps.Clone(s.st.Hosts)
	for key := range s.objects {
		if k, ok := key.(model.BGPPeerKey); ok && k.Name == "" && (k.Host == "" || k.Host == s.self) {
			addrs[k.IP] = s.st.Hosts[k.IP]
		}
	}
	for _, entry := range s.named() {
		if p := entry.Value.(model.BGPPeer); p.PeerSelector == "" && s.hasPeer(p, s.self) {
			addrs[p.IP] = s.st.Hosts[p.IP]
		}
	}
	mesh := true
	for _, legacy := range []bool{true, false} {
		if entry, ok := s.objects[model.BGPMeshKey{Legacy: legacy}]; ok {
			m, read := entry.Value.(model.Mesh)
			mesh = !read || m.Enabled
		}
	}
	for a, name := range addrs {
		local := s.mine(s.self, familyOf(a))
		own, isOwn := s.explicit(s.self, a)
		if isOwn && s.isSelf(a) {
			s.problem(selfPeer, own.Key.Path())
		}
		if !local.IsValid() || s.isSelf(a) || s.st.Speaker.AS == 0 {
			continue
		}
		n := Neighbour{Address: a, Local: local, Host: name, MaxPrefixes: settings.MaxPrefixes}
		forPeer, reflects := s.explicit(name, local)
		if !reflects {
			forPeer, reflects = s.explicit("", local)
		}
		p, _ := forPeer.Value.(model.BGPPeer)
		file := p.PasswordFile
		for _, entry := range s.named() {
			if p := entry.Value.(model.BGPPeer); !reflects && p.PeerSelector == "" && p.IP == local && s.hasPeer(p, name) {
				file, reflects = p.PasswordFile, true
			}
		}
		all := s.explicitAt(a, name)
		switch {
		case len(all) > 0:
			s.sameAs(n, all)
			n = s.session(n, all[0])
		case s.cluster(s.self).IsValid() && reflects:
			n.Kind, n.AS, n.Multihop = FromReflects, s.as(name), 255
			n.PasswordFile = file
		case mesh:
			n.Kind, n.AS, n.Multihop = FromMesh, s.as(name), 255
		}
		us := s.st.Speaker.AS
		if n.Options.LocalAS != 0 {
			us = n.Options.LocalAS
		}
		if n.AS == us {
			n.Multihop = 0
			n.Client = s.cluster(s.self).IsValid() && n.Kind != FromMesh && !s.cluster(name).IsValid()
			n.Reflector = s.cluster(s.self).IsValid() && s.cluster(name).IsValid()
		}
		if n.AS != 0 {
			s.st.Neighbours[a] = n
		}
	}
}

// prefixes are those that anything may be said of.
func (s *slow) prefixes() map[netip.Prefix]bool {
	all := map[netip.Prefix]bool{}
	for _, b := range s.blocks() {
		all[b.CIDR] = true
		a := b.CIDR.Addr()
		for _, n := range b.Allocations {
			if n >= 0 {
				all[single(a)] = true
			}
			a = a.Next()
		}
	}
	for _, entry := range s.objects {
		if w, ok := entry.Value.(model.WorkloadEndpoint); ok {
			for _, a := range endpointFacts(w) {
				all[single(a.addr)] = true
			}
		}
	}
	for p := range s.learned {
		all[p] = true
	}
	for p := range s.retained {
		all[p] = true
	}
	return all
}

func (s *slow) routes() {
	for p := range s.prefixes() {
		s.route(p)
		foreign := slices.ContainsFunc(s.links.Routes, func(r HostRoute) bool { return r.Destination == p })
		if r, ok := s.st.Routes[p]; ok && foreign && r.Origin != FromBGP {
			s.problem(foreignRoute, p.String())
		}
	}
}

// awaited looks for what other hosts have in pools without encapsulation while there is no neighbour to learn it from.
func (s *slow) awaited() {
	for p := range s.prefixes() {
		f := familyOf(p.Addr())
		pool, inPool := s.poolOf(p)
		if !inPool || pool.kind() != "" || s.hit(p) || !s.mine(s.self, f).IsValid() {
			continue
		}
		holder := ""
		if block, ok := s.block(p); ok && block.CIDR == p {
			holder = block.Affinity
		}
		if owner := s.owner(p.Addr()); p.IsSingleIP() && owner != "" {
			holder = owner
			if block, ok := s.block(p); ok && block.CIDR != p && block.Affinity == owner {
				continue // the block's route leads to it
			}
		}
		if holder == s.self || p.IsSingleIP() && s.here(p.Addr()) || !s.mine(holder, f).IsValid() {
			continue
		}
		ownWay := slices.ContainsFunc(s.links.Routes, func(r HostRoute) bool {
			up := slices.ContainsFunc(s.links.Links, func(l Link) bool { return l.Name == r.Device && l.Up })
			return r.Destination.Bits() > 0 && within(p, r.Destination) && up
		})
		sessions := slices.ContainsFunc(slices.Collect(maps.Keys(s.st.Neighbours)), func(a netip.Addr) bool { return familyOf(a) == f })
		if !ownWay && !sessions {
			s.problem(noNeighbour, []string{"IPv4", "IPv6"}[f])
		}
	}
}

// ends are the hosts of the active endpoints that have an address.
func (s *slow) ends(a netip.Addr) []string {
	var hosts []string
	for key, entry := range s.objects {
		if w, ok := entry.Value.(model.WorkloadEndpoint); ok && slices.ContainsFunc(endpointFacts(w), func(f endpointAddr) bool { return f.addr == a }) {
			hosts = append(hosts, key.(model.WorkloadEndpointKey).Host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// owns are those of which an endpoint has it for its own.
func (s *slow) owns(a netip.Addr) []string {
	return slices.DeleteFunc(s.ends(a), func(host string) bool {
		for key, entry := range s.objects {
			if w, ok := entry.Value.(model.WorkloadEndpoint); ok && key.(model.WorkloadEndpointKey).Host == host && w.State == model.StateActive && slices.Contains(w.Addrs(), a) {
				return false
			}
		}
		return true
	})
}

// block is the smallest block around a prefix.
func (s *slow) block(p netip.Prefix) (model.Block, bool) {
	var best model.Block
	for _, b := range s.blocks() {
		if within(p, b.CIDR) && (!best.CIDR.IsValid() || b.CIDR.Bits() > best.CIDR.Bits()) {
			best = b
		}
	}
	return best, best.CIDR.IsValid()
}

// owner is the host that has an address.
func (s *slow) owner(a netip.Addr) string {
	allocated := ""
	if b, ok := s.block(single(a)); ok {
		i := 0
		for at := b.CIDR.Addr(); at != a; at = at.Next() {
			i++
		}
		if n := b.Allocations[i]; n >= 0 {
			if allocated = b.Attributes[n].Secondary["node"]; allocated == "" {
				allocated = b.Affinity
			}
		}
	}
	ends := s.owns(a)
	if len(ends) == 0 {
		ends = s.ends(a)
	}
	if len(ends) == 0 {
		return allocated
	}
	if up := slices.DeleteFunc(slices.Clone(ends), func(host string) bool { return !s.up(host, a) || s.dead(host) }); len(up) > 0 {
		ends = up
	}
	return slices.MinFunc(ends, func(x, y string) int { return cmp.Compare(s.made(y, a), s.made(x, a)) })
}

// dead says that a host that is there has an agent that isn't.
func (s *slow) dead(name string) bool { return slices.Contains(s.names, name) && !s.alive(name) }

// with are the active endpoints of a host that have an address, as those do that come first.
func (s *slow) with(host string, a netip.Addr) []model.WorkloadEndpointKey {
	var keys []model.WorkloadEndpointKey
	own := slices.Contains(s.owns(a), host)
	for key, entry := range s.objects {
		w, ok := entry.Value.(model.WorkloadEndpoint)
		if ok && key.(model.WorkloadEndpointKey).Host == host && slices.Contains(endpointFacts(w), endpointAddr{a, !own}) {
			keys = append(keys, key.(model.WorkloadEndpointKey))
		}
	}
	return keys
}

func (s *slow) isUp(key model.WorkloadEndpointKey) bool {
	return s.objects[model.WorkloadStatusKey(key)].Value == model.EndpointUp
}

// up reports whether a host says that one of them is up.
func (s *slow) up(host string, a netip.Addr) bool {
	return slices.ContainsFunc(s.with(host, a), s.isUp)
}

// made is when the youngest of them was, of those that are up if there are some.
func (s *slow) made(host string, a netip.Addr) (at int64) {
	for _, key := range s.with(host, a) {
		if s.isUp(key) || !s.up(host, a) {
			at = max(at, s.objects[key].Created)
		}
	}
	return at
}

// here reports whether an endpoint of this host that has an address is up.
func (s *slow) here(a netip.Addr) bool {
	for key, entry := range s.objects {
		w, ok := entry.Value.(model.WorkloadEndpoint)
		if ok && key.(model.WorkloadEndpointKey).Host == s.self && s.isUp(key.(model.WorkloadEndpointKey)) &&
			slices.ContainsFunc(endpointFacts(w), func(f endpointAddr) bool { return f.addr == a }) {
			return true
		}
	}
	return false
}

func (s *slow) route(p netip.Prefix) {
	pool, inPool := s.poolOf(p)
	block, inBlock := s.block(p)
	isBlock := inBlock && block.CIDR == p
	hit := s.hit(p)
	if isBlock && hit {
		s.problem(HostInBlock, model.BlockKey{CIDR: p}.Path())
	}
	if isBlock && block.Affinity == s.self && !inPool {
		s.problem(noPool, model.BlockKey{CIDR: p}.Path())
	}
	holder, owner, here := "", "", false
	if isBlock {
		holder = block.Affinity
	}
	if p.IsSingleIP() {
		ends := s.ends(p.Addr())
		if len(ends) > 1 {
			s.problem(sameEndpointAddress, p.Addr().String())
		}
		here = s.here(p.Addr())
		if owner = s.owner(p.Addr()); owner != "" && owner != block.Affinity {
			holder = owner
		}
	}
	paths := s.paths(p)
	encapsulated := inPool && pool.kind() != ""
	switch {
	case holder == s.self && !hit:
		empty := !slices.ContainsFunc(block.Allocations, func(n int) bool { return n >= 0 })
		if isBlock && owner != s.self && (inPool || !empty) && !s.behindGateway(p) {
			s.st.Routes[p] = Route{Destination: p, Kind: Blackhole, Origin: FromBlock, Host: s.self}
		}
		if next := s.mine(s.self, familyOf(p.Addr())); inPool && next.IsValid() && !pool.pool.DisableBGPExport {
			s.st.Advertisements[p] = Advertisement{p, next, encapsulated}
		}
		fallthrough
	case holder == s.self, here, inBlock && block.Affinity == s.self && holder == "", hit && (holder != "" || inPool):
		if len(paths) > 0 {
			s.problem(refusedRoute, p.String())
		}
	case inBlock && !isBlock && block.Affinity != "" && holder == "":
		if len(paths) > 0 {
			s.problem(refusedRoute, p.String())
		}
	case encapsulated && holder != "":
		s.toHost(p, holder, pool)
	case encapsulated:
		if len(paths) > 0 {
			s.problem(refusedRoute, p.String())
		}
	case s.strange(p):
		if len(paths) > 0 {
			s.problem(refusedRoute, p.String())
		}
	case len(s.learned[p]) == 0:
		if r, ok := s.retained[p]; ok && !slices.ContainsFunc(r.Hops, func(h Hop) bool { return s.astray(holder, h.Gateway, "") }) {
			s.st.Routes[p] = r
		}
	default:
		fit := slices.DeleteFunc(slices.Clone(paths), func(path Path) bool {
			from := ""
			if n := s.st.Neighbours[path.Peer]; n.Kind == FromMesh {
				from = n.Host
			}
			return !s.isSelf(path.NextHop) && s.astray(holder, path.NextHop, from)
		})
		if len(fit) < len(paths) {
			s.problem(refusedRoute, p.String())
		}
		s.byBGP(p, fit)
	}
}

// paths are those that the neighbours' filters let in.
func (s *slow) paths(p netip.Prefix) []Path {
	var paths []Path
	for _, path := range s.learned[p] {
		n, ok := s.st.Neighbours[path.Peer]
		if !ok || n.Address.Is4() != p.Addr().Is4() {
			continue
		}
		filters := slices.Clone(n.Import)
		for _, outer := range s.st.Speaker.Import {
			filters = append(filters, model.RouteFilter{CIDR: outer, Action: "accept"})
		}
		i := slices.IndexFunc(filters, func(f model.RouteFilter) bool {
			is := within(p, f.CIDR)
			if f.Match == model.MatchEqual || f.Match == model.MatchNotEqual {
				is = p == f.CIDR
			}
			not := f.Match == model.MatchNotIn || f.Match == model.MatchNotEqual
			return is != not && p.Addr().Is4() == f.CIDR.Addr().Is4() && (f.Community == "" || f.Action == "accept")
		})
		if i >= 0 && filters[i].Action == "accept" {
			paths = append(paths, path)
		}
	}
	return paths
}

// hop resolves an address by the links and routes of the host, longest first; of
// equally long ones a link's own subnet.
func (s *slow) hop(a netip.Addr) (hops map[Hop]bool, direct bool) {
	hops = map[Hop]bool{}
	if _, own := s.onLink(a); own && !s.pending(a) || a.IsLinkLocalUnicast() {
		return hops, false
	}
	best := -1
	for _, l := range s.links.Links {
		for _, p := range l.Addrs {
			if l.Up && !p.IsSingleIP() && p.Contains(a) && p.Bits() > best {
				hops, direct, best = map[Hop]bool{{Gateway: a, Device: l.Name}: true}, true, p.Bits()
				if all := a.AsSlice(); len(all) == 4 && p.Bits() <= 24 && all[3] == 255 && (p.Bits() == 24 || all[2] == 255) {
					clear(hops) // a broadcast, of the subnets that histories have
					direct = false
				}
			}
		}
	}
	for i, r := range s.links.Routes {
		if !r.Destination.Contains(a) || r.Destination.Bits() <= best || i > 0 && r.Next && s.links.Routes[i-1].Destination == r.Destination {
			continue
		}
		by, all := map[Hop]bool{}, true
		for j := i; j < len(s.links.Routes) && (j == i || s.links.Routes[j].Next && s.links.Routes[j].Destination == r.Destination); j++ {
			n := s.links.Routes[j]
			if !slices.ContainsFunc(s.links.Links, func(l Link) bool { return l.Name == n.Device && l.Up }) {
				continue
			}
			if hop := (Hop{Gateway: n.Gateway, Device: n.Device, OnLink: n.OnLink}); n.Gateway.IsValid() {
				by[hop], all = true, false
			} else {
				by[Hop{Gateway: a, Device: n.Device}] = true
			}
		}
		if len(by) > 0 {
			hops, direct, best = by, all && r.Destination.Bits() > 0, r.Destination.Bits()
		}
	}
	return hops, direct
}

// heard are those of some hops that have a carrier, sorted, and each neighbour once; all where none has.
func (s *slow) heard(hops map[Hop]bool) []Hop {
	if s.carried(hops) {
		maps.DeleteFunc(hops, func(h Hop, _ bool) bool { return s.silent(h) })
	}
	maps.DeleteFunc(hops, func(h Hop, _ bool) bool { return !h.OnLink && hops[Hop{h.Gateway, h.Device, true}] })
	return slices.SortedFunc(maps.Keys(hops), compareHops)
}

func (s *slow) silent(h Hop) bool {
	return slices.ContainsFunc(s.links.Links, func(l Link) bool { return l.Name == h.Device && l.NoCarrier })
}

// carried reports whether a link with a carrier is among them.
func (s *slow) carried(hops map[Hop]bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(hops)), func(h Hop) bool { return !s.silent(h) })
}

func (s *slow) isGateway(a netip.Addr) bool {
	return slices.ContainsFunc(s.blocks(), func(b model.Block) bool {
		at := b.CIDR.Addr()
		for _, n := range b.Allocations {
			if at == a && n >= 0 && b.Attributes[n].HandleID == "gateway."+a.String() {
				return true
			}
			at = at.Next()
		}
		return false
	})
}

// behindGateway reports whether a prefix lies in the subnet of a link that is up and has a gateway.
func (s *slow) behindGateway(p netip.Prefix) bool {
	return slices.ContainsFunc(s.links.Links, func(l Link) bool {
		return l.Up && slices.ContainsFunc(l.Addrs, func(a netip.Prefix) bool { return !a.IsSingleIP() && within(p, a.Masked()) && s.isGateway(a.Addr()) })
	})
}

func (s *slow) source(p netip.Prefix) netip.Addr {
	a := s.mine(s.self, familyOf(p.Addr()))
	if _, on := s.onLink(a); !on {
		return netip.Addr{}
	}
	return a
}

func (s *slow) toHost(p netip.Prefix, name string, pool slowPool) {
	kind := pool.kind()
	outer := s.mine(name, familyOf(p.Addr()))
	if s.dead(name) {
		s.problem(deadHost, model.StatusKey{Host: name}.Path())
	}
	if !s.alive(name) || !outer.IsValid() {
		return
	}
	r := Route{Destination: p, Kind: Unicast, Origin: FromHost, Host: name}
	hops, direct := s.hop(outer)
	switch {
	case direct && (pool.pool.VXLANMode == model.EncapCrossSubnet || pool.pool.IPIPMode == model.EncapCrossSubnet):
		r.Source = s.source(p)
	case s.device(kind) == "":
		return
	case kind == VXLAN6:
		hops = map[Hop]bool{{Gateway: s.st.Remotes[RemoteID{kind, outer}].Gateway, Device: s.device(kind)}: true}
	default:
		hops = map[Hop]bool{{Gateway: outer, Device: s.device(kind), OnLink: true}: true}
	}
	r.Hops = s.heard(hops)
	s.st.Routes[p] = r
}

func (s *slow) byBGP(p netip.Prefix, paths []Path) {
	var hops map[Hop]bool
	for rank := range 10 {
		found := map[Hop]bool{}
		for _, path := range paths {
			a := path.NextHop
			if path.Rank != rank || !a.IsValid() || a.Is4() != p.Addr().Is4() || s.isSelf(a) {
				continue
			}
			by, _ := s.hop(a)
			if len(by) == 0 {
				s.problem(noNextHop, a.String())
			}
			maps.Copy(found, by)
		}
		if len(hops) == 0 || s.carried(found) {
			hops = found
		}
		if s.carried(found) {
			break
		}
	}
	if len(hops) == 0 {
		return
	}
	sorted := s.heard(hops)
	s.st.Routes[p] = Route{Destination: p, Kind: Unicast, Hops: sorted, Source: s.source(p), Origin: FromBGP}
}
