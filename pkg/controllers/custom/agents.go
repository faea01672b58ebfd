// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/calico-go/calico/pkg/model"
)

// Agents is what the live agents report of themselves in etcd: up to which revision each has in force what objects have made.
type Agents struct {
	mu        sync.Mutex
	revisions map[string]int64 // by host; without those that have yet to program theirs for the first time
	read      bool
	changed   []func()
}

// NewAgents returns Agents that know of none.
func NewAgents() *Agents { return &Agents{revisions: map[string]int64{}} }

// Update takes in what etcd has below Watched, and each change.
func (a *Agents) Update(u model.Update) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was, read := a.leastOf(), a.read
	a.read = a.read || u.Resync
	if u.Resync {
		clear(a.revisions)
	}
	for _, e := range u.Entries {
		key, is := e.Key.(model.StatusKey)
		if !is {
			continue
		}
		s, is := e.Value.(model.Status)
		if delete(a.revisions, key.Host); is && s.FirstUpdate {
			a.revisions[key.Host] = s.PolicyRevision
		}
	}
	if a.leastOf() != was || a.read != read {
		for _, notify := range a.changed {
			notify()
		}
	}
}

// Watched returns the prefix of keys that Update must be told of.
func (a *Agents) Watched() []string { return []string{model.StatusPrefix("")} }

// least returns the revision that all agents have reached, 0 = none, and whether all are known.
func (a *Agents) least() (revision int64, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leastOf(), a.read
}

// leastOf is least for a caller that holds mu.
func (a *Agents) leastOf() int64 {
	if len(a.revisions) == 0 {
		return 0
	}
	return slices.Min(slices.Collect(maps.Values(a.revisions)))
}

// notify has wake called when what least returns changes. It mustn't block.
func (a *Agents) notify(wake func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = append(a.changed, wake)
}

// mostNamed is how many hosts are named of those that lack something.
const mostNamed = 3

// realise reports whether all live agents have in force what was written at a revision, 0 = one that isn't known yet, and says how many of
// how many do.
func (a *Agents) realise(revision int64) (all bool, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var lack []string
	for host, reached := range a.revisions {
		if revision == 0 || reached < revision {
			lack = append(lack, host)
		}
	}
	n, m := len(a.revisions)-len(lack), len(a.revisions)
	switch {
	case m == 0:
		return false, "0/0 nodes: no agent reports to etcd"
	case len(lack) == 0:
		return true, fmt.Sprintf("%d/%d nodes", n, m)
	}
	slices.Sort(lack)
	more := ""
	if len(lack) > mostNamed {
		lack, more = lack[:mostNamed], ", …"
	}
	return false, fmt.Sprintf("%d/%d nodes, not %s%s: if that lasts, calicoctl node status there says why, unless the agent is of an older version", n, m, strings.Join(lack, ", "), more)
}
