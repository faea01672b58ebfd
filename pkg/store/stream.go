// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/calico-go/calico/pkg/store/wire"
)

const (
	// createTimeout is how long a member may take to set up the watches.
	createTimeout = answerPatience
	// askAgain is when a member that did not say how far it is is asked again: it
	// keeps silent while a watch is behind. It doubles up to a second.
	askAgain = 20 * time.Millisecond
	// silence is how long a member that was asked may say nothing at all.
	silence = 30 * time.Second
	// catchUp is how long a member that has told less than is expected of it gets
	// after each of two questions, so that being slow to read here isn't its fault.
	catchUp = time.Second
	// askIdle is how often a quiet stream asks how far it is, so that it can be
	// resumed although etcd has compacted since the last event.
	askIdle = time.Minute
)

// errSilent ends a stream on which a member does not answer.
var errSilent = errors.New("no answer")

// stream is one connection of a watch to one member.
type stream struct {
	w    *watch
	conn grpc.ClientConnInterface
	grpc grpc.BidiStreamingClient[wire.WatchRequest, wire.WatchResponse]
	// ordered: the member answers how far it is after the events that come
	// before. Otherwise one watch, from the first prefix to the last, stands for
	// all of them, and what is between them is dropped here.
	ordered bool
	wanted  int           // watches
	created int           // of those
	watches map[int64]int // etcd's id of a watch → its prefix
	asked   bool          // how far it is, and no answer yet
	wait    time.Duration // before asking again
	heard   time.Time     // of anything
	// told is the latest revision that the member named, expected what Expect says
	// there is; questions were put to it since it was found behind.
	told, expected int64
	questions      int
	news           *wire.Event // the last that came before all watches were set up
}

// follow delivers the changes after the merger's state, until the stream breaks.
// It always returns an error.
func (w *watch) follow(ctx context.Context) error {
	m, ring, err := w.c.member(ctx)
	if err != nil {
		return err
	}
	err = w.followMember(ctx, m, ring)
	var callback callbackError
	if ctx.Err() != nil || errors.As(err, &callback) || errors.Is(err, errResync) {
		return err
	}
	w.c.failover(m)
	f := judge(m.url, err, true, w.c.username != "")
	if f.next == renew {
		w.c.forgetToken(w.token)
		if w.renewals++; w.renewals <= maxRenewals {
			f.kind = ErrUnavailable // until the next token is there
		}
	}
	if f.kind == ErrDenied {
		f.reason = w.denied(ctx, m, ring, f.reason)
	}
	if f.kind == nil {
		f.kind = ErrUnavailable
	}
	return fmt.Errorf("watch: %w: %s: %s", f.kind, m.url, f.reason)
}

func (w *watch) followMember(ctx context.Context, m *member, ring int) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	conn, err := m.connect(ctx, ring > 1)
	if err != nil {
		return err
	}
	// The context demands a leader: a member that is cut off from the others
	// ends the stream instead of keeping silent.
	ctx, w.token, _, err = w.c.authenticate(ctx, m, conn, false)
	if err != nil {
		return err
	}
	s := &stream{w: w, conn: conn, watches: make(map[int64]int), wait: askAgain}
	if err := s.open(ctx); err != nil {
		return err
	}
	responses, failed := make(chan *wire.WatchResponse), make(chan error, 1)
	wg.Go(func() {
		for {
			r, err := s.grpc.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case responses <- r:
			case <-ctx.Done():
				return
			}
		}
	})
	timer := time.NewTimer(createTimeout)
	defer timer.Stop()
	behind := time.NewTimer(time.Hour)
	defer behind.Stop()
	for {
		fired := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case s.expected = <-w.expected:
			if s.questions == 0 {
				behind.Reset(0)
			}
			continue
		case <-behind.C:
			switch {
			case s.told >= s.expected:
				s.questions = 0
			case s.questions == 2:
				return fmt.Errorf("%w within %v to how far it is: etcd is at revision %d, it told of %d", errSilent, 2*catchUp, s.expected, s.told)
			default:
				s.questions++
				s.sendProgress()
				behind.Reset(catchUp)
			}
			continue
		case r := <-responses:
			s.heard, s.told = time.Now(), max(s.told, r.Header.Revision)
			if err := s.take(ctx, r); err != nil {
				return err
			}
		case <-timer.C:
			fired = true
			if s.created < s.wanted {
				return fmt.Errorf("%w within %v", errSilent, createTimeout)
			}
			if w.merger.waiting() && time.Since(s.heard) > silence {
				return fmt.Errorf("%w for %v", errSilent, silence)
			}
		}
		if s.created < s.wanted {
			continue
		}
		if err := s.deliver(); err != nil {
			return err
		}
		s.ask(timer, fired)
	}
}

// open asks for the watches. That sending fails is found by Recv, which has the
// reason.
func (s *stream) open(ctx context.Context) error {
	var err error
	if s.ordered, err = s.ordersProgress(ctx); err != nil {
		return err
	}
	if s.grpc, err = wire.Watch(ctx, s.conn); err != nil {
		return err
	}
	w := s.w
	if !s.ordered {
		s.wanted = 1
		s.create(w.prefixes[0], w.prefixes[len(w.prefixes)-1], w.merger.resume())
		return nil
	}
	s.wanted = len(w.prefixes)
	for i, p := range w.prefixes {
		s.create(p, p, w.merger.seen[i])
	}
	return nil
}

// create asks for a watch from one prefix to another, of what came after seen.
func (s *stream) create(first, last string, seen int64) {
	_ = s.grpc.Send(&wire.WatchRequest{Create: &wire.WatchCreateRequest{
		Key:            first,
		RangeEnd:       prefixEnd(last),
		StartRevision:  seen + 1,
		ProgressNotify: true,
	}})
}

// deliver hands on what is complete.
func (s *stream) deliver() error {
	for _, u := range s.w.merger.ready() {
		if err := s.w.fn(u); err != nil {
			return callbackError{err}
		}
	}
	return nil
}

// ask asks the member how far it is where entries wait for that, and now and
// then where none do. fired: the timer has, which ask sets for the next time.
func (s *stream) ask(timer *time.Timer, fired bool) {
	waiting := s.w.merger.waiting()
	switch {
	case waiting && (fired || !s.asked):
		s.sendProgress()
		s.asked = true
		timer.Reset(s.wait)
		s.wait = min(2*s.wait, time.Second)
	case !waiting:
		if fired && s.ordered {
			s.sendProgress()
		}
		s.asked, s.wait = false, askAgain
		timer.Reset(askIdle/2 + rand.N(askIdle))
	}
}

func (s *stream) sendProgress() {
	_ = s.grpc.Send(&wire.WatchRequest{})
}
