// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
)

// Role is what tells whether a link is the host's own or a workload's.
type Role struct {
	Name     string
	Index    int
	Loopback bool
	Tunnel   bool         // it is a Fabric's, or has the name of one
	Addrs    []netip.Addr // sorted; without those that mean nothing beyond the link
	// Uplink: it has a default route, or others by gateways that are known by an
	// address of the link alone.
	Uplink bool
}

// Roles returns the links of the current namespace whose names begin with one of
// the prefixes, by name.
func Roles(prefixes []string) ([]Role, error) {
	s, err := rtnl.Open()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	links, err := link.Select(s, func(name string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	})
	if err != nil {
		return nil, fmt.Errorf("list the host's links: %w", err)
	}
	addrs, err := hostAddrs(s)
	if err != nil {
		return nil, err
	}
	byIndex, uplinks := make(map[int]string, len(links)), make(map[int]bool)
	for _, l := range links {
		byIndex[l.Index] = l.Name
	}
	routes, err := hostRoutes(s, byIndex, uplinks)
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
