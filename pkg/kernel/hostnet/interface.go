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

// Interface is one of the host's own links, with its addresses.
type Interface struct {
	Name     string
	Addrs    []netip.Addr // sorted, without zones
	Loopback bool
}

// Interfaces returns the links of the current namespace, except those with a workload prefix, sorted by name.
func Interfaces(workloadPrefixes []string) ([]Interface, error) {
	c, err := rtnl.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	links, err := link.Select(c, func(name string) bool { return !model.IsWorkloadInterface(name, workloadPrefixes) })
	if err != nil {
		return nil, fmt.Errorf("list the host's links: %w", err)
	}
	all, err := listAddrs(c)
	if err != nil {
		return nil, err
	}
	out := make([]Interface, 0, len(links))
	for _, l := range links {
		i := Interface{Name: l.Name, Loopback: l.Loopback}
		for _, a := range all {
			if a.LinkIndex == l.Index {
				i.Addrs = append(i.Addrs, rtnl.Addr(a.IP))
			}
		}
		slices.SortFunc(i.Addrs, netip.Addr.Compare)
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b Interface) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}
