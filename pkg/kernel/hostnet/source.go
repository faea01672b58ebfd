// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// SourceTo returns the address from which the current namespace sends to another.
// The error wraps os.ErrNotExist where there is no way to it.
func SourceTo(a netip.Addr) (netip.Addr, error) {
	s, err := rtnl.Open()
	if err != nil {
		return netip.Addr{}, err
	}
	defer s.Close()
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[1] = rtnl.FamilyOf(a), uint8(a.BitLen())
	request := rtnl.NewMessage(unix.RTM_GETROUTE, 0, body)
	request.AttrAddr(unix.RTA_DST, a)
	answers, err := s.Ask(request)
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENONET),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL): // the last two: prohibit and blackhole routes
		return netip.Addr{}, fmt.Errorf("route to %s: %w", a, os.ErrNotExist)
	case err != nil:
		return netip.Addr{}, fmt.Errorf("route to %s: %w", a, err)
	}
	var source netip.Addr
	for _, m := range answers {
		if m.Kind != unix.RTM_NEWROUTE || len(m.Body) < unix.SizeofRtMsg {
			continue
		}
		if kind := m.Body[7]; kind != unix.RTN_UNICAST && kind != unix.RTN_LOCAL {
			continue // IPv6 answers with the route that refuses
		}
		rtnl.Attributes(m.Body[unix.SizeofRtMsg:], func(kind uint16, data []byte) {
			if kind == unix.RTA_PREFSRC {
				source = rtnl.Addr(data)
			}
		})
	}
	if !source.IsValid() {
		return netip.Addr{}, fmt.Errorf("route to %s: %w", a, os.ErrNotExist)
	}
	return source, nil
}
