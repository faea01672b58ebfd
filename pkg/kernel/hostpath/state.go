// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"golang.org/x/sys/unix"
)

// state is what the kernel holds of the interfaces in scope.
type state struct {
	scope []string
	links map[string]link.Link
	// routes of ours. Not whole: only those by the links in scope.
	routes map[int][]rtnl.Route
	// permanent neighbours
	neighs map[int]map[netip.Addr]model.MAC
	delays map[delayKey]uint64
	// gateways are the links that have HostGatewayLL. Not whole: only of endpoints with IPv6.
	gateways map[int]bool
}

// delayKey names a neighbour table's settings for a link.
type delayKey struct {
	index  int
	family uint8
}

func newState() *state {
	return &state{
		links:  make(map[string]link.Link),
		routes: make(map[int][]rtnl.Route),
		neighs: make(map[int]map[netip.Addr]model.MAC),
		delays: make(map[delayKey]uint64),

		gateways: make(map[int]bool),
	}
}

// readWhole reads the state of every workload interface, there or desired.
func (h *Path) readWhole() (*state, error) {
	st, err := h.readAll()
	if err == nil {
		h.scopeWhole(st)
	}
	return st, err
}

// scopeWhole puts the desired interfaces into the scope, besides those there.
func (h *Path) scopeWhole(st *state) {
	names := make(map[string]bool, len(st.links))
	for name := range st.links {
		names[name] = true
	}
	for name := range h.desired {
		names[name] = true
	}
	st.scope = slices.Sorted(maps.Keys(names))
}

// ReadAll reads the state of every workload interface.
func (r *reader) readAll() (*state, error) {
	st := newState()
	links, err := link.Select(r.sock, r.owns)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		st.links[l.Name] = l
	}
	if err := r.readRoutes(st, 0); err != nil {
		return nil, err
	}
	if err := r.readNeighs(st, 0); err != nil {
		return nil, err
	}
	if err := r.readGateways(st); err != nil {
		return nil, err
	}
	return st, r.readDelays(st)
}

// readSome reads the state of a few interfaces; of those in moved only what is
// about these addresses.
func (h *Path) readSome(names []string, moved map[string][]netip.Addr) (*state, error) {
	st := newState()
	st.scope = names
	var asked, missing []string
	var requests []*rtnl.Message
	for _, name := range names {
		if link.CheckName(name) == nil && h.owns(name) {
			asked = append(asked, name)
			requests = append(requests, link.GetMessage(0, name))
		}
	}
	answers, err := h.sock.Do(requests...)
	if err != nil {
		return nil, err
	}
	for i, a := range answers {
		if errors.Is(a.Err, unix.ENODEV) {
			missing = append(missing, asked[i])
			continue
		}
		if a.Err != nil {
			return nil, fmt.Errorf("read link %s: %w", asked[i], a.Err)
		}
		l, err := link.First(a.Data)
		if err != nil {
			return nil, err
		}
		if l.Name != asked[i] {
			missing = append(missing, asked[i])
			continue // found by an alternative name: it is not a workload's
		}
		if addrs, ok := moved[l.Name]; ok {
			if ok, err = h.readMoved(st, l, addrs); err != nil {
				return nil, err
			}
			if ok {
				continue
			}
		}
		if err := h.readLink(st, l); err != nil {
			return nil, err
		}
	}
	if err := h.readAstray(st, missing); err != nil {
		return nil, err
	}
	if err := h.findGateways(st); err != nil {
		return nil, err
	}
	return st, h.ns.Enter(func() error { return readDelayFiles(st) })
}

// readAstray reads our routes to the addresses of endpoints whose links are not there. The kernel has deleted those by a
// link that is gone, but not those by one that was renamed.
func (h *Path) readAstray(st *state, missing []string) error {
	var addrs []netip.Addr
	var requests []*rtnl.Message
	for _, name := range missing {
		for _, a := range h.desired[name].claimed() {
			if a.IsValid() && !a.Is4In6() && a.Zone() == "" {
				addrs = append(addrs, a)
				requests = append(requests, rtnl.FindRoute(a, 0))
			}
		}
	}
	answers, err := h.sock.Do(requests...)
	if err != nil {
		return err
	}
	for i, a := range addrs {
		r, ok := rtnl.FoundRoute(answers[i], a)
		if ok && r.Dst.IsSingleIP() && !r.Local && r.Protocol == h.cfg.Protocol && !slices.Contains(st.routes[r.Index], r) {
			st.routes[r.Index] = append(st.routes[r.Index], r)
		}
	}
	return nil
}

// readMoved reads the routes to some addresses, and their neighbours on the link:
// to list those of one link the kernel walks those of all. It says false, and
// reads nothing, where another's route to one of them comes first.
func (h *Path) readMoved(st *state, l link.Link, addrs []netip.Addr) (bool, error) {
	var requests []*rtnl.Message
	for _, a := range addrs {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
			return false, nil
		}
		neigh := rtnl.NewMessage(unix.RTM_GETNEIGH, 0, rtnl.NeighBody(rtnl.FamilyOf(a), l.Index, 0, 0))
		neigh.AttrAddr(unix.NDA_DST, a)
		requests = append(requests, rtnl.FindRoute(a, 0), neigh)
	}
	answers, err := h.sock.Do(requests...)
	if err != nil {
		return false, err
	}
	var routes []rtnl.Route
	neighs := make(map[netip.Addr]model.MAC)
	for i, a := range addrs {
		toIt, ofIt := answers[2*i], answers[2*i+1]
		if errors.Is(ofIt.Err, unix.ENODEV) {
			return false, nil // the link just went away
		}
		if r, ok := rtnl.FoundRoute(toIt, a); ok && r.Dst.IsSingleIP() {
			if r.Local || r.Protocol != h.cfg.Protocol {
				return false, nil
			}
			if !slices.Contains(routes, r) {
				routes = append(routes, r)
			}
		}
		for _, m := range ofIt.Data {
			if n, ok := rtnl.ParseNeigh(m.Body); ok && m.Kind == unix.RTM_NEWNEIGH && n.State&unix.NUD_PERMANENT != 0 {
				neighs[n.Addr] = n.Mac
			}
		}
	}
	st.links[l.Name] = l
	for _, r := range routes {
		st.routes[r.Index] = append(st.routes[r.Index], r)
	}
	if len(neighs) > 0 {
		st.neighs[l.Index] = neighs
	}
	return true, nil
}

