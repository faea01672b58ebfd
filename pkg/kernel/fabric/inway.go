// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// LedByRoute reports whether the kernel would send what the current namespace has for an
// address by a route to a workload, of this host or of another.
func LedByRoute(a netip.Addr) (bool, error) {
	s, err := rtnl.Open()
	if err != nil {
		return false, err
	}
	defer s.Close()
	r, ok := s.Lookup(a, 0)
	return ok && !r.Local && (r.Protocol == link.RouteProtocol || r.Protocol == Protocol), nil
}

// ClearWay deletes the routes of a Fabric, blackholes included, by which the kernel
// would send what is for some addresses. It returns where they led, and what makes them
// again: to be called, if at all, before a Fabric is at work.
func ClearWay(addrs ...netip.Addr) (gone []netip.Prefix, restore func() error, err error) {
	s, err := rtnl.Open()
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	found, err := inWay(s, addrs)
	if err != nil {
		return nil, nil, err
	}
	var requests, again []*rtnl.Message
	for _, r := range found {
		gone = append(gone, r.dst)
		requests = append(requests, r.message(unix.RTM_DELROUTE, 0))
		again = append(again, r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL))
	}
	restore = func() error { return changeRoutes("set", gone, unix.EEXIST, again) }
	return gone, restore, changeRoutes("delete", gone, unix.ESRCH, requests)
}

// inWay finds those routes: of what leads to an address the longest, and of these the
// first by metric, decides; where it is a Fabric's, so does the next one without it.
func inWay(s *rtnl.Socket, addrs []netip.Addr) ([]route, error) {
	var found []route
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		all, err := readRoutes(s, family, 0)
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			if r, ok := s.Lookup(a, 0); ok && r.Local {
				continue
			}
			for {
				best := -1
				for i, r := range all {
					if r.dst.Contains(a) && (best < 0 || r.before(all[best])) {
						best = i
					}
				}
				if best < 0 || all[best].protocol != Protocol {
					break
				}
				found = append(found, all[best])
				all = append(all[:best], all[best+1:]...)
			}
		}
	}
	return found, nil
}

// before reports whether a route decides rather than another to the same address.
func (r route) before(o route) bool {
	if r.dst.Bits() != o.dst.Bits() {
		return r.dst.Bits() > o.dst.Bits()
	}
	return r.metric < o.metric
}

// changeRoutes asks for changes of routes; one that is made already is well.
func changeRoutes(what string, routes []netip.Prefix, made unix.Errno, requests []*rtnl.Message) error {
	if len(requests) == 0 {
		return nil
	}
	s, err := rtnl.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	answers, err := s.Do(requests...)
	if err != nil {
		return fmt.Errorf("%s routes: %w", what, err)
	}
	var errs []error
	for i, a := range answers {
		if a.Err != nil && !errors.Is(a.Err, made) {
			errs = append(errs, fmt.Errorf("%s route to %s: %w", what, routes[i], a.Err))
		}
	}
	return errors.Join(errs...)
}
