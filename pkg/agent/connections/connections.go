// SPDX-License-Identifier: Apache-2.0

// Package connections ends tracked connections that must not continue: those of
// addresses that are gone, those that policy denies now, and those that lack a
// translation that a new connection would get.
//
// A Cutter learns what changed once the firewall has been applied with the change. It then walks the kernel's table of connections, judges
// those that the change concerns by the enforced policy, and deletes. A walk may miss a connection that meanwhile moves in the table, or
// enters it: walks go on until one finds nothing, and another a second later doesn't either.
package connections

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/nft"
)

// After each walk comes a rest of restFactor times its duration, so that the kernel's table isn't walked all the time while pods come and
// go, or policy changes, all the time.
const (
	restFactor = 9
	maxRest    = time.Second
	retryPause = time.Second
	// gatherTime is how long a change that isn't urgent waits for more of its kind.
	gatherTime = 100 * time.Millisecond
	// atOnce is how many walks that found something are repeated at once; later pauses double up to mostPause: walking will not stop a
	// denied connection that keeps coming back.
	atOnce    = 4
	mostPause = time.Minute
	// sureAfter is when work for which a walk found nothing is judged again.
	sureAfter = time.Second
)

// silencePauses are how long after a hole in the firewall all connections are judged again. Without the firewall's table nothing is
// tracked, so a connection that is silent when the table is back isn't found until it sends again.
var silencePauses = [...]time.Duration{time.Second, 6 * time.Second, time.Minute}

// Firewall stops flows from beginning a connection: nft.Firewall.
type Firewall interface {
	Cut([]nft.Cut) error
	Uncut([]nft.Flow) error
	ReadCuts() ([]nft.Flow, error)
}

// Tracker is the kernel's table of connections: package conntrack.
type Tracker interface {
	List(keep func(conntrack.Connection) bool) ([]conntrack.Tracked, error)
	Delete([]conntrack.Tracked) (int, error)
	// Routes returns a lookup of the host's interfaces that lead to an address.
	Routes() Routes
}

// Metrics count deleted connections: those that are over, and those that policy denies.
type Metrics struct{ Over, Denied prometheus.Counter }

// NewMetrics returns unregistered Metrics.
func NewMetrics() Metrics {
	return Metrics{
		Over: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "calico_node_connections_deleted_total", Help: "Tracked connections deleted because their address went away, or leads elsewhere now.",
		}),
		Denied: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "calico_node_connections_cut_total", Help: "Tracked connections cut because policy came to deny them.",
		}),
	}
}

// Config configures a Cutter.
type Config struct {
	Firewall Firewall
	Tracker  Tracker
	// Policy calls a function with the policy that the firewall enforces, which must not change until the function returns.
	Policy  func(func(board.Enforced))
	Metrics Metrics
	// Wake is sent when the connections of lost addresses are deleted.
	Wake   mailbox.Signal
	Logger *slog.Logger
}

// Cutter ends connections, one walk at a time.
type Cutter struct {
	cfg Config

	mu      sync.Mutex
	wake    mailbox.Signal
	queued  set       // for the next walk
	repeat  set       // work that the next walk judges again
	walking set       // work of the walk under way
	due     time.Time // when the next walk is due, zero = there is nothing to do
	found   int       // consecutive walks that found something
	again   []later   // earliest first
}

// set is the work of a walk.
type set struct {
	lost, suspects   map[netip.Addr]struct{}
	outer            map[netip.Addr]netip.Addr
	all, masquerades bool
}

// later is work to judge again, and when.
type later struct {
	at   time.Time
	what set
}

func newSet() set {
	return set{lost: map[netip.Addr]struct{}{}, suspects: map[netip.Addr]struct{}{}, outer: map[netip.Addr]netip.Addr{}}
}

func (s *set) add(o set) {
	maps.Copy(s.lost, o.lost)
	maps.Copy(s.suspects, o.suspects)
	maps.Copy(s.outer, o.outer)
	s.all, s.masquerades = s.all || o.all, s.masquerades || o.masquerades
}

func (s *set) empty() bool {
	return len(s.lost) == 0 && len(s.suspects) == 0 && len(s.outer) == 0 && !s.all && !s.masquerades
}

