// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// state is what the kernel holds of the interfaces in scope.
type state struct {
	scope    []string
	links    map[string]link.Link
	routes   map[netip.Prefix][]rtnl.Route    // ours
	neighs   map[int]map[netip.Addr]model.MAC // permanent ones, by link
	delays   map[string]int                   // proxy_delay, by sysctl; only of interfaces that aren't settled
	gateways map[int]bool                     // links that have their GatewayLL
}

func newState(scope []string) *state {
	return &state{scope, make(map[string]link.Link), make(map[netip.Prefix][]rtnl.Route), make(map[int]map[netip.Addr]model.MAC), make(map[string]int), make(map[int]bool)}
}

func (st *state) addRoute(r rtnl.Route) {
	if !slices.Contains(st.routes[r.Dst], r) {
		st.routes[r.Dst] = append(st.routes[r.Dst], r)
	}
}

func (st *state) addNeigh(n netlink.Neigh) {
	if n.State&unix.NUD_PERMANENT == 0 || n.Flags&unix.NTF_PROXY != 0 {
		return
	}
	if st.neighs[n.LinkIndex] == nil {
		st.neighs[n.LinkIndex] = make(map[netip.Addr]model.MAC)
	}
	st.neighs[n.LinkIndex][rtnl.Addr(n.IP)] = rtnl.MAC(n.HardwareAddr)
}

// readWhole reads the state of every workload interface that exists or is desired.
func (h *Path) readWhole() (*state, error) {
	links, err := link.Select(h.conn, h.cfg.owns)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(links))
	st := newState(nil)
	for _, l := range links {
		st.links[l.Name] = l
		names[l.Name] = true
	}
	for name := range h.desired.endpoints {
		names[name] = true
	}
	st.scope = slices.Sorted(maps.Keys(names))
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if err := h.readRoutes(st, family, netip.Prefix{}); err != nil {
			return nil, err
		}
	}
	neighs, err := rtnl.Dump(func() ([]netlink.Neigh, error) { return h.conn.NeighList(0, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	for _, n := range neighs {
		st.addNeigh(n)
	}
	addrs, err := rtnl.Dump(func() ([]netlink.Addr, error) { return h.conn.AddrList(nil, unix.AF_INET6) })
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) { // no IPv6
		return nil, fmt.Errorf("list IPv6 addresses: %w", err)
	}
	gateways := make(map[int]netip.Addr, len(links))
	for _, l := range links {
		gateways[l.Index] = l.GatewayLL()
	}
	for _, a := range addrs {
		if rtnl.Addr(a.IP) == gateways[a.LinkIndex] {
			st.gateways[a.LinkIndex] = true
		}
	}
	return st, h.readDelays(st)
}

// readRoutes reads our routes of a family, to one destination or to all.
func (h *Path) readRoutes(st *state, family int, dst netip.Prefix) error {
	filter := netlink.Route{Protocol: netlink.RouteProtocol(h.cfg.Protocol), Table: unix.RT_TABLE_MAIN}
	return h.conn.Routes(family, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE, func(r netlink.Route) {
		if r, ok := rtnl.RouteOf(r); ok && !r.Local && (!dst.IsValid() || r.Dst == dst) {
			st.addRoute(r)
		}
	})
}

// readSome reads the state of a few interfaces, and of each only what concerns the addresses that it had or should have: to list the routes
// or neighbours of one link the kernel walks those of all.
func (h *Path) readSome(addrs map[string]map[netip.Addr]bool) (*state, error) {
	st := newState(slices.Sorted(maps.Keys(addrs)))
	for _, name := range st.scope {
		if link.CheckName(name) != nil || !h.cfg.owns(name) {
			continue
		}
		l, err := link.Get(h.conn, 0, name)
		there := err == nil && l.Name == name // otherwise found by an alternative name: it is not a workload's
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read link %s: %w", name, err)
		}
		if there {
			st.links[name] = l
			if g := l.GatewayLL(); g.IsValid() && h.desired.endpoints[name].hasIPv6() {
				st.gateways[l.Index] = h.conn.HasAddr(l.Index, g)
			}
		}
		for a := range addrs[name] {
			if !isUnicast(a) {
				continue
			}
			if err := h.readRoute(st, a); err != nil {
				return nil, err
			}
			if !there {
				continue
			}
			n, err := h.conn.GetNeigh(l.Index, a)
			if err != nil {
				return nil, fmt.Errorf("read neighbour %s: %w", a, err)
			}
			if n != nil {
				st.addNeigh(*n)
			}
		}
	}
	return st, h.readDelays(st)
}

// readRoute reads our routes to an address: the one that the kernel takes, or those behind another's.
func (h *Path) readRoute(st *state, a netip.Addr) error {
	r, ok := h.conn.Lookup(a, 0)
	if !ok || !r.Dst.IsSingleIP() {
		return nil
	}
	if r.Local || r.Protocol != h.cfg.Protocol {
		return h.readRoutes(st, rtnl.FamilyOf(a), rtnl.HostPrefix(a))
	}
	st.addRoute(r)
	return nil
}

// readDelays reads proxy_delay of the interfaces that aren't settled. Each is a file of its own, and nothing else sets them, so they aren't
// read again later.
func (h *Path) readDelays(st *state) error {
	var names []string
	for name, l := range st.links {
		if was, ok := h.settled[name]; h.desired.endpoints[name].Active && !(ok && was.index == l.Index) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return h.inNamespace(func() error {
		for _, name := range names {
			for _, family := range []string{"ipv4", "ipv6"} {
				sysctl := family + "/neigh/" + name + "/proxy_delay"
				v, err := rtnl.ReadSysctl(sysctl)
				if errors.Is(err, os.ErrNotExist) {
					continue // no IPv6, or the link just went away
				}
				if err != nil {
					return err
				}
				st.delays[sysctl] = v
			}
		}
		return nil
	})
}

// isUnicast reports whether a workload can have an address.
func isUnicast(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback()
}
