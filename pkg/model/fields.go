// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

func (r *reader) boolean() (bool, error) {
	switch r.next() {
	case 't':
		r.pos += len("true")
		return true, nil
	case 'f':
		r.pos += len("false")
		return false, nil
	}
	return false, r.want("true or false")
}

func (r *reader) isNumber() bool {
	c := r.next()
	return c == '-' || '0' <= c && c <= '9'
}

// integer reads a whole number without fraction or exponent.
func (r *reader) integer(low, high int) (int, error) {
	if !r.isNumber() {
		return 0, r.want("a whole number")
	}
	b := r.raw()
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return 0, fmt.Errorf("%.32s: want a whole number from %d to %d", b, low, high)
	}
	if n < low || n > high {
		return 0, fmt.Errorf("%d: want %d to %d", n, low, high)
	}
	return n, nil
}

func (r *reader) float() (float64, error) {
	if !r.isNumber() {
		return 0, r.want("a number")
	}
	b := r.raw()
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return 0, fmt.Errorf("%.32s: number out of range", b)
	}
	return f + 0, nil // never -0
}

func (r *reader) strings() ([]string, error) { return listOf(r, (*reader).str) }

func (r *reader) stringMap() (map[string]string, error) {
	if r.null() {
		return nil, nil
	}
	var out map[string]string
	err := r.object(func(name string) error {
		s, err := r.str()
		if out == nil {
			out = make(map[string]string, 4)
		}
		out[name] = s
		return err
	})
	return out, err
}

// addr reads an address of one family; null and "" mean none.
func (r *reader) addr(v6 bool) (netip.Addr, error) {
	if r.null() {
		return netip.Addr{}, nil
	}
	s, err := r.str()
	if err != nil || s == "" {
		return netip.Addr{}, err
	}
	return parseIPName(s, v6)
}

// prefix reads a CIDR of any family, or a single address. Host bits are masked.
func (r *reader) prefix() (netip.Prefix, error) {
	s, err := r.str()
	if err != nil {
		return netip.Prefix{}, err
	}
	return parsePrefix(s)
}

// parsePrefix parses a CIDR as people write it: a plain address stands for itself alone, and host bits are masked.
func parsePrefix(s string) (netip.Prefix, error) {
	bad := func() error { return fmt.Errorf("%.64q: want a CIDR like 10.0.0.0/8 or fd00::/8", s) }
	if len(s) > 64 {
		return netip.Prefix{}, bad()
	}
	if strings.IndexByte(s, '/') < 0 {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Prefix{}, bad()
		}
		return netip.PrefixFrom(a, a.BitLen()), checkFamily(a, a.Is6())
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, bad()
	}
	return p.Masked(), checkFamily(p.Addr(), p.Addr().Is6())
}

// optionalStr reads a string; null means "".
func (r *reader) optionalStr() (string, error) {
	if r.null() {
		return "", nil
	}
	return r.str()
}

// optionalBool reads a boolean; null means absent.
func (r *reader) optionalBool(absent bool) (bool, error) {
	if r.null() {
		return absent, nil
	}
	return r.boolean()
}

// parseAnyAddr reads an address of either family.
func parseAnyAddr(r *reader) (netip.Addr, error) {
	s, err := r.str()
	if err != nil {
		return netip.Addr{}, err
	}
	if len(s) > 64 {
		return netip.Addr{}, fmt.Errorf("%.64q: want an IP address", s)
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q: want an IP address", s)
	}
	return a, checkFamily(a, a.Is6())
}

// time reads an RFC 3339 time; null and "" mean none.
func (r *reader) time() (time.Time, error) {
	s, err := r.optionalStr()
	if err != nil || s == "" {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		return time.Time{}, fmt.Errorf("%.64q: want a time like 2026-01-02T15:04:05Z", s)
	}
	return t.UTC(), nil
}
