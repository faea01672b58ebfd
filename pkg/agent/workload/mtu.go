// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
)

const (
	// shrinkGrace is how long after the MTU shrank new workloads may still get the former one.
	shrinkGrace = time.Minute
	// shrinkPatience is how long a smaller MTU must last before running workloads get it: they never get the greater one back. Until then
	// the host answers packets that are too large with ICMP.
	shrinkPatience = 10 * time.Second
)

// A Shrinker gives running workloads the MTU of new ones, if that is smaller. It works concurrently with its caller, as it must find and
// open each workload's namespace.
type Shrinker struct {
	log      *slog.Logger
	problems *problems.Ledger
	enabled  bool
	latest   int
	mtu      int // that workloads were last shrunk to, 0 = not yet
	// lower is when a smaller MTU will have lasted long enough; zero = there is none.
	lower   time.Time
	until   time.Time // until when to repeat it
	fresh   bool      // workloads' interfaces came or changed since
	due     bool      // shrink now
	busy    bool
	done    *mailbox.Box[shrunk]
	running sync.WaitGroup
}

// shrunk is the result of shrinking.
type shrunk struct {
	mtu, changed int
	err          error
}

// NewShrinker returns a Shrinker that does nothing until it has an MTU, and while it isn't enabled. wake is sent when End must be called.
func NewShrinker(log *slog.Logger, ledger *problems.Ledger, wake mailbox.Signal, enabled bool) *Shrinker {
	return &Shrinker{log: log, problems: ledger, enabled: enabled, done: mailbox.NewFor[shrunk](wake)}
}

// Enable sets whether running workloads get a smaller MTU at all.
func (s *Shrinker) Enable(enabled bool) {
	if enabled && !s.enabled {
		s.measure() // the MTU may have shrunk before
	}
	s.enabled = enabled
}

// Set sets the MTU of new workloads, 0 = unknown.
func (s *Shrinker) Set(mtu int) {
	s.latest, s.lower = mtu, time.Time{}
	switch {
	case mtu == 0: // there is no uplink, or none yet
	case s.mtu == 0, mtu < s.mtu: // at the start, it may have shrunk while no agent ran
		s.lower = time.Now().Add(shrinkPatience)
	default:
		s.mtu = mtu
	}
}

// Due is when Lower must be called; zero = not.
func (s *Shrinker) Due() time.Time { return s.lower }

// Lower records that a smaller MTU has lasted long enough.
func (s *Shrinker) Lower() {
	s.lower, s.mtu = time.Time{}, s.latest
	s.measure()
}

// measure schedules shrinking running workloads, now and once more.
func (s *Shrinker) measure() {
	s.until, s.due, s.fresh = time.Now().Add(shrinkGrace), true, true
}

// Changed records that workloads' interfaces came or changed.
func (s *Shrinker) Changed() { s.fresh = true }

// Audit schedules shrinking again if workloads may have been created with the former MTU.
func (s *Shrinker) Audit() {
	s.due = s.due || s.fresh && time.Now().Before(s.until)
	s.fresh = false
}

// Begin starts shrinking if it is due. It doesn't block.
func (s *Shrinker) Begin(ctx context.Context, path Path) {
	if !s.due || s.busy {
		return
	}
	s.due = false
	if !s.enabled || s.mtu == 0 {
		return
	}
	s.busy = true
	mtu := s.mtu
	s.running.Go(func() {
		changed, err := path.ShrinkMTU(ctx, mtu)
		s.done.Put(shrunk{mtu, changed, err})
	})
}

// End takes in the result, if there is one.
func (s *Shrinker) End() {
	went, ok := s.done.Take()
	if !ok {
		return
	}
	s.busy = false
	if went.changed > 0 {
		s.log.Info("workloads have a smaller MTU now", "mtu", went.mtu, "workloads", went.changed)
	}
	err := went.err
	if err != nil {
		s.fresh = true
		err = fmt.Errorf("not all have %d, and some of what they send may be lost: %w", went.mtu, err)
	}
	s.problems.Tell(problems.Host, "the smaller MTU of workloads", err)
}

// Wait waits until nothing runs any more.
func (s *Shrinker) Wait() { s.running.Wait() }
