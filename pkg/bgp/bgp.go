// SPDX-License-Identifier: Apache-2.0

// Package bgp is the BGP speaker of a host: it holds sessions, advertises this
// host's prefixes and reports what is learned.
//
// It takes the whole desired state, compares it with what runs and changes the
// difference; a session that needn't be reset isn't. Routes aren't written to the
// kernel here.
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

// Desired is all that a Speaker is to do. The zero value is to be silent.
type Desired struct {
	Speaker        plan.Speaker
	Neighbours     map[netip.Addr]plan.Neighbour
	Advertisements map[netip.Prefix]plan.Advertisement
}

// Config is what a Speaker may be told; the zero value is the default.
type Config struct {
	Logger *slog.Logger // nil = no log
	// FloodPause is how long a neighbour that sent too many routes is left alone:
	// 0 = 5 minutes.
	FloodPause time.Duration
}

// A Speaker speaks BGP in this process's network namespace. The library keeps its
// rules for choosing paths in package variables: a process has one Speaker.
type Speaker struct {
	log        *slog.Logger
	floodPause time.Duration

	// applying is held while the difference is made.
	applying sync.Mutex
	desired  Desired
	run      *running // nil = silent
	closed   bool
	again    bool      // it ended to begin anew, and couldn't
	fresh    bool      // it begins anew as a reflector, and was none
	deadline time.Time // when no neighbour is waited for any longer

	sessions sessions
	learned  learned

	wake   chan struct{}
	cancel context.CancelFunc
	tended chan struct{}
}

// errClosed is what a closed Speaker answers.
var errClosed = errors.New("the BGP speaker is closed")

// New makes a Speaker. Nothing listens or connects until Apply says so.
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

// signal asks tend to look. It never blocks.
func (s *Speaker) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// tend makes what couldn't be made at once: what waits for a session to end, and
// neighbours whose pause is over.
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
		now, next := time.Now(), time.Hour // what comes due while this works is not done
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

// Close ends all sessions as for a restart: neighbours that agreed to it keep our
// routes for the restart time, and what was learned stays as it is.
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
