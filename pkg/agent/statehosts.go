// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// setHosts takes in the addresses of the other hosts.
func (s *state) setHosts(hosts map[netip.Addr]string) effect {
	before := s.hosts
	s.hosts = hosts
	return s.touched(before, hosts)
}

// setOwn takes in this host's own addresses, with the links that have them.
func (s *state) setOwn(links map[netip.Addr]string) effect {
	before := s.own
	s.own = links
	return s.touched(before, links)
}

// setNeeded takes in the addresses of what this host can't do without, with what has them.
func (s *state) setNeeded(needed map[netip.Addr]string) effect {
	before := s.needed
	s.needed = needed
	return s.touched(before, needed)
}

// touched are the endpoints with addresses that are another's now.
func (s *state) touched(before, after map[netip.Addr]string) effect {
	e := newEffect()
	touch := func(these, others map[netip.Addr]string) {
		for a, name := range these {
			if other, there := others[a]; there && other == name {
				continue
			}
			for _, ep := range s.claims[claim{addr: a}] {
				e.endpoints[ep.path] = struct{}{}
			}
		}
	}
	touch(before, after)
	touch(after, before)
	return e
}

// hostOf says which host has an address, or what else that hosts need, "" = none.
func (s *state) hostOf(a netip.Addr) string {
	if link, ok := s.own[a]; ok {
		return "this host, on " + link
	}
	if name, ok := s.hosts[a]; ok {
		return "host " + name
	}
	return s.needed[a]
}

// untranslated says which 1:1 NAT the endpoint goes without: to an ext_ip that is a
// host's, whose connections would be the workload's, another endpoint's own address, or
// an older one's ext_ip. nil = it has all.
func (s *state) untranslated(ep *endpoint) error {
	var hosts, others []string
	for _, n := range slices.Concat(ep.spec.IPv4NAT, ep.spec.IPv6NAT) {
		c := claim{addr: n.ExtIP}
		whose, holder := s.hostOf(n.ExtIP), s.holder(ep, c)
		switch {
		case whose != "":
			hosts = append(hosts, fmt.Sprintf("ext_ip %s of int_ip %s is an address of %s", n.ExtIP, n.IntIP, whose))
		case holder == nil:
		case holder.is(c):
			others = append(others, fmt.Sprintf("ext_ip %s of int_ip %s is the own address of another endpoint, %s", n.ExtIP, n.IntIP, holder.path))
		default:
			others = append(others, fmt.Sprintf("ext_ip %s of int_ip %s belongs to an older endpoint, %s", n.ExtIP, n.IntIP, holder.path))
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

// notOwn leaves out the host's own addresses, and those of what it can't do without: its
// connections are not the endpoint's.
func (s *state) notOwn(addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return s.own[a] != "" || s.needed[a] != "" })
}
