// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// Routes returns the routes with next hops that a Fabric created in the current namespace, except those through its tunnels.
func Routes() ([]plan.Route, error) {
	c, err := rtnl.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	links, err := link.Select(c, func(name string) bool { return !link.IsTunnelName(name) })
	if err != nil {
		return nil, err
	}
	names := make(map[int]string, len(links))
	for _, l := range links {
		if l.Alias != link.TunnelAlias {
			names[l.Index] = l.Name
		}
	}
	routes, err := readRoutes(c, Protocol)
	if err != nil {
		return nil, err
	}
	var out []plan.Route
	for _, r := range routes {
		if route, ok := r.planned(names); ok {
			out = append(out, route)
		}
	}
	return out, nil
}

// planned converts a route of the kernel to a plan's; ok is false unless all its next hops have gateways by one of the links.
func (r route) planned(names map[int]string) (route plan.Route, ok bool) {
	if r.kind != unix.RTN_UNICAST {
		return plan.Route{}, false
	}
	route = plan.Route{Destination: r.dst, Kind: plan.Unicast, Source: r.source}
	for _, h := range r.hops {
		name, there := names[h.index]
		if !there || !h.gateway.IsValid() {
			return plan.Route{}, false
		}
		route.Hops = append(route.Hops, plan.Hop{Gateway: h.gateway, Device: name, OnLink: h.onLink})
	}
	return route, len(route.Hops) > 0
}
