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
	// shrinkGrace is how long after the MTU went down workloads may still be made
	// by the former one.
	shrinkGrace = time.Minute
	// shrinkPatience is how long a smaller MTU stands before workloads that run get it:
	// they never get the greater one back. Until then the host answers what is too large
	// with ICMP.
	shrinkPatience = 10 * time.Second
)

// A Shrinker gives running workloads the MTU of new ones, where that is less. Each workload's
// namespace has to be found and opened, so that is done beside who drives it.
type Shrinker struct {
	log      *slog.Logger
	problems *problems.Ledger
	enabled  bool
	latest   int
	mtu      int // to which workloads were last shrunk, 0 = not yet
	// lower is when a smaller one has stood for long enough; zero = there is none.
	lower   time.Time
	until   time.Time // until when that is done again
	fresh   bool      // workloads' interfaces came or changed since
	due     bool      // it is to be done now
	busy    bool
	done    *mailbox.Box[shrunk]
	running sync.WaitGroup
}

// shrunk is how it went.
type shrunk struct {
	mtu, changed int
	err          error
}

// NewShrinker makes one that does nothing until it has an MTU, and while it isn't enabled. It wakes who is to call End.
func NewShrinker(log *slog.Logger, ledger *problems.Ledger, wake mailbox.Signal, enabled bool) *Shrinker {
	return &Shrinker{log: log, problems: ledger, enabled: enabled, done: mailbox.NewFor[shrunk](wake)}
}

// Enable says whether workloads that run get a smaller MTU at all.
func (s *Shrinker) Enable(enabled bool) {
	if enabled && !s.enabled {
		s.measure() // it may have become smaller before
	}
	s.enabled = enabled
}

// Set takes in the MTU of new workloads, 0 = it isn't known.
func (s *Shrinker) Set(mtu int) {
	s.latest, s.lower = mtu, time.Time{}
	switch {
	case mtu == 0: // there is no uplink, or none yet
	case s.mtu == 0, mtu < s.mtu: // at the start, it may have gone down while no agent ran
		s.lower = time.Now().Add(shrinkPatience)
	default:
		s.mtu = mtu
	}
}

// Due is when Lower is to be called, the zero time: not.
func (s *Shrinker) Due() time.Time { return s.lower }

// Lower takes in that a smaller MTU has stood for long enough.
func (s *Shrinker) Lower() {
	s.lower, s.mtu = time.Time{}, s.latest
	s.measure()
}

// measure has running workloads looked at for what exceeds the MTU, now and once more.
func (s *Shrinker) measure() {
	s.until, s.due, s.fresh = time.Now().Add(shrinkGrace), true, true
}

// Changed says that workloads' interfaces came or changed.
func (s *Shrinker) Changed() { s.fresh = true }

// Audit looks again at workloads that may have been made by the former MTU.
func (s *Shrinker) Audit() {
	s.due = s.due || s.fresh && time.Now().Before(s.until)
	s.fresh = false
}

// Begin shrinks those that are due, beside its caller.
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

// End takes in how that went, if it has.
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

// Wait ends when nothing runs beside any more.
func (s *Shrinker) Wait() { s.running.Wait() }
