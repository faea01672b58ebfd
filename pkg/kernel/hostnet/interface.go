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
	"golang.org/x/sys/unix"
)

// Interface is a link of the host's own with its addresses.
type Interface struct {
	Name     string
	Addrs    []netip.Addr // sorted, without zones
	Loopback bool
}

// Interfaces returns the links of the current namespace but for those with the
// prefixes, which are workloads', by name.
func Interfaces(workloadPrefixes []string) ([]Interface, error) {
	s, err := rtnl.Open()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	links, err := link.Select(s, func(name string) bool {
		return !slices.ContainsFunc(workloadPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	})
	if err != nil {
		return nil, fmt.Errorf("list the host's links: %w", err)
	}
	byIndex := make(map[int]*Interface, len(links))
	for _, l := range links {
		byIndex[l.Index] = &Interface{Name: l.Name, Loopback: l.Loopback}
	}
	all, err := s.Dump(rtnl.NewMessage(unix.RTM_GETADDR, 0, make([]byte, unix.SizeofIfAddrmsg)))
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	for _, r := range all {
		p, index, ok := rtnl.ParseAddr(r.Body)
		if i := byIndex[index]; ok && i != nil && r.Kind == unix.RTM_NEWADDR {
			i.Addrs = append(i.Addrs, p.Addr())
		}
	}
	out := make([]Interface, 0, len(byIndex))
	for _, i := range byIndex {
		slices.SortFunc(i.Addrs, netip.Addr.Compare)
		out = append(out, *i)
	}
	slices.SortFunc(out, func(a, b Interface) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}
