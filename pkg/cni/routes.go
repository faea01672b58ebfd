// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"math"

	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
)

// routeOf is a route that another IPAM plugin gave, false for one without a destination. Its gateway
// isn't used: all that a pod sends goes by its host.
func routeOf(r *types.Route) (out pod.Route, ok bool, err error) {
	dst, ok := prefixOf(r.Dst)
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
	checked.Gateway, _ = addrOf(r.GW)
	if err := checked.Check(); err != nil {
		return out, false, err
	}
	if dst.Addr().Is6() {
		out.Scope = 0 // the kernel has none
	}
	return out, true, nil
}

// resultRoutes are the routes of podNet as the result lists them. One of an older version has no
// word for what CNI 1.1.0 brought, so it lists those of the main table alone.
func (a *attachment) resultRoutes() []*types.Route {
	var out []*types.Route
	p := a.podNet()
	if p.DefaultV4 {
		out = append(out, a.resultRoute(pod.Route{Dst: defaultV4()}))
	}
	if p.DefaultV6 {
		out = append(out, a.resultRoute(pod.Route{Dst: defaultV6()}))
	}
	fields, err := version.GreaterThanOrEqualTo(a.s.conf.CNIVersion, "1.1.0")
	fields = fields && err == nil
	for _, r := range p.Routes {
		if !fields && r.Table != 0 {
			continue
		}
		listed := a.resultRoute(r)
		if !fields {
			listed = &types.Route{Dst: listed.Dst, GW: listed.GW}
		}
		out = append(out, listed)
	}
	return out
}

// resultRoute is one of them, of the newest version.
func (a *attachment) resultRoute(r pod.Route) *types.Route {
	out := &types.Route{Dst: ipNet(r.Dst), AdvMSS: int(r.AdvMSS), Priority: int(r.Metric)}
	if !r.OnLink() {
		out.GW = gateway(r.Dst.Addr().Is6()).AsSlice()
	}
	if int(r.MTU) < a.mtu { // see pod.Route
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
