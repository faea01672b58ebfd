// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// Subscribe says when others may have changed what a Fabric holds, or what it
// needs for that: its routes, the tunnels and what is on them, and the links and
// addresses of the host that are no workload's. It never says what: Unchanged and
// Apply find out. Signals that nobody has taken become one. Of what this Fabric
// changes itself it signals the coming, going and changing of devices, and a
// forwarding entry that is no longer desired when the watcher comes to it. The
// channel is closed when the context ends.
func (f *Fabric) Subscribe(ctx context.Context) (<-chan struct{}, error) {
	w := &watcher{fabric: f, seen: make(map[int]sight), out: make(chan struct{}, 1), buf: make([]byte, rtnl.ReceiveSize)}
	if err := f.ns.Enter(w.open); err != nil {
		return nil, fmt.Errorf("subscribe to changes of routes and tunnels: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = w.file.Close() }) // ends the read
	go func() {
		defer close(w.out)
		defer stop()
		w.run(ctx)
	}()
	return w.out, nil
}

// watcher turns messages of the kernel into signals.
type watcher struct {
	fabric *Fabric
	file   *os.File
	seen   map[int]sight // links that are no workload's, by index
	out    chan struct{}
	buf    []byte
}

func (w *watcher) open() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	w.file = os.NewFile(uintptr(fd), "route netlink events of the fabric")
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, rtnl.NoticeBuffer); err != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, rtnl.NoticeBuffer) // as much as is allowed
	}
	if err := ignoreRoutes(fd, w.fabric.cfg.Protocol, w.fabric.port); err != nil {
		_ = w.file.Close()
		return os.NewSyscallError("attach a filter", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: rtnl.Groups}); err != nil {
		_ = w.file.Close()
		return os.NewSyscallError("bind", err)
	}
	if err := w.learn(); err != nil {
		_ = w.file.Close()
		return err
	}
	return nil
}

