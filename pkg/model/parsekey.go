// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ErrUnknownKey says that a path is not part of the data model, as opposed to one with a known place but an invalid
// name, CIDR or address.
var ErrUnknownKey = errors.New("not a key of the data model")

// ParseKey parses a path in its canonical form or any older one. The error is ErrUnknownKey or says which part of the
// path is wrong.
func ParseKey(path string) (Key, error) {
	rest, ok := strings.CutPrefix(path, Root)
	if !ok {
		return nil, fmt.Errorf("key %.256q: %w", path, ErrUnknownKey)
	}
	var n names
	for _, k := range kinds {
		for _, p := range k.places {
			count, ok := match(p.pattern, rest, &n)
			if !ok {
				continue
			}
			for i := range count {
				name, err := UnescapeName(n[i])
				if err != nil {
					return nil, fmt.Errorf("key %.256q: %w", path, err)
				}
				n[i] = name
			}
			key, err := p.key(n)
			if err != nil { // key is incomplete then
				return nil, fmt.Errorf("key %.256q: %w", path, err)
			}
			return key, nil
		}
	}
	return nil, fmt.Errorf("key %.256q: %w", path, ErrUnknownKey)
}

// match compares a path with a pattern segment by segment and collects the segments at each *.
func match(pattern, path string, into *names) (n int, ok bool) {
	for {
		var want, have string
		var moreWant, moreHave bool
		want, pattern, moreWant = strings.Cut(pattern, "/")
		have, path, moreHave = strings.Cut(path, "/")
		if want == "*" {
			into[n] = have
			n++
		} else if want != have {
			return 0, false
		}
		if moreWant != moreHave {
			return 0, false
		}
		if !moreWant {
			return n, true
		}
	}
}

func parsePoolKey(n names, v6 bool) (Key, error) {
	p, err := parseCIDRName(n[0], v6)
	return PoolKey{p}, err
}

func parseBlockKey(n names, v6 bool) (Key, error) {
	p, err := parseCIDRName(n[0], v6)
	if err == nil {
		err = checkBlockCIDR(p)
	}
	return BlockKey{p}, err
}

func parseAffinityKey(n names, v6 bool) (Key, error) {
	p, err := parseCIDRName(n[1], v6)
	if err == nil {
		err = checkBlockCIDR(p)
	}
	return AffinityKey{n[0], p}, err
}

func parsePeerKey(host, s string, v6, legacy bool) (Key, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Is6() && a.IsLinkLocalUnicast() {
		return nil, checkPeerIP(a)
	}
	a, err := parseIPName(s, v6)
	if err == nil {
		err = checkPeerIP(a)
	}
	return BGPPeerKey{Host: host, IP: a, Legacy: legacy}, err
}
