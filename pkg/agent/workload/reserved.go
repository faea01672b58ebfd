// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/ownership"
)

// setReserved sets the addresses that no endpoint may have, with their owners.
func (s *claims) setReserved(reserved map[netip.Addr]string) {
	touch := func(these, others map[netip.Addr]string) {
		for a, whose := range these {
			if others[a] == whose {
				continue
			}
			s.owners.Touch(ownership.Claim{Addr: a})
		}
	}
	touch(s.reserved, reserved)
	touch(reserved, s.reserved)
	s.reserved = reserved
}

// untranslated returns an error that says which 1:1 NAT the endpoint goes without: that of an ext_ip that is a host's, whose connections
// would become the workload's, that is another endpoint's own address, or that is an older endpoint's ext_ip. nil = it has all.
func (s *claims) untranslated(ep *endpoint) error {
	var hosts, others []string
	for _, n := range slices.Concat(ep.spec.IPv4NAT, ep.spec.IPv6NAT) {
		c := ownership.Claim{Addr: n.ExtIP}
		whose, holder := s.reserved[n.ExtIP], s.owners.Holder(ep.path, c)
		switch {
		case whose != "":
			hosts = append(hosts, fmt.Sprintf("ext_ip %s of int_ip %s is an address of %s", n.ExtIP, n.IntIP, whose))
		case holder == "":
		case s.owners.Needs(holder, c):
			others = append(others, fmt.Sprintf("ext_ip %s of int_ip %s is the own address of another endpoint, %s", n.ExtIP, n.IntIP, holder))
		default:
			others = append(others, fmt.Sprintf("ext_ip %s of int_ip %s belongs to an older endpoint, %s", n.ExtIP, n.IntIP, holder))
		}
	}
	var errs []error
	if hosts != nil {
		errs = append(errs, fmt.Errorf("without this NAT, as what is for the host would go to the workload (want an ext_ip that is no host's): %s", strings.Join(hosts, "; ")))
	}
	if others != nil {
		errs = append(errs, fmt.Errorf("without this NAT (want an ext_ip that no other endpoint of this host has): %s", strings.Join(others, "; ")))
	}
	return errors.Join(errs...)
}

// notReserved removes the reserved addresses: their connections are not the endpoint's.
func (s *claims) notReserved(addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return s.reserved[a] != "" })
}
