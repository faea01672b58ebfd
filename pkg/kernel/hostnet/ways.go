// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// Ways finds the links by which the namespace of its first question reaches addresses. The zero
// value is ready; it remembers the links' names, and is for as long as these last. Not for
// concurrent use.
type Ways struct {
	sock  *rtnl.Socket
	names map[int]string
}

// Close ends it; it may be asked again.
func (w *Ways) Close() {
	if w.sock != nil {
		w.sock.Close()
	}
	*w = Ways{}
}

// To returns the links by which an address is reached from an own one, the zero
// Addr for any: one for each next hop that the kernel may take, whichever rule and
// table says so, and one with the name "" for an address of the namespace's own. The error wraps
// os.ErrNotExist where there is no way to it.
func (w *Ways) To(to, from netip.Addr) ([]string, error) {
	if w.sock == nil {
		s, err := rtnl.Open()
		if err != nil {
			return nil, err
		}
		w.sock, w.names = s, map[int]string{}
	}
	var indexes []int
	// A route's next hops may be kept apart from it; then the kernel tells the one it takes.
	for _, flags := range [...]uint32{unix.RTM_F_FIB_MATCH, 0} {
		var local bool
		if indexes, local = w.ask(to, from, flags); local {
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
		if _, known := w.names[i]; !known {
			l, err := link.Get(w.sock, i, "")
			if err != nil {
				return nil, fmt.Errorf("link of the route to %s: %w", to, err)
			}
			w.names[i] = l.Name
		}
		names = append(names, w.names[i])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// ask returns the links of the route.
func (w *Ways) ask(to, from netip.Addr, flags uint32) (indexes []int, local bool) {
	request := rtnl.FindRoute(to, 0)
	binary.NativeEndian.PutUint32((*request)[unix.SizeofNlMsghdr+8:], flags)
	if from.IsValid() {
		body := *request
		body[unix.SizeofNlMsghdr+2] = uint8(from.BitLen())
		request.AttrAddr(unix.RTA_SRC, from)
	}
	found, err := w.sock.Ask(request)
	if err != nil {
		return nil, false
	}
	for _, m := range found {
		if m.Kind != unix.RTM_NEWROUTE || len(m.Body) < unix.SizeofRtMsg {
			continue
		}
		if m.Body[7] == unix.RTN_LOCAL {
			return nil, true
		}
		rtnl.Attributes(m.Body[unix.SizeofRtMsg:], func(kind uint16, data []byte) {
			if kind == unix.RTA_OIF {
				indexes = append(indexes, int(rtnl.Uint32(data)))
			}
		})
		for _, hop := range rtnl.ParseHops(rtnl.Route{}, m.Body) {
			indexes = append(indexes, hop.Index)
		}
	}
	return indexes, false
}
