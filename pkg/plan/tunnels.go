// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha1"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// tunnelType has the constants of a kind of tunnel.
type tunnelType struct {
	kind       TunnelKind
	family     int
	device     string // IPIP's may have another name
	overhead   int    // bytes of headers added to a packet
	addrConfig string
	mtuConfig  string // name of the setting
}

// handle returns the IPAM handle of the tunnel's own address.
func (t tunnelType) handle(host string) string { return string(t.kind) + "-tunnel-addr-" + host }

// inside returns what the tunnel leaves of an MTU, 0 if the MTU is unknown.
func (t tunnelType) inside(mtu int) int {
	if mtu == 0 {
		return 0
	}
	return max(mtu-t.overhead, minMTU)
}

// tunnelTypes returns all types in the order of State.Tunnels. VXLAN adds Ethernet (14), VXLAN (8), UDP (8) and IP (20
// or 40) headers, IPIP only IP.
func tunnelTypes() [3]tunnelType {
	return [...]tunnelType{
		{IPIP, 0, "tunl0", 20, "IpInIpTunnelAddr", "IpInIpMtu"},
		{VXLAN4, 0, "vxlan.calico", 50, "IPv4VXLANTunnelAddr", "VXLANMTU"},
		{VXLAN6, 1, "vxlan-v6.calico", 70, "IPv6VXLANTunnelAddr", "VXLANMTUV6"},
	}
}

// OwnTunnels returns the tunnels that a host may have, with their constants: kind, device, handle and AddrConfig.
func OwnTunnels(host string) []Tunnel {
	var all []Tunnel
	for _, t := range tunnelTypes() {
		all = append(all, Tunnel{Kind: t.kind, Device: t.device, Handle: t.handle(host), AddrConfig: t.addrConfig})
	}
	return all
}

func isTunnelDevice(name string) bool {
	for _, t := range tunnelTypes() {
		if t.device == name {
			return true
		}
	}
	return false
}

// tunnelMAC returns a VXLAN device's MAC address. Every host derives it from the name of the other host, so hosts need
// not ask each other.
func tunnelMAC(kind TunnelKind, host string) model.MAC {
	if kind == VXLAN6 {
		host += "-v6"
	}
	sum := sha1.Sum([]byte(host))
	return model.MAC{0x66, sum[0], sum[1], sum[2], sum[3], sum[4]}
}

// linkLocal returns the IPv6 address derived from a MAC (RFC 4291, appendix A). Routes through the IPv6 tunnel use it
// because the kernel rejects a gateway that is inside another link's subnet.
func linkLocal(m model.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 0x02, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

// remote returns another host as a tunnel must know it.
func remote(kind TunnelKind, host string, outer netip.Addr) Remote {
	r := Remote{RemoteID: RemoteID{kind, outer}, Host: host, Gateway: outer, MAC: tunnelMAC(kind, host)}
	if kind == VXLAN6 {
		r.Gateway = linkLocal(r.MAC)
	}
	return r
}

// setTunnels computes the tunnel devices. inside has their MTUs, used their pools.
func (v *view) setTunnels(e *engine, inside [3]int, used map[TunnelKind][]netip.Prefix) {
	held := e.allocations.tunnelAddrs()
	for i, t := range tunnelTypes() {
		pools, handle := used[t.kind], t.handle(e.self)
		addr, surplus := v.tunnelAddr(held[t.kind], pools)
		if surplus {
			v.devices.Releases = append(v.devices.Releases, handle)
		}
		local := v.hosts.me()[t.family]
		if len(pools) == 0 || !local.IsValid() {
			continue
		}
		tunnel := Tunnel{
			Kind: t.kind, Device: t.device, Local: local, Parent: v.links.own[local], Addr: addr,
			Handle: handle, AddrConfig: t.addrConfig, MTU: inside[i],
		}
		for _, p := range pools {
			if pool := v.pools.all[p]; pool.gives && pool.ends && !v.isOccupied(p) {
				tunnel.Pools = append(tunnel.Pools, p)
			}
		}
		if t.kind == IPIP {
			tunnel.Device = v.pools.all[pools[0]].device
		} else {
			tunnel.MAC, tunnel.VNI, tunnel.Port = tunnelMAC(t.kind, e.self), e.settings.VXLANVNI, e.settings.VXLANPort
		}
		v.tunnels[t.kind] = tunnel
		v.devices.Tunnels = append(v.devices.Tunnels, tunnel)
	}
	slices.Sort(v.devices.Releases)
}

// tunnelAddr chooses a tunnel's address among those that it holds. surplus reports that it holds others, which are in
// no pool of its kind, or would make the device take packets meant for a host.
func (v *view) tunnelAddr(held []netip.Addr, pools []netip.Prefix) (addr netip.Addr, surplus bool) {
	for _, a := range held {
		inPool := slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Contains(a) })
		switch {
		case !inPool || v.isOccupied(single(a)):
			surplus = true
		case !addr.IsValid() || a.Less(addr):
			addr = a
		}
	}
	return addr, surplus
}

// isOccupied reports whether a prefix contains addresses of hosts, or of what this host depends on.
func (v *view) isOccupied(p netip.Prefix) bool {
	_, host := firstIn(v.hosts.addrs, p)
	_, needed := firstIn(v.fixed, p)
	return host || needed
}

// setRemotes computes the other hosts that VXLAN devices must know.
func (v *view) setRemotes() {
	for name, h := range v.hosts.byName {
		for _, t := range tunnelTypes() {
			a := h.mine[t.family]
			if _, on := v.tunnels[t.kind]; on && t.kind != IPIP && a.IsValid() && name != v.hosts.self && h.alive {
				r := remote(t.kind, name, a)
				v.remotes[r.RemoteID] = r
			}
		}
	}
}

func (t Tunnel) equal(o Tunnel) bool {
	return t.Kind == o.Kind && t.Device == o.Device && t.Local == o.Local && t.Parent == o.Parent && t.Addr == o.Addr &&
		t.Handle == o.Handle && slices.Equal(t.Pools, o.Pools) && t.AddrConfig == o.AddrConfig && t.MTU == o.MTU &&
		t.MAC == o.MAC && t.VNI == o.VNI && t.Port == o.Port
}
