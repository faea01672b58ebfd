// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/calico-go/calico/pkg/model"
)

const (
	// createTimeout is how long a member may take to set up the watches.
	createTimeout = 10 * time.Second
	// askAgain is when a member that did not say how far it is is asked again: it
	// keeps silent while a watch is behind. It doubles up to askIdle.
	askAgain = 20 * time.Millisecond
	// askIdle is how often a quiet stream asks how far it is, so that it can be
	// resumed although etcd has compacted since the last event.
	askIdle = time.Minute
)

// everyWatch is the id of an answer that is about all watches of a stream.
const everyWatch = -1

// stream is one connection of a watch to one member.
type stream struct {
	w       *watch
	conn    grpc.ClientConnInterface
	grpc    grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse]
	created int
	ordered bool // the member's answers to progress requests can be relied on
	asked   bool // and not answered yet
	wait    time.Duration
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
		w.c.forgetToken()
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
	ctx, _, err = w.c.authenticate(ctx, m, conn)
	if err != nil {
		return err
	}
	s := &stream{w: w, conn: conn, wait: askAgain}
	if s.grpc, err = pb.NewWatchClient(conn).Watch(ctx); err != nil {
		return err
	}
	w.merger.restarted()
	for i, p := range w.prefixes {
		err := s.grpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
			Key: []byte(p), RangeEnd: prefixEnd(p),
			StartRevision:  w.merger.seen[i] + 1,
			WatchId:        int64(i + 1),
			ProgressNotify: true,
		}}})
		if err != nil {
			break // Recv has the reason
		}
	}
	responses, failed := make(chan *pb.WatchResponse), make(chan error, 1)
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
	for {
		fired := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case r := <-responses:
			if err := s.take(ctx, r); err != nil {
				return err
			}
		case <-timer.C:
			if s.created < len(w.prefixes) {
				return fmt.Errorf("%w within %v", errSilent, createTimeout)
			}
			fired = true
		}
		if s.created < len(w.prefixes) {
			continue
		}
		if err := s.deliver(); err != nil {
			return err
		}
		s.ask(timer, fired)
	}
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
// That sending fails is found by Recv.
func (s *stream) ask(timer *time.Timer, fired bool) {
	waiting := s.w.merger.waiting()
	switch {
	case waiting && (fired || !s.asked):
		s.sendProgress()
		s.asked = true
		timer.Reset(s.wait)
		s.wait = min(2*s.wait, time.Second)
	case !waiting:
		if fired {
			s.sendProgress()
		}
		s.asked, s.wait = false, askAgain
		timer.Reset(askIdle/2 + rand.N(askIdle))
	}
}

func (s *stream) sendProgress() {
	_ = s.grpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

// take puts one answer of etcd into the merger.
func (s *stream) take(ctx context.Context, r *pb.WatchResponse) error {
	m := s.w.merger
	if id := r.GetHeader().GetClusterId(); id != s.w.cluster {
		return fmt.Errorf("%w: the endpoints lead to another etcd cluster now", errResync)
	}
	switch {
	case r.CompactRevision != 0:
		return fmt.Errorf("%w: etcd has compacted the revisions since %d", errResync, m.delivered)
	case r.Canceled:
		// The reason is the text of a status that was not sent as one.
		text := r.CancelReason
		if i := strings.Index(text, "desc = "); i >= 0 {
			text = text[i+len("desc = "):]
		}
		return status.Error(codes.Unknown, text)
	case r.Created:
		s.created++
		if s.created < len(s.w.prefixes) {
			return nil
		}
		return s.established(ctx, r.GetHeader().GetRevision())
	case r.WatchId == everyWatch:
		s.asked, s.wait = false, askAgain
		m.nothingBefore(r.GetHeader().GetRevision(), s.ordered)
		return nil
	}
	i := int(r.WatchId) - 1
	if i < 0 || i >= len(s.w.prefixes) {
		return fmt.Errorf("etcd sent events of watch %d, which was not asked for", r.WatchId)
	}
	if len(r.Events) == 0 {
		m.arrived(i, r.GetHeader().GetRevision())
		return nil
	}
	for _, ev := range r.Events {
		if ev.GetKv() == nil {
			return errors.New("etcd sent an event without a key")
		}
		if !m.event(i, ev.Kv.ModRevision, s.entry(ev)) {
			return fmt.Errorf("%w: events of revision %d came late", errResync, ev.Kv.ModRevision)
		}
	}
	m.arrived(i, r.Events[len(r.Events)-1].Kv.ModRevision)
	return nil
}

func (s *stream) entry(ev *mvccpb.Event) model.Entry {
	deleted := ev.Type == mvccpb.Event_DELETE
	e := s.w.c.entry(ev.Kv, deleted)
	if deleted {
		e.Err, e.Revision, e.Created = nil, 0, 0
	}
	return e
}

// established checks what the member is once the watches are set up. revision is
// the member's.
func (s *stream) established(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	if revision < s.w.merger.delivered {
		// It is behind the others; or etcd was restored from a backup, and a watch
		// would wait for the revision to be reached again.
		resp, err := pb.NewKVClient(s.conn).Range(ctx, &pb.RangeRequest{Key: []byte(s.w.prefixes[0]), CountOnly: true})
		if err != nil {
			return err
		}
		if now := resp.GetHeader().GetRevision(); now < s.w.merger.delivered {
			return fmt.Errorf("%w: etcd has gone back from revision %d to %d", errResync, s.w.merger.delivered, now)
		}
	}
	resp, err := pb.NewMaintenanceClient(s.conn).Status(ctx, &pb.StatusRequest{})
	s.ordered = err == nil && ordersProgress(resp.Version)
	s.w.recovered()
	return nil
}

// ordersProgress reports whether an etcd of this version answers a progress
// request after the events that come before it
// (https://github.com/etcd-io/etcd/issues/15220).
func ordersProgress(version string) bool {
	var major, minor, patch int
	if n, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil || n < 3 {
		return false
	}
	switch {
	case major != 3:
		return major > 3
	case minor == 4:
		return patch >= 25
	case minor == 5:
		return patch >= 8
	}
	return minor > 5
}
