// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// glance is what little effort shows of the kernel's state. Two are equal
// where nothing that they show has changed between them.
type glance struct{ routes, neighs, fdb, links, addrs uint64 }

// Unchanged says whether the kernel still holds what it held when the last Apply
// found nothing to do: our routes, and the tunnels with all that is on them. It
// doesn't see foreign routes that come before ours. Where the kernel has told of
// nothing that matters it looks at the devices alone, else at all, and adds it up.
func (f *Fabric) Unchanged(ctx context.Context) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if f.right == nil {
		return false, nil
	}
	var since *glance
	f.told.Hear(f.sock.Buf, f.matters)
	if f.told.Trusted() {
		since = f.right
	}
	now, err := f.glance(since)
	if err != nil {
		return false, err
	}
	if now != *f.right {
		f.right = nil
		return false, nil
	}
	if since == nil {
		f.told.ReadAll()
	}
	return true, nil
}

// matters says whether a notice may be of what an audit looks at.
func (f *Fabric) matters(m rtnl.Header, body []byte) bool {
	if m.Kind != unix.RTM_NEWNEIGH && m.Kind != unix.RTM_DELNEIGH {
		return true
	}
	if _, ok := parseFDB(body); ok {
		return true
	}
	n, ok := rtnl.ParseNeigh(body)
	return ok && (n.State&unix.NUD_PERMANENT != 0 || slices.Contains(slices.Collect(maps.Values(f.devices)), n.Index))
}

// glance looks at everything; with an earlier glance only at the tunnels' devices.
func (f *Fabric) glance(since *glance) (glance, error) {
	var g glance
	if since != nil {
		g = *since
		g.links = 0
	} else if err := f.glanceRoutes(&g); err != nil {
		return g, err
	}
	for kind, d := range tunnelDevices() {
		l, err := readTunnel(f.sock, d.name)
		if isNotExist(err) {
			continue
		} else if err != nil {
			return g, fmt.Errorf("read link %s: %w", d.name, err)
		}
		g.links += f.digestOf(fmt.Appendf(nil, "%d %s %d %v %s %s %d %d %v %v %d %v", l.Index, l.MAC, l.MTU, l.Up, l.Alias, l.Kind, l.vni, l.port, l.local, l.remote, l.under, l.learning))
		if since != nil {
			continue
		}
		if err := f.glanceTunnel(&g, l); err != nil {
			return g, fmt.Errorf("read %s: %w", kind, err)
		}
	}
	return g, nil
}

func (f *Fabric) glanceRoutes(g *glance) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sum, err := f.sock.Sum(routesRequest(family, f.cfg.Protocol), func(m rtnl.Received) uint64 {
			if len(m.Body) < unix.SizeofRtMsg || m.Body[5] != f.cfg.Protocol {
				return 0
			}
			return f.digest(m.Body, unix.SizeofRtMsg, unix.RTA_CACHEINFO)
		})
		if err != nil && !errors.Is(err, unix.ENOENT) { // no such table
			return fmt.Errorf("list routes: %w", err)
		}
		g.routes += sum
	}
	return nil
}

func (f *Fabric) glanceTunnel(g *glance, l tunnelLink) error {
	addrs, err := addrsOf(f.sock, l.Index)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		g.addrs += f.digestOf(fmt.Appendf(nil, "%d %s", l.Index, a))
	}
	request := rtnl.NewMessage(unix.RTM_GETNEIGH, 0, make([]byte, unix.SizeofNdMsg))
	request.Attr32(unix.NDA_IFINDEX, uint32(l.Index))
	sum, err := f.sock.Sum(request, func(m rtnl.Received) uint64 {
		n, ok := rtnl.ParseNeigh(m.Body)
		if !ok || n.Index != l.Index || n.State&unix.NUD_PERMANENT == 0 {
			return 0
		}
		return f.digestOf(append(append([]byte{}, n.Mac[:]...), n.Addr.AsSlice()...))
	})
	if err != nil {
		return err
	}
	g.neighs += sum
	sum, err = f.sock.Sum(rtnl.NewMessage(unix.RTM_GETNEIGH, 0, rtnl.NeighBody(unix.AF_BRIDGE, l.Index, 0, 0)), func(m rtnl.Received) uint64 {
		e, ok := parseFDB(m.Body)
		if !ok || e.index != l.Index {
			return 0
		}
		return f.digestOf(append(append([]byte{}, e.mac[:]...), e.outer.AsSlice()...))
	})
	g.fdb += sum
	return err
}

func (f *Fabric) digestOf(b []byte) uint64 {
	f.hash.Reset()
	f.hash.Write(b)
	return f.hash.Sum64()
}

// digest is of a message's fixed part and its attributes but for one kind, which
// holds counters.
func (f *Fabric) digest(body []byte, fixed int, but uint16) uint64 {
	f.hash.Reset()
	f.hash.Write(body[:fixed])
	rtnl.Attributes(body[fixed:], func(kind uint16, data []byte) {
		if kind == but && but != 0 {
			return
		}
		f.hash.Write([]byte{byte(kind), byte(len(data))})
		f.hash.Write(data)
	})
	return f.hash.Sum64()
}
