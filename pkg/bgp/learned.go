// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/calico-go/calico/pkg/plan"
)

// learned holds the learned routes and the subscriptions to them. The zero value is empty.
type learned struct {
	mu       sync.Mutex
	routes   map[netip.Prefix]plan.Learned
	complete bool
	// former are the prefixes from before a restart of the speaker, until they are learned again or all routes are known.
	former  map[netip.Prefix]struct{}
	readers map[*Subscription]struct{}
	again   func([]netip.Prefix) // makes the watch look at prefixes; nil = nothing runs
}

// A Subscription reports learned and withdrawn routes to its reader. It keeps the latest state of each prefix, however slow
// the reader is.
type Subscription struct {
	from  *learned
	ready chan struct{}
	dirty map[netip.Prefix]struct{} // guarded by from.mu
}

// Learned returns all learned routes, sorted by prefix.
func (s *Speaker) Learned() []plan.Learned {
	s.learned.mu.Lock()
	defer s.learned.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.learned.routes), func(a, b plan.Learned) int {
		return comparePrefixes(a.Prefix, b.Prefix)
	})
}

// Complete reports whether all neighbours of the first Apply have sent their routes, or have had their time. Until then, a
// missing route may just not have been learned yet.
func (s *Speaker) Complete() bool {
	s.learned.mu.Lock()
	defer s.learned.mu.Unlock()
	return s.learned.complete
}

// Subscribe returns a subscription that starts with all learned routes. Close it when done.
func (s *Speaker) Subscribe() *Subscription {
	l := &s.learned
	l.mu.Lock()
	defer l.mu.Unlock()
	sub := &Subscription{from: l, ready: make(chan struct{}, 1), dirty: make(map[netip.Prefix]struct{})}
	for p := range l.routes {
		sub.dirty[p] = struct{}{}
	}
	if l.readers == nil {
		l.readers = make(map[*Subscription]struct{})
	}
	l.readers[sub] = struct{}{}
	sub.ready <- struct{}{}
	return sub
}

// Ready receives when Take has something to return, or Complete has changed.
func (sub *Subscription) Ready() <-chan struct{} { return sub.ready }

// Take returns what changed since the last call, sorted; routes without paths are gone.
func (sub *Subscription) Take() []plan.Learned {
	sub.from.mu.Lock()
	defer sub.from.mu.Unlock()
	changed := make([]plan.Learned, 0, len(sub.dirty))
	for p := range sub.dirty {
		changed = append(changed, plan.Learned{Prefix: p, Paths: sub.from.routes[p].Paths})
	}
	clear(sub.dirty)
	slices.SortFunc(changed, func(a, b plan.Learned) int { return comparePrefixes(a.Prefix, b.Prefix) })
	return changed
}

// LookAgain requests another look at prefixes: changes of paths that aren't the best are reported along with changes of those
// that are, and otherwise only on request. It doesn't wait.
func (sub *Subscription) LookAgain(prefixes []netip.Prefix) {
	sub.from.mu.Lock()
	again := sub.from.again
	sub.from.mu.Unlock()
	if again != nil {
		again(prefixes)
	}
}

// setAgain sets the function that looks at prefixes.
func (l *learned) setAgain(again func([]netip.Prefix)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = again
}

// Close ends the subscription.
func (sub *Subscription) Close() {
	sub.from.mu.Lock()
	defer sub.from.mu.Unlock()
	delete(sub.from.readers, sub)
}

// set takes in the current state of some prefixes.
func (l *learned) set(routes []plan.Learned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := make([]plan.Learned, 0, len(routes))
	for _, r := range routes {
		if _, kept := l.former[r.Prefix]; kept && len(r.Paths) == 0 {
			continue // its neighbour may not have sent it again yet
		}
		delete(l.former, r.Prefix)
		known = append(known, r)
	}
	l.put(known)
}

// put stores these routes and notifies readers of those that changed; mu must be held.
func (l *learned) put(routes []plan.Learned) {
	if l.routes == nil {
		l.routes = make(map[netip.Prefix]plan.Learned)
	}
	changed := false
	for _, r := range routes {
		if slices.Equal(l.routes[r.Prefix].Paths, r.Paths) {
			continue
		}
		if len(r.Paths) == 0 {
			delete(l.routes, r.Prefix)
		} else {
			l.routes[r.Prefix] = r
		}
		for sub := range l.readers {
			sub.dirty[r.Prefix] = struct{}{}
		}
		changed = true
	}
	if changed {
		l.tell()
	}
}

// clear forgets all routes.
func (l *learned) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := make([]plan.Learned, 0, len(l.routes))
	for p := range l.routes {
		gone = append(gone, plan.Learned{Prefix: p})
	}
	l.former = nil
	l.put(gone)
}

// retain keeps all learned routes while the speaker restarts, until it is known what neighbours have then.
func (l *learned) retain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.complete = false
	l.former = make(map[netip.Prefix]struct{}, len(l.routes))
	for p := range l.routes {
		l.former[p] = struct{}{}
	}
}

// forgetFormer drops the paths of former routes that came from others than the neighbours; nil drops all of them.
func (l *learned) forgetFormer(neighbours map[netip.Addr]plan.Neighbour) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var changed []plan.Learned
	for p := range l.former {
		r := plan.Learned{Prefix: p}
		for _, path := range l.routes[p].Paths {
			if _, ok := neighbours[path.Peer]; ok {
				r.Paths = append(r.Paths, path)
			}
		}
		if changed = append(changed, r); len(r.Paths) == 0 {
			delete(l.former, p)
		}
	}
	l.put(changed)
}

// setComplete records whether all routes that neighbours had at the start are known.
func (l *learned) setComplete(complete bool) {
	if complete {
		l.forgetFormer(nil)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.complete != complete {
		l.complete = complete
		l.tell()
	}
}

// tell wakes all readers.
func (l *learned) tell() {
	for sub := range l.readers {
		select {
		case sub.ready <- struct{}{}:
		default:
		}
	}
}

// used counts the learned routes whose best paths go through each neighbour.
func (l *learned) used() map[netip.Addr]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := make(map[netip.Addr]int)
	for _, r := range l.routes {
		for _, p := range r.Paths {
			if p.Rank == 0 {
				n[p.Peer]++
			}
		}
	}
	return n
}
