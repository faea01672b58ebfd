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

// Subscribe says when others may have changed what a Fabric holds, or what it needs for that: its routes, the tunnels, and
// the links and addresses of the host that are no workload's, and forwarding on tunnels. It never says what: Apply finds out; nor does it tell of
// neighbours and forwarding entries. Signals that wait become one. Of what this Fabric changes itself it
// signals the coming, going and changing of devices. The channel is closed when the context ends.
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

// sight is what of a link matters here.
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

// begin reads the links that there are.
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
	default: // one waits already
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

// noteRoute looks for routes of ours that came or went and are not as desired by now, which isn't by Fabric itself, and for
// those by which the host reaches next hops.
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

// wants says whether a route to the destination is desired.
func (f *Fabric) wants(r rtnl.Route) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, wanted := f.routes[r.Dst]
	return wanted && r.Metric == metric
}

func (w *watcher) noteLink(m syscall.NetlinkMessage) bool {
	l, err := link.Parse(m.Data)
	if err != nil || m.Data[0] != unix.AF_UNSPEC { // a bridge's port
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
