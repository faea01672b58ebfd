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

// stalePatience is for how long a workload's interface may have no endpoint: ADD makes the
// link before it, and waits for etcd.
const stalePatience = 15 * time.Second

// stale are the interfaces that the plugin made and that no endpoint in etcd has: their
// containers run and are cut off, as where etcd was restored from a backup.
type stale struct {
	found []hostpath.StaleLink // when all was read last
	read  time.Time            // when they were last known to be there
	since map[string]time.Time
	said  map[string]string // what was said of which
}

// judge says what is to be said of which interface now, given those that endpoints name, and
// whether an endpoint can't be read, whose it may be.
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

// interfaces are those that endpoints name, be they refused, with the containers of these, and
// whether there is an endpoint of which that can't be read.
func (s *claims) interfaces() (containers map[string][]string, unread bool) {
	containers = make(map[string][]string, len(s.endpoints))
	for _, ep := range s.endpoints {
		containers[ep.spec.Name] = append(containers[ep.spec.Name], ep.spec.ContainerID)
		unread = unread || ep.invalid != nil
	}
	return containers, unread
}

// ReportStale says of which interfaces etcd holds no endpoint, and of which it does again.
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
