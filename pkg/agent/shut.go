// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/policy"
)

// shut are the interfaces of this host's workload endpoints that no prefix covers, which
// the firewall closes: nothing else tells them from the host's own. Those that
// are the host's own it must leave alone, as the host would be cut off by a slip.
type shut struct {
	names map[string]string // by the endpoint's path
	// own are the links of those that were seen to be the host's own, by name. They stay
	// so: one that was closed when it lost its address would not get it back.
	own    map[string]int
	closed map[string]bool // the others, as far as looked at
	stale  bool            // the host's links may be others
}

func newShut() *shut { return &shut{names: map[string]string{}, own: map[string]int{}} }

// note takes in what became of an endpoint.
func (x *shut) note(s *state, path string) {
	ep := s.endpoints[path]
	if ep == nil || ep.invalid != nil || params.BeginningOf(ep.spec.Name, s.prefixes) != "" {
		if _, named := x.names[path]; named {
			delete(x.names, path)
			x.stale = true // what nobody names any more is forgotten
		}
		return
	}
	x.stale = x.stale || x.names[path] != ep.spec.Name
	x.names[path] = ep.spec.Name
}

// has says whether the interface of an endpoint is closed.
func (x *shut) has(path string) bool { return x.closed[x.names[path]] }

// judge tells the host's own links from the others, where these may have changed, and
// returns the endpoints for which that made a difference.
func (x *shut) judge(roles params.LinkRoles) (paths []string, err error) {
	if len(x.names) == 0 {
		x.stale, x.closed = false, nil
		clear(x.own)
	}
	if !x.stale {
		return nil, nil
	}
	links, err := roles([]string{""})
	if err != nil {
		return nil, err
	}
	own := map[string]int{policy.Loopback: 0}
	for _, name := range link.TunnelNames() { // there or not
		own[name] = 0
	}
	for _, l := range links {
		was, seen := x.own[l.Name]
		if l.Loopback || l.Tunnel || len(l.Addrs) > 0 || l.Uplink || seen && was == l.Index {
			own[l.Name] = l.Index
		}
	}
	x.stale, x.closed = false, map[string]bool{}
	clear(x.own)
	for path, name := range x.names {
		index, is := own[name]
		if is {
			x.own[name] = index
		}
		x.closed[name] = !is
		paths = append(paths, path)
	}
	return paths, nil
}

// judgeShut has the firewall follow what is closed. The paths are those of endpoints that
// changed, to which others come.
func (l *loop) judgeShut(paths map[string]struct{}) {
	for path := range paths {
		l.wall.shut.note(l.state, path)
	}
	more, err := l.wall.shut.judge(l.system.roles)
	if err != nil {
		l.log.Warn("the host's own links could not be read, to close those of endpoints that no prefix covers; trying again", "err", err)
		l.again()
	}
	for _, path := range more {
		paths[path] = struct{}{}
	}
}