// New returns a Cutter with nothing to do.
func New(cfg Config) *Cutter {
	return &Cutter{cfg: cfg, wake: mailbox.NewSignal(), queued: newSet(), repeat: newSet(), walking: newSet()}
}

// Add queues work for Run. It never blocks.
func (c *Cutter) Add(w board.Doubts) {
	if w.Empty() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued.add(set{suspects: w.Suspects, outer: w.Outer, all: w.All || w.Hole, masquerades: w.Masquerades})
	maps.Copy(c.queued.suspects, w.Moved)
	for _, a := range w.Lost {
		c.queued.lost[a] = struct{}{}
	}
	now := time.Now()
	if w.Hole {
		c.again = nil
		for _, pause := range silencePauses {
			c.again = append(c.again, later{now.Add(pause), set{all: true}})
		}
	}
	if !w.Urgent() {
		now = now.Add(gatherTime)
	}
	c.dueAt(now)
}

// dueAt makes the next walk begin no later than at. The mutex is held.
func (c *Cutter) dueAt(at time.Time) {
	if c.due.IsZero() || at.Before(c.due) {
		c.due = at
		c.wake.Send()
	}
}

// Deleting reports whether connections of one of the addresses, which led elsewhere, are still to be deleted, and makes that happen without
// delay.
func (c *Cutter) Deleting(addrs []netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	has := func(of map[netip.Addr]struct{}) bool {
		return slices.ContainsFunc(addrs, func(a netip.Addr) bool { _, is := of[a]; return is })
	}
	queued := has(c.queued.lost)
	if queued {
		c.dueAt(time.Now())
	}
	return queued || has(c.walking.lost)
}

