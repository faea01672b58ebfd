// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// mostUnknown is how many unknown fields of one value an error lists.
const mostUnknown = 4

// UnknownFields returns an error that lists the fields of a value that ParseValue ignored because they are unknown, and
// the known ones; nil if there are none. A newer version may have written them, so the value is valid all the same. It
// looks only at kinds that people write by hand: not at workload endpoints, address management, or the metadata of a
// host, where other programs may keep notes. ParseValue rejects unknown fields in rules, BGP filters and, if they may
// decide, in policies.
func UnknownFields(k Key, data []byte) error {
	known := kindsByKey[reflect.TypeOf(k)].fields
	if known == nil || len(data) > maxValue {
		return nil
	}
	r, err := newReader(data)
	if err != nil || r.next() != '{' {
		return nil // ParseValue reports that
	}
	_, isPolicy := k.(PolicyKey)
	var unknown []string
	more := 0
	err = r.fields(func(name string) error {
		value := r.raw()
		switch {
		case slices.Contains(known, name), isPolicy && mayDecide(name, value): // ParseValue rejects the latter
		case len(unknown) < mostUnknown:
			unknown = append(unknown, fieldName(name))
		default:
			more++
		}
		return nil
	})
	if err != nil || len(unknown) == 0 {
		return err
	}
	rest := ""
	if more > 0 {
		rest = fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s%s: unknown, and passed over: want one of %s", strings.Join(unknown, ", "), rest, strings.Join(known, ", "))
}

// UnknownKey returns an error for a path below BGPPrefix, BlockPrefix or StatusPrefix that is unknown, with what is
// known there. It returns nil for a path that is known, if only as another program's setting, or lies elsewhere. host
// is the host it belongs to, "" for all.
func UnknownKey(path string) (host string, err error) {
	if _, bad := ParseKey(path); !errors.Is(bad, ErrUnknownKey) {
		return "", nil
	}
	const unknown = "nothing is known of this key, and it is passed over: want, below "
	for _, v6 := range []bool{false, true} {
		if blocks := BlockPrefix(v6); strings.HasPrefix(path, blocks) {
			return "", fmt.Errorf("%s%s, a CIDR with - for /", unknown, blocks)
		}
	}
	if of, is := strings.CutPrefix(path, StatusPrefix("")); is {
		return hostOf(of), fmt.Errorf("%s%s<host>/, one of %s", unknown, StatusPrefix(""), namesBelow("felix/v1/host/*/", "<name>"))
	}
	rest, ok := strings.CutPrefix(path, Root)
	if !ok || !strings.HasPrefix(path, bgpRoot) {
		return "", nil
	}
	if strings.HasPrefix(rest, "bgp/v1/global/custom_filters/") {
		return "", nil
	}
	var n names
	for _, pattern := range foreignBGP {
		if _, ok := match(pattern, rest, &n); ok {
			return "", nil
		}
	}
	if of, is := strings.CutPrefix(rest, "bgp/v1/host/"); is {
		return hostOf(of), fmt.Errorf("%s%shost/<host>/, one of %s", unknown, bgpRoot, namesBelow("bgp/v1/host/*/", "<address>"))
	}
	if strings.HasPrefix(rest, "bgp/v1/global/") {
		return "", fmt.Errorf("%s%sglobal/, one of %s", unknown, bgpRoot, namesBelow("bgp/v1/global/", "<address>"))
	}
	return "", fmt.Errorf("%s%s, global/<name>, host/<host>/<name>, peer/<name> or filter/<name>", unknown, bgpRoot)
}

// hostOf returns the host whose name a path begins with.
func hostOf(path string) string {
	host, _, _ := strings.Cut(path, "/")
	if name, err := UnescapeName(host); err == nil {
		return name
	}
	return host
}

// namesBelow lists the keys below a place of the data model. variable replaces the variable parts of their names.
func namesBelow(place, variable string) string {
	var all []string
	for _, k := range kinds {
		for _, p := range k.places {
			if name, is := strings.CutPrefix(p.pattern, place); is {
				all = append(all, strings.ReplaceAll(name, "*", variable))
			}
		}
	}
	return strings.Join(all, ", ")
}

// foreignBGP are keys of BIRD's templates, calicoctl and the route reflector's container, which this program doesn't
// use.
var foreignBGP = [...]string{
	"bgp/v1/global/loglevel", "bgp/v1/host/*/loglevel", "bgp/v1/host/*/network_v6", "bgp/v1/host/*/rr_cluster_id",
	"bgp/v1/host/*", "bgp/v1/rr_v4/*", "bgp/v1/rr_v6/*",
}