// ignoreRoutes has the kernel keep to itself the routes of workloads, those that it
// makes of addresses, and those of the protocol that the socket of that port changed;
// and of neighbours all but those that somebody's socket changed and the forwarding
// entries, which come without a port.
func ignoreRoutes(fd int, protocol uint8, port uint32) error {
	const (
		kindAt, portAt   = 4, 12  // in struct nlmsghdr
		familyAt         = 16     // struct ndmsg
		protocolAt       = 16 + 5 // struct rtmsg
		load, is, answer = unix.BPF_LD | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	)
	program := []unix.SockFilter{
		{Code: load | unix.BPF_H, K: kindAt},
		{Code: is, K: rtnl.Swapped16(unix.RTM_NEWNEIGH), Jt: 4},
		{Code: is, K: rtnl.Swapped16(unix.RTM_DELNEIGH), Jt: 3},
		{Code: is, K: rtnl.Swapped16(unix.RTM_NEWROUTE), Jt: 6},
		{Code: is, K: rtnl.Swapped16(unix.RTM_DELROUTE), Jt: 5},
		{Code: answer, K: 0xffffffff},
		// 6: a neighbour
		{Code: load | unix.BPF_B, K: familyAt},
		{Code: is, K: unix.AF_BRIDGE, Jt: 9},
		{Code: load | unix.BPF_W, K: portAt},
		{Code: is, K: 0, Jt: 6, Jf: 5},
		// 10: a route
		{Code: load | unix.BPF_B, K: protocolAt},
		{Code: is, K: link.RouteProtocol, Jt: 4},
		{Code: is, K: unix.RTPROT_KERNEL, Jt: 3},
		{Code: is, K: uint32(protocol), Jf: 3},
		{Code: load | unix.BPF_W, K: portAt},
		{Code: is, K: rtnl.Swapped32(port), Jf: 1},
		{Code: answer, K: 0},
		{Code: answer, K: 0xffffffff},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// learn notes the links that there are.
func (w *watcher) learn() error {
	s, err := rtnl.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	request := rtnl.NewMessage(unix.RTM_GETLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, 0, 0, 0))
	request.Attr32(unix.IFLA_EXT_MASK, link.FilterSkipStats)
	clear(w.seen)
	err = s.Walk(request, func() { clear(w.seen) }, func(m rtnl.Received) {
		if l, ok := parseTunnel(m.Body); ok && m.Kind == unix.RTM_NEWLINK && w.watches(l.Name) {
			w.seen[l.Index] = l.sight()
		}
	})
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	return nil
}

// watches says whether a link of that name is not a workload's.
func (w *watcher) watches(name string) bool {
	return !slices.ContainsFunc(w.fabric.cfg.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// sight is what of a link matters here.
type sight struct {
	name, alias string
	up, carrier bool
	mtu         int
	mac         model.MAC
	local       netip.Addr
	under       int
	learning    bool
}

func (l *tunnelLink) sight() sight {
	return sight{l.Name, l.Alias, l.Up, l.Carrier, l.MTU, l.MAC, l.local, l.under, l.learning}
}

// run reads until the socket is closed.
func (w *watcher) run(ctx context.Context) {
	for {
		n, err := w.file.Read(w.buf)
		if errors.Is(err, unix.ENOBUFS) {
			// The kernel dropped messages: the links are learned anew, once it tells of all again.
			if err := errors.Join(rtnl.Discard(w.file, w.buf), w.fabric.ns.Enter(w.learn)); err != nil {
				w.fabric.cfg.Logger.Error("read the links after events were lost", "error", err)
			}
			w.signal()
			continue
		}
		if err != nil {
			if ctx.Err() == nil {
				w.fabric.cfg.Logger.Error("read events of the kernel; changes are found by the timer alone now", "error", err)
			}
			return
		}
		matters := false
		rtnl.Messages(w.buf[:n], func(h rtnl.Header, body []byte) { matters = w.note(h, body) || matters })
		if matters {
			w.signal()
		}
	}
}

func (w *watcher) signal() {
	select {
	case w.out <- struct{}{}:
	default: // one waits already
	}
}

// note says whether a message tells of something that matters.
func (w *watcher) note(h rtnl.Header, body []byte) bool {
	switch h.Kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return w.noteLink(h.Kind, body)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return w.noteRoute(h, body)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		if e, ok := parseFDB(body); ok {
			// Older kernels tell of a forwarding entry twice, once without its
			// remote (rtnl_fdb_notify in Linux 6.1).
			return e.outer.IsValid() && w.isTunnel(e.index) && !w.fabric.wantsFDB(e, h.Kind == unix.RTM_NEWNEIGH)
		}
		// A permanent entry that is deleted or changed is reported as what it is
		// then, so the state isn't looked at.
		n, ok := rtnl.ParseNeigh(body)
		return ok && h.Port != w.fabric.port && h.Port != 0 && w.isTunnel(n.Index)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		a, index, ok := rtnl.ParseAddr(body)
		_, watched := w.seen[index]
		return ok && watched && !a.Addr().IsLinkLocalUnicast()
	}
	return false
}

// noteRoute looks for routes of ours that another changed, and for those by which the
// host reaches next hops.
func (w *watcher) noteRoute(h rtnl.Header, body []byte) bool {
	if r, ok := parseFabricRoute(body); ok && r.protocol == w.fabric.cfg.Protocol {
		return h.Port != w.fabric.port
	}
	r, ok := rtnl.ParseRoute(body)
	_, watched := w.seen[r.Index]
	return ok && (watched || r.Index == 0) && !w.isTunnel(r.Index)
}

func (w *watcher) isTunnel(index int) bool {
	name := w.seen[index].name
	for _, d := range tunnelDevices() {
		if d.name == name {
			return true
		}
	}
	return false
}

// wantsFDB says whether an entry that came or went did so as desired: then it was
// this Fabric, or is right all the same.
func (f *Fabric) wantsFDB(e fdbEntry, came bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, kind := range []plan.TunnelKind{plan.VXLAN4, plan.VXLAN6} {
		if r, ok := f.remotes[plan.RemoteID{Tunnel: kind, Outer: e.outer}]; ok && r.MAC == e.mac {
			return came
		}
	}
	return !came
}

func (w *watcher) noteLink(kind uint16, body []byte) bool {
	l, ok := parseTunnel(body)
	if !ok || body[0] != unix.AF_UNSPEC { // a bridge's port
		return false
	}
	before, known := w.seen[l.Index]
	now := l.sight()
	switch {
	case kind == unix.RTM_DELLINK || !w.watches(l.Name):
		delete(w.seen, l.Index)
		return known
	case !known || before != now:
		w.seen[l.Index] = now
		return true
	}
	return false
}