// readLink reads what a link has that was there a moment ago. One that was
// deleted since is not an error: it isn't there, and has nothing.
func (h *Path) readLink(st *state, l link.Link) error {
	err := h.readRoutes(st, l.Index)
	if err == nil {
		err = h.readNeighs(st, l.Index)
	}
	if errors.Is(err, unix.ENODEV) {
		delete(st.routes, l.Index)
		return nil
	}
	st.links[l.Name] = l
	return err
}

// readRoutes reads our routes, by one link or by all.
func (r *reader) readRoutes(st *state, index int) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		routes, err := r.sock.Routes(rtnl.RouteFilter{Family: family, Protocol: r.cfg.Protocol, Index: index})
		if err != nil {
			return err
		}
		for _, r := range routes {
			st.routes[r.Index] = append(st.routes[r.Index], r)
		}
	}
	return nil
}

// readNeighs reads the permanent neighbours, of one link or of all.
func (r *reader) readNeighs(st *state, index int) error {
	request := rtnl.NewMessage(unix.RTM_GETNEIGH, 0, make([]byte, unix.SizeofNdMsg))
	if index != 0 {
		request.Attr32(unix.NDA_IFINDEX, uint32(index))
	}
	all, err := r.sock.Dump(request)
	if err != nil {
		return fmt.Errorf("list neighbours: %w", err)
	}
	for _, m := range all {
		n, ok := rtnl.ParseNeigh(m.Body)
		if !ok || m.Kind != unix.RTM_NEWNEIGH || n.State&unix.NUD_PERMANENT == 0 || index != 0 && n.Index != index {
			continue
		}
		if st.neighs[n.Index] == nil {
			st.neighs[n.Index] = make(map[netip.Addr]model.MAC)
		}
		st.neighs[n.Index][n.Addr] = n.Mac
	}
	return nil
}

// Neighbour tables and their parameters, linux/neighbour.h.
const (
	ndtaName        = 1
	ndtaParms       = 6
	ndtpaIfIndex    = 1
	ndtpaProxyDelay = 13
	sizeofNdtMsg    = 4
)

// readDelays reads proxy_delay of all links' neighbour tables.
func (r *reader) readDelays(st *state) error {
	all, err := r.sock.Dump(rtnl.NewMessage(unix.RTM_GETNEIGHTBL, 0, make([]byte, sizeofNdtMsg)))
	if err != nil {
		return fmt.Errorf("list neighbour tables: %w", err)
	}
	for _, m := range all {
		if key, delay, ok := parseDelay(m.Body); ok {
			st.delays[key] = delay
		}
	}
	return nil
}

// parseDelay reads proxy_delay, in milliseconds, out of a link's settings of a
// neighbour table; false for what is no link's.
func parseDelay(b []byte) (key delayKey, delay uint64, ok bool) {
	if len(b) < sizeofNdtMsg {
		return key, 0, false
	}
	key.family = b[0]
	rtnl.Attributes(b[sizeofNdtMsg:], func(kind uint16, data []byte) {
		if kind != ndtaParms {
			return
		}
		rtnl.Attributes(data, func(kind uint16, data []byte) {
			switch {
			case kind == ndtpaIfIndex:
				key.index = int(rtnl.Uint32(data))
			case kind == ndtpaProxyDelay && len(data) == 8:
				delay, ok = binary.NativeEndian.Uint64(data), true
			}
		})
	})
	return key, delay, ok && key.index != 0
}

// setDelay sets proxy_delay of one link's neighbour table, in milliseconds.
func setDelay(key delayKey, ms uint64) *rtnl.Message {
	m := rtnl.NewMessage(unix.RTM_SETNEIGHTBL, 0, []byte{key.family, 0, 0, 0})
	m.AttrString(ndtaName, tableName(key.family))
	m.Nest(ndtaParms, func() {
		m.Attr32(ndtpaIfIndex, uint32(key.index))
		m.Attr64(ndtpaProxyDelay, ms)
	})
	return m
}

func tableName(family uint8) string {
	if family == unix.AF_INET6 {
		return "ndisc_cache"
	}
	return "arp_cache"
}

// readDelayFiles does what readDelays does for a few links: the kernel has no
// request for the table of one.
func readDelayFiles(st *state) error {
	for _, l := range st.links {
		for family, dir := range map[uint8]string{unix.AF_INET: "ipv4", unix.AF_INET6: "ipv6"} {
			// In units of 1/100 s: USER_HZ of proc(5).
			v, err := rtnl.ReadSysctl(dir + "/neigh/" + l.Name + "/proxy_delay")
			if errors.Is(err, os.ErrNotExist) {
				continue // no IPv6, or the link just went away
			}
			if err != nil {
				return err
			}
			st.delays[delayKey{l.Index, family}] = uint64(max(v, 0)) * 10
		}
	}
	return nil
}
