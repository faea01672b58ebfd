// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

const (
	// minMTU is what IPv4 needs (RFC 791), minMTU6 what IPv6 needs (RFC 8200).
	minMTU, minMTU6 = 68, 1280
)

func (s Settings) withDefaults() Settings {
	s.VXLANPort = cmp.Or(s.VXLANPort, 4789)
	s.VXLANVNI = cmp.Or(s.VXLANVNI, 4096)
	s.ListenPort = cmp.Or(s.ListenPort, 179)
	// BGP tells whole seconds (RFC 4271, 4.2; RFC 4724, 3).
	s.HoldTime = cmp.Or(s.HoldTime, 90*time.Second).Truncate(time.Second)
	s.KeepaliveTime = cmp.Or(s.KeepaliveTime, s.HoldTime/3).Truncate(time.Second)
	s.RestartTime = max(0, cmp.Or(s.RestartTime, 120*time.Second)).Truncate(time.Second)
	s.MaxPrefixes = cmp.Or(s.MaxPrefixes, 50000)
	s.Listen, s.TunnelMTU = slices.Clone(s.Listen), maps.Clone(s.TunnelMTU)
	return s
}

// SetSettings replaces the settings.
func (e *Engine) SetSettings(settings Settings) {
	settings = settings.withDefaults()
	if reflect.DeepEqual(settings, e.settings) {
		return
	}
	e.settings = settings
	e.dirty.config, e.dirty.neighbours = true, true
}

// flushConfig works out what there is one of: tunnels, MTU, the speaker.
func (e *Engine) flushConfig() {
	uplinks := e.uplinks()
	var fabric []netip.Prefix
	for _, l := range uplinks {
		fabric = append(fabric, l.Addrs...)
	}
	if !slices.Equal(fabric, e.fabric) {
		e.fabric, e.dirty.all = fabric, true
	}
	e.flushTunnels(e.flushMTU(uplinks))
	e.flushSpeaker()
	e.flushOverlaps()
}

