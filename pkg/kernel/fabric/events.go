// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"fmt"
	"syscall"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"golang.org/x/sys/unix"
)

// Subscribe signals that others may have changed what a Fabric holds or depends on: its routes, the tunnels and their forwarding, and the
// host's links and addresses other than workloads'. A signal doesn't say what changed: Apply finds out. There are no signals for neighbours
// and forwarding entries. Pending signals merge into one. Of this Fabric's own changes, those of devices are signalled. The channel is
// closed when the context ends.
func (f *Fabric) Subscribe(ctx context.Context) (<-chan struct{}, error) {
	w := &watcher{fabric: f, seen: make(map[int]sight), out: make(chan struct{}, 1)}
	watch := rtnl.Watch{
		Namespace: f.ns,
		Groups:    []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF},
		Begin:     w.begin, Note: w.note, End: w.end,
	}
	if err := watch.Start(ctx); err != nil {
		return nil, fmt.Errorf("subscribe to changes of routes and tunnels: %w", err)
	}
	return w.out, nil
}

// watcher turns the kernel's notices into signals.
type watcher struct {
	fabric *Fabric
	seen   map[int]sight // links that are no workload's, by index
	out    chan struct{}
}

// sight is what matters here of a link.
type sight struct {
	name, alias string
	up, carrier bool
	mtu         int
	mac         model.MAC
	ends        ends
}

func sightOf(l link.Link) sight {
	return sight{l.Name, l.Alias, l.Up, l.Carrier, l.MTU, l.MAC, endsOf(l)}
}

// begin reads the existing links.
func (w *watcher) begin(lost bool) error {
	c, err := rtnl.DialAt(w.fabric.ns)
	if err != nil {
		return err
	}
	defer c.Close()
	links, err := link.Select(c, func(name string) bool { return !w.fabric.cfg.isWorkload(name) })
	if err != nil {
		return err
	}
	clear(w.seen)
	for _, l := range links {
		w.seen[l.Index] = sightOf(l)
	}
	if lost {
		w.signal()
	}
	return nil
}

func (w *watcher) end(err error) {
	if err != nil {
		w.fabric.cfg.Logger.Error("changes of routes and tunnels are found by the timer alone now", "err", err)
	}
	close(w.out)
}

func (w *watcher) signal() {
	select {
	case w.out <- struct{}{}:
	default: // one is pending already
	}
}

func (w *watcher) note(messages []syscall.NetlinkMessage) {
	for _, m := range messages {
		matters := false
		switch m.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			matters = w.noteLink(m)
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			matters = w.noteRoute(m)
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			a, index, ok := rtnl.ParseAddr(m.Data)
			_, watched := w.seen[index]
			matters = ok && watched && !a.Addr().IsLinkLocalUnicast()
		case unix.RTM_NEWNETCONF:
			n, ok := rtnl.ParseNetconf(m.Data)
			matters = ok && n.Forwarding == 0 && link.IsTunnelName(w.seen[n.Index].name)
		}
		if matters {
			w.signal()
		}
	}
}

// noteRoute reports routes of ours that came or went and are not as desired now, so that Fabric itself didn't change them, and routes by
// which the host reaches next hops.
func (w *watcher) noteRoute(m syscall.NetlinkMessage) bool {
	r, ok := rtnl.ParseRoute(m.Data)
	kind := m.Data[7]
	switch {
	case !ok || r.Table != 0 || r.Protocol == link.RouteProtocol || r.Protocol == unix.RTPROT_KERNEL:
		return false
	case r.Protocol == w.fabric.cfg.Protocol:
		return w.fabric.wants(r) != (m.Header.Type == unix.RTM_NEWROUTE)
	}
	_, watched := w.seen[r.Index]
	return kind == unix.RTN_UNICAST && (watched || r.Index == 0) && !link.IsTunnelName(w.seen[r.Index].name)
}

// wants reports whether a route to the destination is desired.
func (f *Fabric) wants(r rtnl.Route) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, wanted := f.routes[r.Dst]
	return wanted && r.Metric == metric
}

func (w *watcher) noteLink(m syscall.NetlinkMessage) bool {
	l, err := link.Parse(m.Data)
	if err != nil || m.Data[0] != unix.AF_UNSPEC { // a message about a bridge port
		return false
	}
	before, known := w.seen[l.Index]
	now := sightOf(l)
	switch {
	case m.Header.Type == unix.RTM_DELLINK || w.fabric.cfg.isWorkload(l.Name):
		delete(w.seen, l.Index)
		return known
	case !known || before != now:
		w.seen[l.Index] = now
		return true
	}
	return false
}
