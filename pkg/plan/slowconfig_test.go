// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

type slowPool struct {
	cidr netip.Prefix
	pool model.Pool // zero where it can't be read
}

func (p slowPool) kind() TunnelKind {
	switch {
	case p.pool.VXLANMode != "" && p.cidr.Addr().Is6():
		return VXLAN6
	case p.pool.VXLANMode != "":
		return VXLAN4
	case p.pool.IPIP != "":
		return IPIP
	}
	return ""
}

func (s *slow) pools() []slowPool {
	var pools []slowPool
	for key, entry := range s.objects {
		if k, ok := key.(model.PoolKey); ok {
			pool, _ := entry.Value.(model.Pool)
			pool.Disabled = pool.Disabled || entry.Err != nil
			pools = append(pools, slowPool{k.CIDR, pool})
		}
	}
	slices.SortFunc(pools, func(a, b slowPool) int { return comparePrefixes(a.cidr, b.cidr) })
	return pools
}

// poolOf is the smallest pool around a prefix.
func (s *slow) poolOf(p netip.Prefix) (slowPool, bool) {
	var best slowPool
	for _, pool := range s.pools() {
		if within(p, pool.cidr) && (!best.cidr.IsValid() || pool.cidr.Bits() > best.cidr.Bits()) {
			best = pool
		}
	}
	return best, best.cidr.IsValid()
}

// older reports whether a pool overlaps one that is older, where both give addresses out or can't be read.
func (s *slow) older(cidr netip.Prefix) bool {
	at := func(c netip.Prefix) model.Entry { return s.objects[model.PoolKey{CIDR: c}] }
	gives := func(p slowPool) bool { return p.pool.IPAM && !p.pool.Disabled || at(p.cidr).Err != nil }
	var this slowPool
	for _, p := range s.pools() {
		if p.cidr == cidr {
			this = p
		}
	}
	return slices.ContainsFunc(s.pools(), func(p slowPool) bool {
		return gives(p) && gives(this) && p.cidr.Overlaps(cidr) && at(p.cidr).Created < at(cidr).Created
	})
}

func (s *slow) blocks() []model.Block {
	var blocks []model.Block
	for key, entry := range s.objects {
		if _, ok := key.(model.BlockKey); ok && entry.Err == nil {
			blocks = append(blocks, entry.Value.(model.Block))
		}
	}
	return blocks
}

func (s *slow) config(settings Settings) {
	uplink, most := 0, 0
	for _, l := range s.uplinks() {
		if l.Loopback {
			continue
		}
		if l.MTU > 0 && (uplink == 0 || l.MTU < uplink) {
			uplink = l.MTU
		}
		most = max(most, l.MTU)
	}
	if settings.MTU > 0 {
		uplink = settings.MTU
	}
	less := map[TunnelKind]int{IPIP: 20, VXLAN4: 50, VXLAN6: 70}
	if most > 0 && uplink > most {
		s.problem(largeMTU, "UplinkMTU")
		uplink = most
	}
	if settings.MTU > 0 {
		most = uplink
	}
	tunnelMTU := map[TunnelKind]int{}
	for kind, setting := range map[TunnelKind]string{IPIP: "IpInIpMtu", VXLAN4: "VXLANMTU", VXLAN6: "VXLANMTUV6"} {
		tunnelMTU[kind] = settings.TunnelMTU[kind]
		if room := slowMTU(most, less[kind], 0); most > 0 && tunnelMTU[kind] > room {
			tunnelMTU[kind] = room
			if slices.ContainsFunc(s.pools(), func(p slowPool) bool { return p.kind() == kind }) {
				s.problem(largeMTU, setting)
			}
		}
	}
	settings.TunnelMTU = tunnelMTU
	s.st.MTU = mtu{uplink, uplink}
	v6 := false
	for _, p := range s.pools() {
		if mtu := slowMTU(uplink, less[p.kind()], settings.TunnelMTU[p.kind()]); mtu > 0 && (s.st.MTU.Pods == 0 || mtu < s.st.MTU.Pods) {
			s.st.MTU.Pods = mtu
		}
		v6 = v6 || p.cidr.Addr().Is6()
		if s.older(p.cidr) {
			s.problem(poolOverlap, model.PoolKey{CIDR: p.cidr}.Path())
		}
		for _, l := range s.links.Links {
			for _, subnet := range l.Addrs {
				if subnet.Overlaps(p.cidr) && !s.isGateway(subnet.Addr()) {
					s.problem(poolOverlap, model.PoolKey{CIDR: p.cidr}.Path())
				}
			}
		}
	}
	if v6 && s.st.MTU.Pods > 0 && s.st.MTU.Pods < 1280 {
		s.problem(smallMTU, "mtu")
	}
	for _, t := range []Tunnel{
		{Kind: IPIP, AddrConfig: "IpInIpTunnelAddr"},
		{Kind: VXLAN4, Device: "vxlan.calico", AddrConfig: "IPv4VXLANTunnelAddr"},
		{Kind: VXLAN6, Device: "vxlan-v6.calico", AddrConfig: "IPv6VXLANTunnelAddr"},
	} {
		s.tunnel(t, uplink, less[t.Kind], settings)
	}
	slices.Sort(s.st.Releases)
	me := s.self
	s.st.Speaker = Speaker{
		Communities: settings.Communities,
		RouterID:    s.mine(me, 0), Listen: settings.Listen, ListenPort: settings.ListenPort, HoldTime: settings.HoldTime,
		KeepaliveTime: settings.KeepaliveTime, RestartTime: settings.RestartTime, ClusterID: s.cluster(me),
	}
	if at := s.at(settings.RouterID); settings.RouterID.IsValid() && (at == "" || at == me) {
		s.st.Speaker.RouterID = settings.RouterID
	}
	if !s.st.Speaker.RouterID.IsValid() {
		s.st.Speaker.RouterID = routerID(me)
	}
	if s.mine(me, 0).IsValid() || s.mine(me, 1).IsValid() {
		s.st.Speaker.AS = s.as(me)
	}
	for _, p := range s.pools() {
		inner := slices.ContainsFunc(s.pools(), func(o slowPool) bool {
			return o.kind() == "" && o.cidr != p.cidr && within(p.cidr, o.cidr)
		})
		if p.kind() == "" && !inner {
			s.st.Speaker.Import = append(s.st.Speaker.Import, p.cidr)
		}
	}
}