// inUse are the pools of each kind of tunnel, sorted.
func (e *Engine) inUse() map[TunnelKind][]netip.Prefix {
	pools := map[TunnelKind][]netip.Prefix{}
	for _, p := range slices.SortedFunc(maps.Keys(e.pools.all), comparePrefixes) {
		if kind := e.pools.all[p].tunnel; kind != "" {
			pools[kind] = append(pools[kind], p)
		}
	}
	return pools
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// mtus are the MTU of the uplinks, 0 = not known, and what tunnels have of it.
type mtus struct {
	uplink int
	inside [3]int // in the order of tunnelTypes
}

// flushMTU gives the MTUs and what is in use.
func (e *Engine) flushMTU(uplinks []Link) (mtus, map[TunnelKind][]netip.Prefix) {
	var u mtus
	most := 0
	for _, l := range uplinks {
		if l.Loopback {
			continue // no packet to another host leaves by it
		}
		if l.MTU > 0 && (u.uplink == 0 || l.MTU < u.uplink) {
			u.uplink = l.MTU
		}
		most = max(most, l.MTU)
	}
	limit := mtuLimit{most, "the links to other hosts take", "the MTU of the links"}
	u.uplink = e.mtu("UplinkMTU", e.settings.MTU, u.uplink, limit)
	if e.settings.MTU > 0 && (most == 0 || u.uplink < most) {
		limit = mtuLimit{u.uplink, "UplinkMTU leaves", "UplinkMTU"}
	}
	pools := e.inUse()
	m := MTU{Uplink: u.uplink, Pods: u.uplink}
	for i, t := range tunnelTypes() {
		given := e.settings.TunnelMTU[t.kind]
		if len(pools[t.kind]) == 0 {
			given = 0 // nothing is wrong with what isn't used
		}
		inside := limit
		inside.most = t.inside(limit.most)
		u.inside[i] = e.mtu(t.mtuConfig, given, t.inside(u.uplink), inside)
		if mtu := u.inside[i]; len(pools[t.kind]) > 0 && mtu > 0 && (m.Pods == 0 || mtu < m.Pods) {
			m.Pods = mtu
		}
	}
	e.out.MTU = nil
	if m != e.told.MTU {
		e.out.MTU = &m
	}
	reason := ""
	v6 := e.pools.lengths[1] != [129]int{}
	if v6 && m.Pods > 0 && m.Pods < minMTU6 {
		reason = fmt.Sprintf("workloads are left %d bytes of the uplink's %d, and IPv6 needs %d: none is started with IPv6, and a tunnel that has less takes none; raise the MTU of the uplinks, or take the encapsulation from the pools", m.Pods, u.uplink, minMTU6)
	}
	e.report(SmallMTU, "mtu", reason)
	return u, pools
}

// mtuLimit is what would be lost on the way if it were more.
type mtuLimit struct {
	most        int // 0 = not known
	says, raise string
}

// mtu is what a setting gives, 0 = nothing, else what follows from the links. More than
// the limit is reported, and the limit used.
func (e *Engine) mtu(setting string, given, follows int, limit mtuLimit) int {
	reason := ""
	switch most := limit.most; {
	case given == 0:
		given = follows
	case most > 0 && given > most:
		reason = fmt.Sprintf("%s is %d, and %s %d: %d is used; set no more than that, or raise %s", setting, given, limit.says, most, most, limit.raise)
		given = most
	}
	e.report(LargeMTU, setting, reason)
	return given
}

func (e *Engine) flushTunnels(u mtus, pools map[TunnelKind][]netip.Prefix) {
	me := e.hosts[e.self].mine
	tunnels := map[TunnelKind]Tunnel{}
	var d Devices
	for i, t := range tunnelTypes() {
		handle := t.handle(e.self)
		var addr netip.Addr
		surplus := false
		for held := range e.holds[handle] {
			switch {
			case e.claims[held.addr] != nil, e.neededAt(held.addr) != "": // the device would take what is for them
				surplus = true
			case !slices.ContainsFunc(pools[t.kind], func(p netip.Prefix) bool { return p.Contains(held.addr) }):
				surplus = true
			case !addr.IsValid() || held.addr.Less(addr):
				addr = held.addr
			}
		}
		if surplus {
			d.Releases = append(d.Releases, handle)
		}
		local := me[t.family]
		if len(pools[t.kind]) == 0 || !local.IsValid() {
			continue
		}
		tunnel := Tunnel{
			Kind: t.kind, Device: t.device, Local: local, Parent: e.links.own[local], Addr: addr,
			Handle: handle, AddrConfig: t.addrConfig, MTU: u.inside[i],
		}
		for _, p := range pools[t.kind] {
			if e.pools.all[p].gives && !e.occupied(p) {
				tunnel.Pools = append(tunnel.Pools, p)
			}
		}
		if t.kind == IPIP {
			tunnel.Device = e.pools.all[pools[IPIP][0]].device
		} else {
			tunnel.MAC, tunnel.VNI, tunnel.Port = tunnelMAC(t.kind, e.self), e.settings.VXLANVNI, e.settings.VXLANPort
		}
		tunnels[t.kind] = tunnel
		d.Tunnels = append(d.Tunnels, tunnel)
	}
	slices.Sort(d.Releases)
	e.out.Devices = nil
	if !slices.EqualFunc(d.Tunnels, e.told.Tunnels, Tunnel.equal) || !slices.Equal(d.Releases, e.told.Releases) {
		e.out.Devices = &d
	}
	// Routes and remotes name the device; what else a tunnel has they don't.
	if !maps.EqualFunc(tunnels, e.tunnels, func(a, b Tunnel) bool { return a.Device == b.Device && a.Local == b.Local }) {
		e.dirty.all, e.dirty.neighbours = true, true
	}
	e.tunnels = tunnels
}

func (t Tunnel) equal(o Tunnel) bool {
	return t.Kind == o.Kind && t.Device == o.Device && t.Local == o.Local && t.Parent == o.Parent && t.Addr == o.Addr &&
		t.Handle == o.Handle && slices.Equal(t.Pools, o.Pools) && t.AddrConfig == o.AddrConfig && t.MTU == o.MTU &&
		t.MAC == o.MAC && t.VNI == o.VNI && t.Port == o.Port
}

func (e *Engine) flushSpeaker() {
	me := e.hosts[e.self]
	s := Speaker{
		Listen: e.settings.Listen, ListenPort: e.settings.ListenPort, HoldTime: e.settings.HoldTime,
		KeepaliveTime: e.settings.KeepaliveTime, RestartTime: e.settings.RestartTime, ClusterID: me.cluster,
	}
	if me.mine[0].IsValid() || me.mine[1].IsValid() {
		s.AS = e.asOf(me)
	}
	s.RouterID = e.routerID(me)
	var open []netip.Prefix
	for p, pool := range e.pools.all {
		if pool.tunnel == "" {
			open = append(open, p)
		}
	}
	slices.SortFunc(open, comparePrefixes)
	for _, p := range open {
		if n := len(s.Import); n == 0 || !s.Import[n-1].Overlaps(p) {
			s.Import = append(s.Import, p)
		}
	}
	if s.AS != e.speaker.AS || s.ClusterID != e.speaker.ClusterID {
		e.dirty.neighbours = true
	}
	e.speaker = s
	e.out.Speaker = nil
	if !s.equal(e.told.Speaker) {
		e.out.Speaker = &s
	}
}

func (s Speaker) equal(o Speaker) bool {
	return s.AS == o.AS && s.RouterID == o.RouterID && slices.Equal(s.Listen, o.Listen) && s.ListenPort == o.ListenPort &&
		s.HoldTime == o.HoldTime && s.KeepaliveTime == o.KeepaliveTime && s.RestartTime == o.RestartTime &&
		s.ClusterID == o.ClusterID && slices.Equal(s.Import, o.Import)
}

// routerID is the host's BGP identifier. One that is in use stays: it needs to be no
// address, and a change of it ends all sessions. But no two hosts may have one (RFC 6286), and
// a host that starts with the address takes it.
func (e *Engine) routerID(me host) netip.Addr {
	used := e.settings.RouterID
	holder := e.hostAt(used)
	switch {
	case used.IsValid() && (holder == "" || holder == e.self):
		return used
	case me.mine[0].IsValid():
		return me.mine[0]
	}
	return routerID(e.self)
}

// routerID is that of a host without IPv4: any 32 bits that no other host has
// will do (RFC 6286).
func routerID(host string) netip.Addr {
	sum := sha256.Sum256([]byte("router " + host))
	sum[0] = sum[0]%223 + 1
	return netip.AddrFrom4([4]byte(sum[:4]))
}

// flushOverlaps reports pools that overlap a subnet of the host's own links.
func (e *Engine) flushOverlaps() {
	found := map[string]struct{}{}
	for p := range e.pools.all {
		if reason := e.overlapOf(p); reason != "" {
			path := model.PoolKey{CIDR: p}.Path()
			found[path] = struct{}{}
			e.report(PoolOverlap, path, reason)
		}
	}
	for path := range e.overlap {
		if _, still := found[path]; !still {
			e.report(PoolOverlap, path, "")
		}
	}
	e.overlap = found
}

// overlapOf says which subnet of a link a pool overlaps, "" = none: one of the hosts' own first.
func (e *Engine) overlapOf(p netip.Prefix) string {
	other := ""
	for _, l := range e.links.all {
		for _, subnet := range l.Addrs {
			if !subnet.IsValid() || !subnet.Overlaps(p) || e.isGateway(subnet.Addr()) {
				continue
			}
			overlap := fmt.Sprintf("pool %s overlaps %s, the subnet of %s", p, subnet.Masked(), l.Name)
			if slices.Contains(e.fabric, subnet) {
				return overlap + ": blocks in the hosts' own subnets are not routed; delete the pool, and choose one that is used nowhere else"
			}
			other = cmp.Or(other, overlap+": its blocks are routed all the same, so a workload may be given an address that is in use on that link, and hosts reach only one of the two; give the link another subnet, or delete the pool and choose one that is used nowhere else")
		}
	}
	return other
}

// isGateway reports whether an address is the gateway of another main plugin's workloads.
func (e *Engine) isGateway(a netip.Addr) bool {
	for _, block := range e.blocks.around(single(a)) {
		if block.gateways[a] {
			return true
		}
	}
	return false
}
