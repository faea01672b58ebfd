// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Uplinks returns the links by which the current namespace reaches the world:
// those of the default routes; without any, hardware that is up; without any
// either, whatever is up but the loopback and links with the given prefixes.
func Uplinks(workloadPrefixes ...string) ([]Link, error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	defer s.close()
	links, err := s.links(func(name string) bool {
		return !slices.ContainsFunc(workloadPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	})
	if err != nil {
		return nil, err
	}
	links = slices.DeleteFunc(links, func(l Link) bool { return l.loopback || !l.Up })
	byDefault := make(map[int]bool)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		routes, err := s.routes(routeFilter{family: family})
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			if r.dst.Bits() == 0 {
				byDefault[r.index] = true
			}
		}
	}
	isUplink := uplinkRule(links, byDefault)
	return slices.DeleteFunc(links, func(l Link) bool { return !isUplink(l) }), nil
}

// uplinkRule tells by which of the links the world is reached: the first of three
// ways to know that finds one which is up.
func uplinkRule(links []Link, byDefault map[int]bool) func(Link) bool {
	for _, isUplink := range []func(Link) bool{
		func(l Link) bool { return byDefault[l.Index] },
		func(l Link) bool { return l.Kind == "" },
	} {
		if slices.ContainsFunc(links, func(l Link) bool { return l.Up && !l.loopback && isUplink(l) }) {
			return isUplink
		}
	}
	return func(Link) bool { return true }
}

// ErrNoUplink is UplinkMTU's error where Uplinks returns none.
var ErrNoUplink = errors.New("no network interface but the loopback is up")

// UplinkMTU is the smallest MTU of the Uplinks.
func UplinkMTU(workloadPrefixes ...string) (int, error) {
	links, err := Uplinks(workloadPrefixes...)
	if err != nil {
		return 0, err
	}
	if len(links) == 0 {
		return 0, ErrNoUplink
	}
	return slices.MinFunc(links, func(a, b Link) int { return a.MTU - b.MTU }).MTU, nil
}
