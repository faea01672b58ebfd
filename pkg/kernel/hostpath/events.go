// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"golang.org/x/sys/unix"
)

// Event says that something may have changed. It doesn't say what: read it.
type Event struct {
	Interfaces []string // workload interfaces, sorted
	All        bool     // or any: events were lost, or the host's route to link.HostGateway changed, usually the default route
	Host       bool     // links that are no workload's, their addresses, or what shows that a link isn't a workload's
	Forwarding bool     // the host's forwarding was disabled
}

func (e Event) isEmpty() bool { return !e.All && !e.Host && !e.Forwarding && len(e.Interfaces) == 0 }

// merge adds another event.
func (e *Event) merge(o Event) {
	e.All, e.Host, e.Forwarding = e.All || o.All, e.Host || o.Host, e.Forwarding || o.Forwarding
	e.Interfaces = append(e.Interfaces, o.Interfaces...)
	slices.Sort(e.Interfaces)
	e.Interfaces = slices.Compact(e.Interfaces)
}

// Subscribe reports others' changes on the workload interfaces: links that come, go, or go up or down, routes on them or to the addresses
// of active endpoints, a removed IPv6 gateway, another MAC address of the host end, and disabled forwarding or changed rp_filter or
// proxying. It also reports changes of the host's own links and their addresses, and forwarding disabled on the host. The kernel sends no
// event for permanent neighbours or other sysctls: Apply finds them. Pending events merge into one. Changes to the desired state are not
// reported. The channel is closed when the context ends.
func (h *Path) Subscribe(ctx context.Context) (<-chan Event, error) {
	w := &watcher{path: h, seen: make(map[int]sight), raw: make(chan Event)}
	out := make(chan Event)
	watch := rtnl.Watch{
		Namespace: h.ns,
		Groups: []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
			unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF},
		Begin: w.begin, Note: w.note, End: w.end,
	}
	go coalesce(ctx, w.raw, out)
	if err := watch.Start(ctx); err != nil {
		close(w.raw)
		return nil, fmt.Errorf("subscribe to changes of links and routes: %w", err)
	}
	return out, nil
}

// coalesce passes on events, merging pending ones.
func coalesce(ctx context.Context, in <-chan Event, out chan<- Event) {
	defer close(out)
	defer func() {
		for range in { // until the reader has ended
		}
	}()
	var next Event
	for {
		var ready chan<- Event
		if !next.isEmpty() {
			ready = out
		}
		select {
		case <-ctx.Done():
			return
		case ready <- next:
			next = Event{}
		case e, ok := <-in:
			if !ok {
				return
			}
			next.merge(e)
		}
	}
}

// sight is what matters here of a link.
type sight struct {
	name               string
	up, running, noARP bool
	alias              string
	mtu, master        int
	mac                model.MAC
}

func sightOf(l link.Link) sight {
	return sight{l.Name, l.Up, l.Running, l.NoARP, l.Alias, l.MTU, l.Master, l.MAC}
}

// watcher turns the kernel's notices into events.
type watcher struct {
	path *Path
	seen map[int]sight // workload links, by index
	raw  chan Event
}

// begin reads the existing links.
func (w *watcher) begin(lost bool) error {
	c, err := rtnl.DialAt(w.path.ns)
	if err != nil {
		return err
	}
	defer c.Close()
	links, err := link.Select(c, w.path.cfg.owns)
	if err != nil {
		return err
	}
	clear(w.seen)
	for _, l := range links {
		w.seen[l.Index] = sightOf(l)
	}
	w.path.indexes.set(w.seen)
	if lost {
		w.raw <- Event{All: true, Host: true}
	}
	return nil
}

func (w *watcher) end(err error) {
	if err != nil {
		w.path.cfg.Logger.Error("changes of links and routes are found by the timer alone now", "err", err)
	}
	w.path.indexes.set(nil)
	close(w.raw)
}

func (w *watcher) note(messages []syscall.NetlinkMessage) {
	var e Event
	for _, m := range messages {
		switch m.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			w.noteLink(&e, m)
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			w.noteRoute(&e, m)
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			w.noteAddr(&e, m)
		case unix.RTM_NEWNETCONF:
			w.noteSettings(&e, m)
		}
	}
	if !e.isEmpty() {
		w.raw <- e
	}
}

