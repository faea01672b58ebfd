// SPDX-License-Identifier: Apache-2.0

// Package inbox keeps what etcd has told until who acts on it has time, and says which of it bears on routes.
package inbox

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/model"
)

// Inbox is what etcd has told and the router has not taken in yet: of each key
// the latest. So the watch never waits for the router, whatever that is doing, and
// no more is kept than etcd holds.
type Inbox struct {
	// Wake receives when there may be something to take.
	Wake mailbox.Signal

	mu     sync.Mutex
	latest map[string]model.Entry
	// late are the live statuses of hosts that went and aren't taken for gone yet, by path.
	late map[string]*time.Timer
	// known are the keys that exist, by path, of those that bear on routes.
	known         map[string]model.Key
	synced, ready bool
	// revision is that of the latest update, taken that up to which all was taken.
	revision, taken int64
}

// New has heard of nothing yet.
func New() *Inbox {
	return &Inbox{Wake: mailbox.NewSignal(), latest: map[string]model.Entry{}, late: map[string]*time.Timer{}, known: map[string]model.Key{}}
}

// lateTime is how long a host's live status may be missing. Where hosts were cut off from etcd for longer than leases
// last, each hears that the others' have ended, and a moment later that they live.
const lateTime = 5 * time.Second

// Put takes in one update of the watch. It doesn't wait.
func (b *Inbox) Put(u model.Update) {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := u.Resync
	b.revision = u.Revision
	if u.Resync {
		b.synced, b.ready = true, false
		there := make(map[string]struct{}, len(u.Entries))
		for _, e := range u.Entries {
			there[e.Path] = struct{}{}
		}
		for path, key := range b.known {
			if _, ok := there[path]; !ok {
				b.remove(model.Entry{Path: path, Key: key})
			}
		}
	}
	for _, e := range u.Entries {
		if _, ok := e.Key.(model.ReadyKey); ok {
			ready, ok := e.Value.(model.Ready)
			b.ready, told = ok && bool(ready), true
			continue
		}
		bears, byExistence := bearsOnRoutes(e)
		_, knew := b.known[e.Path]
		if e.Exists() {
			b.cancel(e.Path)
		}
		if !bears || byExistence && knew == e.Exists() {
			continue
		}
		if !e.Exists() {
			told = b.remove(e) || told
			continue
		}
		b.known[e.Path] = e.Key
		b.latest[e.Path], told = e, true
	}
	if told {
		b.Wake.Send()
	}
}

// remove takes in that a key is gone, of a live status later. It says whether it did.
func (b *Inbox) remove(e model.Entry) bool {
	if _, ok := e.Key.(model.StatusKey); !ok {
		delete(b.known, e.Path)
		b.latest[e.Path] = e
		return true
	}
	if b.late[e.Path] != nil {
		return false
	}
	var timer *time.Timer
	timer = time.AfterFunc(lateTime, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.late[e.Path] != timer {
			return
		}
		delete(b.late, e.Path)
		delete(b.known, e.Path)
		b.latest[e.Path] = e
		b.Wake.Send()
	})
	b.late[e.Path] = timer
	return false
}

// cancel forgets that a live status was missing.
func (b *Inbox) cancel(path string) {
	if timer := b.late[path]; timer != nil {
		timer.Stop()
		delete(b.late, path)
	}
}

// Waits says what is to be waited for before anything is taken; "" = nothing.
func (b *Inbox) Waits() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return health.WaitsFor(b.synced, b.ready)
}

// Take gives what is new: nothing while there is something to wait for, so that
// an etcd that was emptied cuts off nobody, and nothing while held says so. That is asked
// when nothing can come in any more: what it goes by is known before the inbox is told.
func (b *Inbox) Take(held func() bool) []model.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if health.WaitsFor(b.synced, b.ready) != "" || held() {
		return nil
	}
	b.taken = b.revision
	if len(b.latest) == 0 {
		return nil
	}
	entries := slices.Collect(maps.Values(b.latest))
	if len(entries) > 1000 {
		b.latest = map[string]model.Entry{} // a map never shrinks
	}
	clear(b.latest)
	return entries
}

// UpTo is the revision up to which all was taken.
func (b *Inbox) UpTo() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// bearsOnRoutes says whether plan.Engine takes a key in, and whether all that
// counts of it is that it is there. It is the engine that says what is wrong with a path that is no key.
func bearsOnRoutes(e model.Entry) (bears, byExistence bool) {
	switch e.Key.(type) {
	case nil:
		return IsRoutesOnly(e.Path), false
	case model.HostMetadataKey, model.StatusKey, model.LastStatusKey:
		return true, true
	case model.WorkloadEndpointKey, model.BlockKey, model.PoolKey, model.HostBirdIPKey, model.BGPHostKey,
		model.BGPGlobalASKey, model.BGPMeshKey, model.BGPPeerKey:
		return true, false
	}
	return false, false
}

// RoutesOnly are the watched prefixes of which the loop takes in nothing.
func RoutesOnly() []string {
	return []string{model.BGPPrefix(), model.BlockPrefix(false), model.BlockPrefix(true), model.StatusPrefix("")}
}

// ForLoop is what of an update is for the loop, false where nothing is. That the
// loop doesn't hear of the revision then doesn't matter: at the gate one waits for
// the revision of an endpoint.
func ForLoop(u model.Update, others []string) (model.Update, bool) {
	isOthers := func(e model.Entry) bool {
		for _, p := range others {
			if strings.HasPrefix(e.Path, p) {
				return true
			}
		}
		return false
	}
	n := 0
	for _, e := range u.Entries {
		if isOthers(e) {
			n++
		}
	}
	switch {
	case n == 0:
		return u, true
	case n == len(u.Entries) && !u.Resync:
		return model.Update{}, false
	}
	mine := make([]model.Entry, 0, len(u.Entries)-n)
	for _, e := range u.Entries {
		if !isOthers(e) {
			mine = append(mine, e)
		}
	}
	u.Entries = mine
	return u, true
}

// IsRoutesOnly says whether a path lies where the loop takes in nothing.
func IsRoutesOnly(path string) bool {
	return slices.ContainsFunc(RoutesOnly(), func(p string) bool { return strings.HasPrefix(path, p) })
}
