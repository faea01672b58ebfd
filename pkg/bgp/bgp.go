// SPDX-License-Identifier: Apache-2.0

// Package bgp is the BGP speaker of a host: it holds sessions, advertises this host's prefixes and reports learned routes.
//
// It takes the whole desired state, compares it with the running one and changes the difference, without resetting sessions
// that needn't be. It doesn't write routes to the kernel.
package bgp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/retry"
)

// Desired is the whole desired state of a Speaker. The zero value is a silent speaker.
type Desired struct {
	Speaker        plan.Speaker
	Neighbours     map[netip.Addr]plan.Neighbour
	Advertisements map[netip.Prefix]plan.Advertisement
}

// Config configures a Speaker; the zero value is the default.
type Config struct {
	Logger *slog.Logger // nil = no log
	// FloodPause is how long a neighbour that sent too many routes is left alone: 0 = 5 minutes.
	FloodPause time.Duration
}

// A Speaker speaks BGP in this process's network namespace. A process may have only one Speaker, as the library keeps its
// rules for choosing paths in package variables.
type Speaker struct {
	log        *slog.Logger
	floodPause time.Duration

	// applying is held while the state is being changed.
	applying sync.Mutex
	desired  Desired
	run      *running // nil = silent
	closed   bool
	again    bool      // it stopped in order to restart, and couldn't start
	fresh    bool      // it restarts, and no neighbour has reflected routes from before
	deadline time.Time // until when neighbours are waited for

	sessions sessions
	learned  learned

	wake   chan struct{}
	cancel context.CancelFunc
	tended chan struct{}
}

// errClosed is the error of a closed Speaker.
var errClosed = errors.New("the BGP speaker is closed")

// New returns a Speaker. It neither listens nor connects before Apply.
func New(cfg Config) *Speaker {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Speaker{
		log:        cfg.Logger,
		floodPause: cfg.FloodPause,
		wake:       make(chan struct{}, 1),
		cancel:     cancel,
		tended:     make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.floodPause == 0 {
		s.floodPause = 5 * time.Minute
	}
	s.sessions.log, s.sessions.wake = s.log, s.signal
	go s.tend(ctx)
	return s
}

// signal wakes tend. It never blocks.
func (s *Speaker) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// tend does what couldn't be done at once: what waits for a session to end, and neighbours whose pause is over.
func (s *Speaker) tend(ctx context.Context) {
	defer close(s.tended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var told retry.News
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		s.applying.Lock()
		now, next := time.Now(), time.Hour // what comes due during this round is left for the next
		if (s.run != nil || s.again) && !s.closed {
			if err := s.revisit(ctx); told.Is(err) && err != nil && ctx.Err() == nil {
				s.log.Warn("BGP is not as desired", "error", err)
			}
			next = s.sessions.due(now)
			if wait := s.deadline.Sub(now); wait > 0 {
				next = min(next, wait)
			}
			if s.again {
				next = time.Second
			}
		}
		s.applying.Unlock()
		timer.Reset(next)
	}
}

// Close ends all sessions as for a restart: neighbours that agreed to graceful restart keep our routes for the restart time.
// The learned routes stay as they are.
func (s *Speaker) Close(ctx context.Context) error {
	s.cancel()
	<-s.tended
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.run == nil {
		return nil
	}
	err := s.run.stop(ctx, true)
	s.run = nil
	return err
}
