// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"net/netip"
)

func parseHostEndpoint(r *reader) (HostEndpoint, error) {
	var e HostEndpoint
	err := r.object(func(name string) (err error) {
		switch name {
		case "name":
			e.Name, err = r.optionalStr()
		case "expected_ipv4_addrs":
			e.ExpectedIPv4Addrs, err = parseAddrs(r, false)
		case "expected_ipv6_addrs":
			e.ExpectedIPv6Addrs, err = parseAddrs(r, true)
		case "profile_ids":
			e.ProfileIDs, err = r.strings()
		case "labels":
			e.Labels, err = r.stringMap()
		default:
			r.raw()
		}
		return err
	})
	if err != nil {
		return e, err
	}
	return e, e.check()
}

func (e *HostEndpoint) check() error {
	if e.Name == "" && len(e.ExpectedIPv4Addrs) == 0 && len(e.ExpectedIPv6Addrs) == 0 {
		return errors.New("want name, or at least one of expected_ipv4_addrs and expected_ipv6_addrs")
	}
	if e.Name != "" && e.Name != "*" {
		if err := checkInterface(e.Name); err != nil {
			return inField("name", err)
		}
	}
	if err := checkAddrs(e.ExpectedIPv4Addrs, false); err != nil {
		return inField("expected_ipv4_addrs", err)
	}
	if err := checkAddrs(e.ExpectedIPv6Addrs, true); err != nil {
		return inField("expected_ipv6_addrs", err)
	}
	if err := checkNames(e.ProfileIDs); err != nil {
		return inField("profile_ids", err)
	}
	return nil
}

func checkAddrs(addrs []netip.Addr, v6 bool) error {
	for i, a := range addrs {
		if !a.IsValid() {
			return atIndex(i, errEmpty)
		}
		if err := checkFamily(a, v6); err != nil {
			return atIndex(i, err)
		}
	}
	return nil
}

func parseAddrs(r *reader, v6 bool) ([]netip.Addr, error) {
	return listOf(r, func(r *reader) (netip.Addr, error) {
		s, err := r.str()
		if err != nil {
			return netip.Addr{}, err
		}
		return parseIPName(s, v6)
	})
}

func (e HostEndpoint) format(w *writer) error {
	if err := e.check(); err != nil {
		return err
	}
	w.open('{')
	w.optional("name", e.Name)
	if len(e.ExpectedIPv4Addrs) > 0 {
		w.addrs("expected_ipv4_addrs", e.ExpectedIPv4Addrs)
	}
	if len(e.ExpectedIPv6Addrs) > 0 {
		w.addrs("expected_ipv6_addrs", e.ExpectedIPv6Addrs)
	}
	w.strings("profile_ids", e.ProfileIDs)
	if len(e.Labels) > 0 {
		w.name("labels")
		w.stringMap(e.Labels)
	}
	w.close('}')
	return nil
}
