// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/kernel/link"
)

// stalePatience is how long a workload's interface may have no endpoint: ADD creates the link before the endpoint, and waits for etcd.
const stalePatience = 15 * time.Second

// stale tracks the interfaces that the plugin created and that no endpoint in etcd has: their containers run and are cut off, for instance
// after etcd was restored from a backup.
type stale struct {
	found []hostpath.StaleLink // as of the last full reading
	read  time.Time            // time of that reading
	since map[string]time.Time
	said  map[string]string // what was reported, by interface
}

// judge returns what to report now, by interface, given those that endpoints name, and whether there is an unreadable endpoint, which may
// name one.
func (x *stale) judge(named func(hostpath.StaleLink) bool, unread bool, now time.Time) map[string]string {
	since, say := map[string]time.Time{}, map[string]string{}
	what, todo := "no endpoint of this host in etcd has", "delete the container, for a new one to be made"
	if unread {
		what, todo = "no endpoint of this host in etcd that can be read has", "correct those that can't be read; where it isn't one of them, "+todo
	}
	for _, f := range x.found {
		handle, ours := strings.CutPrefix(f.Alias, link.WorkloadAlias)
		if !ours || named(f) {
			continue
		}
		first, ok := x.since[f.Interface]
		if !ok {
			first = now
		}
		since[f.Interface] = first
		if x.read.Sub(first) >= stalePatience {
			say[f.Interface] = fmt.Sprintf("%s %s, so its container is cut off: %s. Its handle is %s: <network>.<container>.<interface>",
				what, f.Interface, todo, handle)
		}
	}
	x.since = since
	return say
}

// interfaces returns the interfaces that endpoints name, refused ones included, with their containers, and whether there is an endpoint
// whose interface can't be read.
func (s *claims) interfaces() (containers map[string][]string, unread bool) {
	containers = make(map[string][]string, len(s.endpoints))
	for _, ep := range s.endpoints {
		containers[ep.spec.Name] = append(containers[ep.spec.Name], ep.spec.ContainerID)
		unread = unread || ep.invalid != nil
	}
	return containers, unread
}

// ReportStale reports the interfaces that have no endpoint in etcd, and those that have one again.
func (r *Reconciler) ReportStale() {
	x := &r.stale
	if !r.applied || len(x.found) == 0 && len(x.said) == 0 {
		return
	}
	containers, unread := r.claims.interfaces()
	say := x.judge(func(f hostpath.StaleLink) bool {
		return slices.ContainsFunc(containers[f.Interface], func(c string) bool { return !link.IsAnothers(f.Alias, c) })
	}, unread, time.Now())
	if maps.Equal(say, x.said) {
		return
	}
	var fresh []string
	for iface, reason := range say {
		r.cfg.Problems.Note(problems.Notice, "interface "+iface, errors.New(reason))
		if x.said[iface] == "" {
			fresh = append(fresh, iface)
		}
	}
	for iface := range x.said {
		if say[iface] == "" {
			r.cfg.Problems.Note(problems.Notice, "interface "+iface, nil)
		}
	}
	x.said = say
	if len(say) == 0 {
		r.cfg.Logger.Info("every workload interface has an endpoint in etcd again")
	}
	if len(fresh) > 0 {
		first := slices.Min(fresh)
		r.cfg.Logger.Warn("workload interfaces have no endpoint in etcd, see /debug/invalid", "count", len(say), "first", first, "reason", say[first])
	}
}
