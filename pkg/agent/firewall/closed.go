// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/policy"
)

// closed tracks the interfaces of this host's workload endpoints that no prefix covers. The firewall closes them, as nothing else tells
// them from the host's own. It must leave the host's own open: a slip would cut the host off.
type closed struct {
	names map[string]string // by the endpoint's path
	// own are the indexes of the links that were seen to be the host's own, by name. They remain own: a link that was closed when it lost
	// its address would not get it back.
	own    map[string]int
	judged map[string]bool // whether each is closed, as last judged
	stale  bool            // the host's links may have changed
	links  []hostnet.Role  // as last read; nil: not read since judge
}

func newClosed() *closed { return &closed{names: map[string]string{}, own: map[string]int{}} }

// note records which interface of an endpoint no prefix covers, "" = none.
func (x *closed) note(path, name string) {
	if name == "" {
		if _, named := x.names[path]; named {
			delete(x.names, path)
			x.stale = true // names no longer in use are forgotten
		}
		return
	}
	x.stale = x.stale || x.names[path] != name
	x.names[path] = name
}

// has reports whether the interface of an endpoint is closed.
func (x *closed) has(path string) bool { return x.judged[x.names[path]] }

// look reads the host's links if they may have changed and matter.
func (x *closed) look(roles func(prefixes []string) ([]hostnet.Role, error)) (err error) {
	if x.links = nil; len(x.names) > 0 && x.stale {
		x.links, err = roles([]string{""})
	}
	return err
}

// judge tells the host's own links from the others if they were read again, and returns the endpoints to decide on again.
func (x *closed) judge() (paths []string) {
	if len(x.names) == 0 {
		x.stale, x.judged = false, nil
		clear(x.own)
	}
	if x.links == nil {
		return nil
	}
	own := map[string]int{policy.Loopback: 0}
	for _, name := range link.TunnelNames() { // whether they exist or not
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
