// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// Event says that something may have changed. It never says what: read it.
type Event struct {
	Interfaces []string // workload interfaces, sorted
	All        bool     // or any: events were lost, or the host's route to HostGateway changed, which is the default route mostly
	Host       bool     // links that are no workload's, their addresses, or what shows that a link isn't
	Forwarding bool     // the host's forwarding was switched off
}

// Subscribe reports what others change on the workload interfaces: links that
// come, go, or go up or down, routes and permanent neighbours on them, HostGatewayLL taken
// from them, and routes by any link, or by none, to the addresses of active endpoints; that the host's
// own links or their addresses changed; and sysctls that the kernel tells of, where they are
// not as wanted. While nobody receives, events become one.
// What this Path changes itself is not reported. The channel is closed when the
// context ends.
func (h *Path) Subscribe(ctx context.Context) (<-chan Event, error) {
	w := &watcher{path: h, seen: make(map[int]sight), off: make(map[uint8]bool)}
	if err := h.ns.Enter(w.open); err != nil {
		return nil, fmt.Errorf("subscribe to changes of links, routes and neighbours: %w", err)
	}
	raw := make(chan Event)
	out := make(chan Event)
	stop := context.AfterFunc(ctx, func() { _ = w.file.Close() }) // ends the read
	go func() {
		defer close(raw)
		defer stop()
		w.run(ctx, raw)
	}()
	go coalesce(ctx, raw, out)
	return out, nil
}

// coalesce hands on events, those that wait as one.
func coalesce(ctx context.Context, in <-chan Event, out chan<- Event) {
	defer close(out)
	defer func() {
		for range in { // until the reader has ended
		}
	}()
	names := make(map[string]bool)
	all, host, forwarding := false, false, false
	for {
		var ready chan<- Event
		var next Event
		if all || host || forwarding || len(names) > 0 {
			ready = out
			next = Event{slices.Sorted(maps.Keys(names)), all, host, forwarding}
		}
		select {
		case <-ctx.Done():
			return
		case ready <- next:
			clear(names)
			all, host, forwarding = false, false, false
		case e, ok := <-in:
			if !ok {
				return
			}
			all, host, forwarding = all || e.All, host || e.Host, forwarding || e.Forwarding
			for _, n := range e.Interfaces {
				names[n] = true
			}
		}
	}
}

// sight is what of a link matters here.
type sight struct {
	name        string
	up, running bool
	alias       string
	mtu         int
}

// watcher turns messages of the kernel into events.
type watcher struct {
	path *Path
	file *os.File
	seen map[int]sight  // links, by index
	off  map[uint8]bool // families that the host doesn't forward, as was told last
	buf  []byte
}

func (w *watcher) open() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	w.file = os.NewFile(uintptr(fd), "route netlink events")
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, rtnl.NoticeBuffer); err != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, rtnl.NoticeBuffer) // as much as is allowed
	}
	if err := ignore(fd, w.path.port()); err != nil {
		_ = w.file.Close()
		return os.NewSyscallError("attach a filter", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: rtnl.Groups | rtnl.ConfGroups}); err != nil {
		_ = w.file.Close()
		return os.NewSyscallError("bind", err)
	}
	w.buf = make([]byte, rtnl.ReceiveSize)
	return w.learn()
}

// learn notes the links that there are, and forgets what was told.
func (w *watcher) learn() error {
	clear(w.off)
	s, err := rtnl.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	links, err := link.Select(s, w.path.owns)
	if err != nil {
		return err
	}
	clear(w.seen)
	for _, l := range links {
		w.seen[l.Index] = sightOf(l)
	}
	w.path.indexes.learn(w.seen)
	return nil
}

func sightOf(l link.Link) sight { return sight{l.Name, l.Up, l.Running, l.Alias, l.MTU} }

// run reads until the socket is closed.
func (w *watcher) run(ctx context.Context, out chan<- Event) {
	defer w.path.indexes.learn(nil)
	for {
		n, err := w.file.Read(w.buf)
		if errors.Is(err, unix.ENOBUFS) {
			// The kernel dropped messages: what links there are is learned anew,
			// once it tells of all again.
			if err := errors.Join(rtnl.Discard(w.file, w.buf), w.path.ns.Enter(w.learn)); err != nil {
				w.path.cfg.Logger.Error("read the links after events were lost", "error", err)
				w.path.indexes.learn(nil)
			}
			out <- Event{All: true, Host: true}
			continue
		}
		if err != nil {
			if ctx.Err() == nil {
				w.path.cfg.Logger.Error("read events of the kernel; changes are found by the timer alone now", "error", err)
			}
			return
		}
		var e Event
		rtnl.Messages(w.buf[:n], func(h rtnl.Header, body []byte) { w.note(&e, h, body) })
		if e.All || e.Host || e.Forwarding || len(e.Interfaces) > 0 {
			out <- e
		}
	}
}

func (w *watcher) note(e *Event, h rtnl.Header, body []byte) {
	switch h.Kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		w.noteLink(e, h.Kind, body)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if h.Port == w.path.port() {
			return
		}
		e.Interfaces = append(e.Interfaces, w.path.claimants(rtnl.OnlyAddr(body))...)
		r, ok := rtnl.ParseRoute(body)
		if !ok {
			return
		}
		if r.Dst.Contains(link.HostGateway()) {
			e.All = true // it may be what lets the host answer for HostGateway
		}
		if _, ours := w.seen[r.Index]; ours && r.Protocol != link.RouteProtocol && (r.Dst.Bits() == 0 || r.Gateway.IsLinkLocalUnicast()) {
			e.Host = true // see hostnet.Role
		}
		w.noteIndex(e, r.Index)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		// A permanent entry that is deleted or changed is reported as what it is
		// then, so the state isn't looked at, but for the common case.
		n, ok := rtnl.ParseNeigh(body)
		if !ok || h.Port == w.path.port() || h.Port == 0 {
			return // port 0: the kernel by itself, which leaves permanent ones alone
		}
		w.noteIndex(e, n.Index)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if p, index, ok := rtnl.ParseAddr(body); ok {
			if h.Kind == unix.RTM_DELADDR && p.Addr() == link.HostGatewayLL() {
				w.noteIndex(e, index)
			}
			_, ours := w.seen[index]
			e.Host = e.Host || !ours || p.Addr().IsGlobalUnicast() // see hostnet.Role
		}
	case unix.RTM_NEWNETCONF:
		w.noteConf(e, body)
	}
}

func (w *watcher) noteIndex(e *Event, index int) {
	if s, ok := w.seen[index]; ok {
		e.Interfaces = append(e.Interfaces, s.name)
	}
}

func (w *watcher) noteLink(e *Event, kind uint16, body []byte) {
	l, ok := link.Parse(body)
	if !ok || body[0] != unix.AF_UNSPEC { // a bridge's port
		return
	}
	before, known := w.seen[l.Index]
	now := sightOf(l)
	e.Host = e.Host || !w.path.owns(l.Name)
	switch {
	case kind == unix.RTM_DELLINK || !w.path.owns(l.Name):
		if !known {
			return
		}
		delete(w.seen, l.Index)
		w.path.indexes.move(l.Index, before.name, "")
		e.Interfaces = append(e.Interfaces, before.name)
	case !known || before != now:
		w.seen[l.Index] = now
		w.path.indexes.move(l.Index, before.name, l.Name)
		e.Interfaces = append(e.Interfaces, l.Name)
		if known && before.name != l.Name {
			e.Interfaces = append(e.Interfaces, before.name)
		}
	}
}