func slowMTU(uplink, less, given int) int {
	switch {
	case given > 0:
		return given
	case uplink == 0 || less == 0:
		return uplink
	}
	return max(68, uplink-less)
}

func (s *slow) tunnel(t Tunnel, uplink, less int, settings Settings) {
	f := 0
	if t.Kind == VXLAN6 {
		f = 1
	}
	var pools []slowPool
	for _, p := range s.pools() {
		if p.kind() == t.Kind {
			pools = append(pools, p)
		}
	}
	t.Handle = string(t.Kind) + "-tunnel-addr-" + s.self
	surplus := false
	for _, b := range s.blocks() {
		a := b.CIDR.Addr()
		for _, n := range b.Allocations {
			if n >= 0 && b.Attributes[n].HandleID == t.Handle {
				suits := !s.hitHosts(single(a)) && slices.ContainsFunc(pools, func(p slowPool) bool { return p.cidr.Contains(a) })
				surplus = surplus || !suits
				if suits && (!t.Addr.IsValid() || a.Less(t.Addr)) {
					t.Addr = a
				}
			}
			a = a.Next()
		}
	}
	if surplus {
		s.st.Releases = append(s.st.Releases, t.Handle)
	}
	if t.Local = s.mine(s.self, f); len(pools) == 0 || !t.Local.IsValid() {
		return
	}
	t.Parent, _ = s.onLink(t.Local)
	t.MTU = slowMTU(uplink, less, settings.TunnelMTU[t.Kind])
	for _, p := range pools {
		if p.pool.IPAM && !p.pool.Disabled && p.pool.Serves(model.ForTunnels) && !s.hitHosts(p.cidr) {
			t.Pools = append(t.Pools, p.cidr)
		}
	}
	if t.Kind == IPIP {
		t.Device = pools[0].pool.IPIP
	} else {
		t.MAC, t.VNI, t.Port = tunnelMAC(t.Kind, s.self), settings.VXLANVNI, settings.VXLANPort
	}
	s.st.Tunnels = append(s.st.Tunnels, t)
}

func (s *slow) device(kind TunnelKind) string {
	for _, t := range s.st.Tunnels {
		if t.Kind == kind {
			return t.Device
		}
	}
	return ""
}

// host is what follows from one host in one family.
func (s *slow) host(name string, f int) {
	a, entry := s.claimed(name, f)
	owns := slices.ContainsFunc(s.blocks(), func(b model.Block) bool { return b.Affinity == name && familyOf(b.CIDR.Addr()) == f })
	if !a.IsValid() {
		if owns {
			s.problem(noHostAddress, model.BGPHostKey{Host: name, Field: addrField(f)}.Path())
		}
		return
	}
	if s.at(a) != name {
		s.problem(sameAddress, entry.Path)
		return
	}
	if name == s.self {
		return
	}
	s.st.Hosts[a] = name
	for _, kind := range []TunnelKind{VXLAN4, VXLAN6} {
		if s.device(kind) == "" || (kind == VXLAN6) != a.Is6() || !s.alive(name) {
			continue
		}
		r := Remote{RemoteID{kind, a}, name, a, tunnelMAC(kind, name)}
		if kind == VXLAN6 {
			r.Gateway = linkLocal(r.MAC)
		}
		s.st.Remotes[r.RemoteID] = r
	}
}
