// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Lookup finds the links by which a namespace, that of its first call, reaches addresses. The zero value is ready to use. It caches the
// links' names, so it must not outlive them. It is not safe for concurrent use.
type Lookup struct {
	conn  *rtnl.Conn
	names map[int]string
}

// Close releases the sockets; the Lookup may be used again.
func (l *Lookup) Close() {
	if l.conn != nil {
		l.conn.Close()
	}
	*l = Lookup{}
}

// To returns the links that lead to an address from one of the namespace's own, the zero Addr for any: one for each next hop that the
// kernel may take, by whichever rule and table; the name "" stands for an address of the namespace's own. The error wraps os.ErrNotExist if
// there is no route.
func (l *Lookup) To(to, from netip.Addr) ([]string, error) {
	if l.conn == nil {
		c, err := rtnl.Dial()
		if err != nil {
			return nil, err
		}
		l.conn, l.names = c, map[int]string{}
	}
	var indexes []int
	// A route's next hops may be separate objects; then the kernel returns the one it takes.
	for _, whole := range [...]bool{true, false} {
		var local bool
		if indexes, local = l.ask(to, from, whole); local {
			return []string{""}, nil
		}
		if len(indexes) > 0 {
			break
		}
	}
	if len(indexes) == 0 {
		return nil, fmt.Errorf("route to %s: %w", to, os.ErrNotExist)
	}
	var names []string
	for _, i := range indexes {
		if _, known := l.names[i]; !known {
			device, err := link.Get(l.conn, i, "")
			if err != nil {
				return nil, fmt.Errorf("link of the route to %s: %w", to, err)
			}
			l.names[i] = device.Name
		}
		names = append(names, l.names[i])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// ask returns the links of the whole route, or of the next hop that the kernel takes.
func (l *Lookup) ask(to, from netip.Addr, whole bool) (indexes []int, local bool) {
	options := &netlink.RouteGetOptions{FIBMatch: whole}
	if from.IsValid() {
		options.SrcAddr = rtnl.IP(from)
	}
	found, err := l.conn.RouteGetWithOptions(rtnl.IP(to), options)
	if err != nil {
		return nil, false
	}
	for _, r := range found {
		if r.Type == unix.RTN_LOCAL {
			return nil, true
		}
		if r.LinkIndex != 0 {
			indexes = append(indexes, r.LinkIndex)
		}
		for _, h := range r.MultiPath {
			indexes = append(indexes, h.LinkIndex)
		}
	}
	return indexes, false
}
