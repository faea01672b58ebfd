// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
)

// RouteOf converts a route from another IPAM plugin. ok is false if the route has no destination. Its gateway is
// ignored: all traffic of a pod goes through its host.
func RouteOf(r *types.Route) (out pod.Route, ok bool, err error) {
	dst, ok := protocol.PrefixOf(r.Dst)
	if !ok {
		return out, false, nil
	}
	dst = dst.Masked()
	var table, scope int
	if r.Table != nil {
		table = *r.Table
	}
	if r.Scope != nil {
		scope = *r.Scope
	}
	for _, n := range []struct {
		field      string
		value, max int
	}{
		{"mtu", r.MTU, math.MaxUint16}, {"advmss", r.AdvMSS, math.MaxUint16}, {"priority", r.Priority, math.MaxUint32},
		{"table", table, math.MaxUint32}, {"scope", scope, math.MaxUint8},
	} {
		if n.value < 0 || n.value > n.max {
			return out, false, fmt.Errorf("route to %s: %s %d: want 0 to %d", dst, n.field, n.value, n.max)
		}
	}
	out = pod.Route{
		Dst: dst, Metric: uint32(r.Priority), Table: uint32(table), MTU: uint32(r.MTU), AdvMSS: uint32(r.AdvMSS), Scope: uint8(scope),
	}
	if out.Table == unix.RT_TABLE_MAIN {
		out.Table = 0
	}
	checked := out
	checked.Gateway, _ = protocol.AddrOf(r.GW)
	if err := checked.Check(); err != nil {
		return out, false, err
	}
	if dst.Addr().Is6() {
		out.Scope = 0 // the kernel has no scopes for IPv6
	}
	return out, true, nil
}

// Net returns the configuration of the pod's end: its addresses, and the IPAM plugin's routes in place of the default
// ones.
func Net(conf *netconf.Config, ifName string, addrs []netip.Addr, routes []pod.Route) pod.Net {
	p := pod.Net{IfName: ifName, Addrs: addrs, IPForward: conf.IPForward}
	v4, v6 := protocol.Families(addrs)
	if len(routes) == 0 || conf.IncludeDefaultRoutes {
		p.DefaultV4, p.DefaultV6 = v4, v6
	}
	for _, r := range routes {
		plain := r == pod.Route{Dst: r.Dst}
		switch {
		case plain && r.Dst == protocol.DefaultV4():
			p.DefaultV4 = v4
		case plain && r.Dst == protocol.DefaultV6():
			p.DefaultV6 = v6
		case r.Dst.Addr().Is4() && v4, r.Dst.Addr().Is6() && v6:
			p.Routes = append(p.Routes, r)
		}
	}
	for _, r := range p.Routes {
		if r.Table == 0 && r.Metric == 0 { // it replaces the default route
			p.DefaultV4 = p.DefaultV4 && r.Dst != protocol.DefaultV4()
			p.DefaultV6 = p.DefaultV6 && r.Dst != protocol.DefaultV6()
		}
	}
	return p
}

// Result returns the result of an ADD. Its first interface is the host's end, its second the pod's, which has every
// address. Results of older versions can't express what CNI 1.1.0 added, so they list the main table's routes alone.
func (w *Veth) Result(cniVersion, sandbox string, mtu int, p pod.Net, dns types.DNS) types.Result {
	out := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: w.ID.HostIf, Mac: link.HostMAC().String(), Mtu: mtu},
			{Name: w.ID.IfName, Mac: w.MAC.String(), Mtu: mtu, Sandbox: sandbox},
		},
		DNS: dns,
	}
	for _, a := range p.Addrs {
		out.IPs = append(out.IPs, &types100.IPConfig{
			Interface: types100.Int(1),
			Address:   protocol.IPNet(netip.PrefixFrom(a, a.BitLen())),
			Gateway:   protocol.Gateway(a.Is6()).AsSlice(),
		})
	}
	var routes []pod.Route
	if p.DefaultV4 {
		routes = append(routes, pod.Route{Dst: protocol.DefaultV4()})
	}
	if p.DefaultV6 {
		routes = append(routes, pod.Route{Dst: protocol.DefaultV6()})
	}
	newer, err := version.GreaterThanOrEqualTo(cniVersion, "1.1.0")
	newer = newer && err == nil
	for _, r := range append(routes, p.Routes...) {
		if newer || r.Table == 0 {
			out.Routes = append(out.Routes, resultRoute(r, mtu, newer))
		}
	}
	return out
}

func resultRoute(r pod.Route, mtu int, newer bool) *types.Route {
	out := &types.Route{Dst: protocol.IPNet(r.Dst)}
	if !r.OnLink() {
		out.GW = protocol.Gateway(r.Dst.Addr().Is6()).AsSlice()
	}
	if !newer {
		return out
	}
	out.AdvMSS, out.Priority = int(r.AdvMSS), int(r.Metric)
	if int(r.MTU) < mtu { // see pod.Route
		out.MTU = int(r.MTU)
	}
	if table := int(r.Table); table != 0 {
		out.Table = &table
	}
	if scope := int(r.Scope); scope != 0 {
		out.Scope = &scope
	}
	return out
}
