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

// SourceTo returns the address from which the current namespace sends to another. The error wraps os.ErrNotExist if there is no route.
func SourceTo(a netip.Addr) (netip.Addr, error) {
	c, err := rtnl.Dial()
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	found, err := c.RouteGet(rtnl.IP(a))
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENONET),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL): // the last two: prohibit and blackhole routes
		err = os.ErrNotExist
	case err == nil && (len(found) == 0 || found[0].Src == nil || found[0].Type != unix.RTN_UNICAST && found[0].Type != unix.RTN_LOCAL):
		err = os.ErrNotExist // IPv6 returns the route that refuses
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("route to %s: %w", a, err)
	}
	return rtnl.Addr(found[0].Src), nil
}
