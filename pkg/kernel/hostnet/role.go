// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
)

// Role is what tells the host's own links from workloads'.
type Role struct {
	Name     string
	Index    int
	Loopback bool
	Tunnel   bool         // to other hosts, or with the name of such a tunnel
	Addrs    []netip.Addr // sorted; without link-local and loopback ones
	// Uplink: it has a default route, or other routes whose gateways have link-local addresses.
	Uplink bool
}

// Roles returns the links of the current namespace whose names begin with one of the prefixes, sorted by name.
func Roles(prefixes []string) ([]Role, error) {
	c, err := rtnl.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	links, err := link.Select(c, func(name string) bool { return model.IsWorkloadInterface(name, prefixes) })
	if err != nil {
		return nil, fmt.Errorf("list the host's links: %w", err)
	}
	addrs, err := hostAddrs(c)
	if err != nil {
		return nil, err
	}
	routes, uplinks, err := hostRoutes(c, links)
	if err != nil {
		return nil, err
	}
	out := make([]Role, 0, len(links))
	for _, l := range links {
		role := Role{Name: l.Name, Index: l.Index, Loopback: l.Loopback, Tunnel: l.Alias == link.TunnelAlias || link.IsTunnelName(l.Name), Uplink: uplinks[l.Index]}
		for _, r := range routes {
			role.Uplink = role.Uplink || r.Device == l.Name && r.Gateway.IsLinkLocalUnicast()
		}
		for _, a := range slices.Concat(addrs[l.Index].Addrs, addrs[l.Index].Refused) {
			role.Addrs = append(role.Addrs, a.Addr())
		}
		slices.SortFunc(role.Addrs, netip.Addr.Compare)
		out = append(out, role)
	}
	slices.SortFunc(out, func(a, b Role) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}
