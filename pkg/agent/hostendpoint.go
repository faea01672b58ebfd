// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// tellHosts reports on the host endpoints that changed, or whose interface did.
func (l *loop) tellHosts() {
	names := make(map[string]string, len(l.wall.hosts))
	for path := range l.wall.hosts {
		o, there := l.state.objects[path]
		ep := l.wall.found[path]
		absent := there && ep != nil && !ep.Wildcard && !slices.ContainsFunc(l.wall.interfaces, func(i policy.Interface) bool { return i.Name == ep.Interface })
		switch {
		case !there:
			l.report.Remove(path)
		case o.invalid != nil || ep == nil:
			l.report.Set(path, o.key, model.EndpointError)
		case absent:
			l.report.Set(path, o.key, model.EndpointDown)
		case l.wall.stands(path) != nil:
			l.report.Set(path, o.key, model.EndpointError)
		default:
			l.report.Set(path, o.key, model.EndpointUp)
		}
		if names[path] = ""; absent && l.interfaceProblem == "" {
			names[path] = ep.Interface // "" = on none, which sayInvalid says
		}
	}
	l.sayAbsent(names)
	clear(l.wall.hosts)
}

// sayAbsent says of host endpoints which interface they name that isn't there, "" = none. It is
// a notice: the interface may be still to come, and is closed then.
func (l *loop) sayAbsent(names map[string]string) {
	for path, name := range names {
		was := l.absent[path]
		if was == "" || was == name {
			continue
		}
		l.problems.Note(problems.Notice, "interface "+was, nil) // before another endpoint's that names it now
		delete(l.absent, path)
		l.log.Info("host endpoint names no interface any more that isn't there", "key", path, "interface", was)
	}
	for path, name := range names {
		if name == "" {
			continue
		}
		_, reason := l.problems.Note(problems.Notice, "interface "+name, fmt.Errorf("host endpoint %s names it, and this host has none of this name: "+
			"nothing is enforced before it has. If the name is wrong, correct it. The host has %s", path, l.interfaceNames()))
		if l.absent[path] != name {
			l.absent[path] = name
			l.log.Warn("host endpoint names an interface that isn't there", "key", path, "interface", name, "reason", reason)
		}
	}
}

// interfaceNames lists the host's own interfaces.
func (l *loop) interfaceNames() string {
	var names []string
	for _, i := range l.wall.interfaces {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return cmp.Or(strings.Join(names, ", "), "none but workloads' and the loopback")
}
