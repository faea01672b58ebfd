// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"net/netip"
)

// InvalidHostEndpointError is the error of an invalid host endpoint whose interface can still be identified: everything
// must be denied there.
type InvalidHostEndpointError struct {
	On HostEndpoint // only its name or addresses
	// Partly says that it has no name and that On has only the readable ones of its addresses.
	Partly bool
	Err    error
}

// Error returns the text of Err.
func (e *InvalidHostEndpointError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *InvalidHostEndpointError) Unwrap() error { return e.Err }

func parseHostEndpoint(r *reader) (HostEndpoint, error) {
	start := *r
	e, err := parseHostEndpointFields(r)
	if err == nil {
		return e, nil
	}
	if on, partly, ok := hostEndpointOn(&start); ok {
		err = &InvalidHostEndpointError{on, partly, err}
	}
	return e, err
}

// hostEndpointOn reads which interface a host endpoint is on, ignoring other errors. One of its addresses is enough;
// partly says that others can't be read.
func hostEndpointOn(r *reader) (on HostEndpoint, partly, ok bool) {
	addrs := func(to *[]netip.Addr, v6 bool) {
		more, all := readableAddrs(r, v6)
		*to, partly = append(*to, more...), partly || !all
	}
	err := r.fields(func(name string) (err error) {
		switch name {
		case "name":
			if on.Name != "" {
				return errTwice
			}
			on.Name, err = r.optionalStr()
		case "expected_ipv4_addrs":
			addrs(&on.ExpectedIPv4Addrs, false)
		case "expected_ipv6_addrs":
			addrs(&on.ExpectedIPv6Addrs, true)
		default:
			r.raw()
		}
		return err
	})
	return on, partly && on.Name == "", err == nil && on.check() == nil
}

// readableAddrs returns the addresses in a list. all reports whether the value is a list of addresses only.
func readableAddrs(r *reader, v6 bool) (addrs []netip.Addr, all bool) {
	if r.null() {
		return nil, true
	}
	if r.next() != '[' {
		r.raw()
		return nil, false
	}
	n := 0
	_ = r.list(func(int) error { // parseHostEndpointFields refuses a list that is too long
		n++
		if r.next() != '"' {
			r.raw()
		} else if s, err := r.str(); err == nil {
			if a, err := parseIPName(s, v6); err == nil {
				addrs = append(addrs, a)
			}
		}
		return nil
	})
	return addrs, len(addrs) == n
}

func parseHostEndpointFields(r *reader) (HostEndpoint, error) {
	var e HostEndpoint
	err := r.record(
		into("name", &e.Name, (*reader).optionalStr),
		into("expected_ipv4_addrs", &e.ExpectedIPv4Addrs, addresses(false)),
		into("expected_ipv6_addrs", &e.ExpectedIPv6Addrs, addresses(true)),
		into("profile_ids", &e.ProfileIDs, (*reader).strings),
		into("labels", &e.Labels, (*reader).stringMap),
		into("meta", &e.Meta, parseMeta),
	)
	if err != nil {
		return e, err
	}
	return e, e.check()
}

func (e HostEndpoint) check() error {
	if e.Name == "" && len(e.ExpectedIPv4Addrs) == 0 && len(e.ExpectedIPv6Addrs) == 0 {
		return errors.New("want name, or at least one of expected_ipv4_addrs and expected_ipv6_addrs")
	}
	if e.Name != "" && e.Name != "*" {
		if err := CheckInterface(e.Name); err != nil {
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

func addresses(v6 bool) func(*reader) ([]netip.Addr, error) {
	return each(func(r *reader) (netip.Addr, error) {
		s, err := r.str()
		if err != nil {
			return netip.Addr{}, err
		}
		return parseIPName(s, v6)
	})
}

func (e HostEndpoint) format(w *writer) error {
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
	w.meta(e.Meta)
	w.close('}')
	return nil
}