// noteRoute reports routes to active endpoints' addresses and by workload links, unless they are as desired now: those are Path's own
// changes.
func (w *watcher) noteRoute(e *Event, m syscall.NetlinkMessage) {
	r, ok := rtnl.ParseRoute(m.Data)
	if !ok {
		return
	}
	s, workload := w.seen[r.Index]
	var claimants []string
	if r.Dst.IsSingleIP() {
		claimants = w.path.claimants(r.Dst.Addr())
	}
	main := r.Table == 0 && m.Data[7] == unix.RTN_UNICAST
	if main && r.Protocol == w.path.cfg.Protocol && workload && slices.Contains(claimants, s.name) == (m.Header.Type == unix.RTM_NEWROUTE) {
		return
	}
	e.Interfaces = append(e.Interfaces, claimants...)
	if !main {
		return
	}
	if r.Dst.Contains(link.HostGateway()) {
		e.All = true // it may be the route that lets the host answer for link.HostGateway
	}
	if workload {
		e.Interfaces = append(e.Interfaces, s.name)
		// see hostnet.Role
		e.Host = e.Host || r.Protocol != link.RouteProtocol && (r.Dst.Bits() == 0 || r.Gateway.IsLinkLocalUnicast())
	}
}

func (w *watcher) noteAddr(e *Event, m syscall.NetlinkMessage) {
	p, index, ok := rtnl.ParseAddr(m.Data)
	if !ok {
		return
	}
	s, workload := w.seen[index]
	if workload && m.Header.Type == unix.RTM_DELADDR && (p.Addr() == link.HostGatewayLL() || p.Addr() == link.TapGatewayLL()) {
		e.Interfaces = append(e.Interfaces, s.name)
	}
	e.Host = e.Host || !workload || p.Addr().IsGlobalUnicast() // see hostnet.Role
}

func (w *watcher) noteLink(e *Event, m syscall.NetlinkMessage) {
	l, err := link.Parse(m.Data)
	if err != nil || m.Data[0] != unix.AF_UNSPEC { // a message about a bridge port
		return
	}
	before, known := w.seen[l.Index]
	now := sightOf(l)
	owned := w.path.cfg.owns(l.Name)
	e.Host = e.Host || !owned
	switch {
	case m.Header.Type == unix.RTM_DELLINK || !owned:
		delete(w.seen, l.Index)
	case before != now:
		w.seen[l.Index] = now
		e.Interfaces = append(e.Interfaces, l.Name)
	default:
		return
	}
	if known && (before.name != l.Name || w.seen[l.Index] != now) {
		e.Interfaces = append(e.Interfaces, before.name)
	}
	w.path.indexes.move(l.Index, before.name, w.seen[l.Index].name)
}

// noteSettings reports disabled forwarding, and the settings of workload links that the kernel sends events for.
func (w *watcher) noteSettings(e *Event, m syscall.NetlinkMessage) {
	n, ok := rtnl.ParseNetconf(m.Data)
	if !ok {
		return
	}
	forwards := n.Family == unix.AF_INET || w.path.forwardsIPv6()
	if n.Index == rtnl.AllLinks {
		e.Forwarding = e.Forwarding || n.Forwarding == 0 && forwards
		return
	}
	wrong := n.Forwarding == 0 && forwards || n.Proxy == 0 || n.Family == unix.AF_INET && n.RPFilter >= 0 && n.RPFilter != 1
	if s, workload := w.seen[n.Index]; workload && wrong {
		e.Interfaces = append(e.Interfaces, s.name)
	}
}

// claimants returns the interfaces of the active endpoints with the address.
func (h *Path) claimants(a netip.Addr) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.desired.claims[a])
}

func (h *Path) forwardsIPv6() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hostV6
}

// indexes are the workload links' indexes, by name, according to the kernel's latest events.
type indexes struct {
	mu sync.Mutex
	of map[string]int
}

func (x *indexes) set(seen map[int]sight) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of = make(map[string]int, len(seen))
	for index, s := range seen {
		x.of[s.name] = index
	}
}

// move records that a link has another name; "" = not a workload's.
func (x *indexes) move(index int, from, to string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of[from] == index {
		delete(x.of, from)
	}
	if to != "" {
		x.of[to] = index
	}
}

// Indexes returns the indexes of the links with these names, 0 for those that don't exist or have no workload prefix. They follow the
// kernel's events, and are updated before the Event: without a subscription none is known.
func (h *Path) Indexes(names ...string) map[string]int {
	h.indexes.mu.Lock()
	defer h.indexes.mu.Unlock()
	found := make(map[string]int, len(names))
	for _, name := range names {
		found[name] = h.indexes.of[name]
	}
	return found
}