// Run walks when there is something to do, until the context ends. It then still deletes the connections of addresses lost until then.
func (c *Cutter) Run(ctx context.Context) {
	for c.wait(ctx) {
		began := time.Now()
		err := c.turn()
		rest := min(restFactor*time.Since(began), maxRest)
		if err != nil {
			c.cfg.Logger.Warn("connections that are over, or that policy denies now, were not all cut; trying again", "err", err)
			rest = retryPause
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	lost := c.queued.lost
	c.queued = newSet() // the next agent judges all connections
	c.queued.lost = lost
	c.mu.Unlock()
	if len(lost) == 0 {
		return
	}
	if err := c.turn(); err != nil {
		c.cfg.Logger.Warn("connections that are over were not all deleted", "err", err)
	}
}

// wait returns when a walk is due; false if the context ended.
func (c *Cutter) wait(ctx context.Context) bool {
	for {
		c.mu.Lock()
		due := c.due
		if len(c.again) > 0 && (due.IsZero() || c.again[0].at.Before(due)) {
			due = c.again[0].at
		}
		left := time.Until(due)
		if !due.IsZero() && left <= 0 {
			for len(c.again) > 0 && time.Until(c.again[0].at) <= 0 {
				c.repeat.add(c.again[0].what)
				c.again = c.again[1:]
			}
			c.mu.Unlock()
			return ctx.Err() == nil
		}
		c.mu.Unlock()
		var timer <-chan time.Time
		if !due.IsZero() {
			timer = time.After(left)
		}
		select {
		case <-timer:
		case <-c.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// turn does the queued work, and queues it again if it fails or finds something. New work that finds nothing is judged again after a while.
func (c *Cutter) turn() error {
	c.mu.Lock()
	fresh, work := c.queued, newSet()
	work.add(c.repeat)
	work.add(fresh)
	c.queued, c.repeat, c.walking, c.due = newSet(), newSet(), work, time.Time{}
	c.mu.Unlock()
	found, err := c.walk(work)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.walking = newSet()
	if err != nil {
		c.requeue(work, 0)
		return err
	}
	lost := len(work.lost) > 0
	work.lost, fresh.lost = map[netip.Addr]struct{}{}, nil // another workload may have the addresses from now on
	switch {
	case found:
		pause := time.Duration(0)
		if c.found++; c.found > atOnce {
			pause = min(sureAfter<<min(c.found-atOnce-1, 10), mostPause)
		}
		c.requeue(work, pause)
	case !fresh.empty():
		c.again = append(c.again, later{time.Now().Add(sureAfter), fresh})
		slices.SortFunc(c.again, func(a, b later) int { return a.at.Compare(b.at) })
	}
	if !found {
		c.found = 0
	}
	if lost {
		c.cfg.Wake.Send()
	}
	return nil
}

// requeue queues work again, together with what came meanwhile. The mutex is held.
func (c *Cutter) requeue(work set, pause time.Duration) {
	work.add(c.queued) // the newer outer addresses win
	c.queued = work
	c.dueAt(time.Now().Add(pause))
}

// walk finds the connections that the work concerns, and deletes those that must not go on. It reports whether policy denies any of them.
func (c *Cutter) walk(work set) (found bool, err error) {
	routes := c.cfg.Tracker.Routes()
	defer routes.Close()
	var untranslated translations
	c.cfg.Policy(func(p board.Enforced) { untranslated = work.untranslated(p.State) })
	list, err := c.cfg.Tracker.List(func(t conntrack.Connection) bool {
		return involves(t, work.lost) || work.suspect(t) || untranslated.may(t)
	})
	if err != nil {
		return false, err
	}
	var over, denied []conntrack.Tracked
	var cuts []nft.Cut
	judge(c, list, routes, func(at *paths, t conntrack.Tracked) {
		is, cut := false, (*nft.Cut)(nil)
		if work.suspect(t.Connection) && !involves(t.Connection, work.lost) {
			is, cut = at.judge(t)
		}
		switch {
		case is:
			denied = append(denied, t)
		case involves(t.Connection, work.lost):
			over = append(over, t)
		case untranslated.has(t): // some of these come back, as they don't get the translation
			over = append(over, t)
		}
		if cut != nil {
			cuts = append(cuts, *cut)
		}
	})
	var errs []error
	n, err := c.cfg.Tracker.Delete(over)
	errs = append(errs, err)
	if err := c.cfg.Firewall.Cut(cuts); err != nil {
		errs, denied = append(errs, err), nil // the side that answers would begin them again
	}
	m, err := c.cfg.Tracker.Delete(denied)
	c.cfg.Metrics.Over.Add(float64(n))
	c.cfg.Metrics.Denied.Add(float64(m))
	if m > 0 {
		c.cfg.Logger.Info("cut connections that policy denies now", "connections", m)
	}
	return len(denied) > 0, errors.Join(append(errs, err, c.allowAgain(work, routes))...)
}

// judgedAtOnce is how many connections are judged before policy may change.
const judgedAtOnce = 256

// judge calls f with each item of a list, and with the paths of the policy enforced at that moment. With paths older than the rules,
// endpoints would refer to policies that are gone, and those deny.
func judge[T any](c *Cutter, list []T, routes Routes, f func(*paths, T)) {
	for some := range slices.Chunk(list, judgedAtOnce) {
		c.cfg.Policy(func(p board.Enforced) {
			at := newPaths(p, routes)
			for _, t := range some {
				f(at, t)
			}
		})
	}
}

// allowAgain lifts the cuts of flows that policy allows now.
func (c *Cutter) allowAgain(work set, routes Routes) error {
	if !work.all && len(work.suspects) == 0 {
		return nil
	}
	flows, err := c.cfg.Firewall.ReadCuts()
	if err != nil {
		return err
	}
	flows = slices.DeleteFunc(flows, func(f nft.Flow) bool {
		_, src := work.suspects[f.Src]
		_, dst := work.suspects[f.Dst]
		return !work.all && !src && !dst
	})
	var allowed []nft.Flow
	judge(c, flows, routes, func(at *paths, f nft.Flow) {
		if !at.denies(answers(f), query{}) {
			allowed = append(allowed, f)
		}
	})
	return c.cfg.Firewall.Uncut(allowed)
}

func (s *set) suspect(c conntrack.Connection) bool { return s.all || involves(c, s.suspects) }

func involves(c conntrack.Connection, addrs map[netip.Addr]struct{}) bool {
	if len(addrs) == 0 {
		return false
	}
	for _, a := range [...]netip.Addr{c.Src, c.Dst, c.ReplySrc, c.ReplyDst} {
		if _, ok := addrs[a]; ok {
			return true
		}
	}
	return false
}
