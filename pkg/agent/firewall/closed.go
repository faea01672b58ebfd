// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/policy"
)

// closed are the interfaces of this host's workload endpoints that no prefix covers, which
// the firewall closes: nothing else tells them from the host's own. Those that
// are the host's own it must leave alone, as the host would be cut off by a slip.
type closed struct {
	names map[string]string // by the endpoint's path
	// own are the links of those that were seen to be the host's own, by name. They stay
	// so: one that was closed when it lost its address would not get it back.
	own    map[string]int
	judged map[string]bool // whether each is closed, as far as looked at
	stale  bool            // the host's links may be others
	links  []hostnet.Role  // as read since; nil: they weren't
}

func newClosed() *closed { return &closed{names: map[string]string{}, own: map[string]int{}} }

// note takes in which interface of an endpoint no prefix covers, "" = none.
func (x *closed) note(path, name string) {
	if name == "" {
		if _, named := x.names[path]; named {
			delete(x.names, path)
			x.stale = true // what nobody names any more is forgotten
		}
		return
	}
	x.stale = x.stale || x.names[path] != name
	x.names[path] = name
}

// has says whether the interface of an endpoint is closed.
func (x *closed) has(path string) bool { return x.judged[x.names[path]] }

// look reads the host's links, where they may have changed and bear on anything.
func (x *closed) look(roles func(prefixes []string) ([]hostnet.Role, error)) (err error) {
	if x.links = nil; len(x.names) > 0 && x.stale {
		x.links, err = roles([]string{""})
	}
	return err
}

// judge tells the host's own links from the others, where these were read anew, and returns the endpoints for which that
// made a difference.
func (x *closed) judge() (paths []string) {
	if len(x.names) == 0 {
		x.stale, x.judged = false, nil
		clear(x.own)
	}
	if x.links == nil {
		return nil
	}
	own := map[string]int{policy.Loopback: 0}
	for _, name := range link.TunnelNames() { // there or not
		own[name] = 0
	}
	for _, l := range x.links {
		was, seen := x.own[l.Name]
		if l.Loopback || l.Tunnel || len(l.Addrs) > 0 || l.Uplink || seen && was == l.Index {
			own[l.Name] = l.Index
		}
	}
	x.stale, x.judged, x.links = false, map[string]bool{}, nil
	clear(x.own)
	for path, name := range x.names {
		index, is := own[name]
		if is {
			x.own[name] = index
		}
		x.judged[name] = !is
		paths = append(paths, path)
	}
	return paths
}
