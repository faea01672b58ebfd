// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store/wire"
)

// everyWatch is the id of an answer that is about all watches of a stream.
const everyWatch = -1

// take puts one answer of etcd into the merger.
func (s *stream) take(ctx context.Context, r *wire.WatchResponse) error {
	m := s.w.merger
	// A proxy of etcd leaves the id out.
	if id := r.Header.ClusterID; id != s.w.cluster && id != 0 && s.w.cluster != 0 {
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
		s.watches[r.WatchID] = s.created // etcd answers in the order of the requests
		s.created++
		if s.created < s.wanted {
			return nil
		}
		return s.established(ctx)
	case r.WatchID == everyWatch:
		s.asked, s.wait = false, askAgain
		if s.ordered {
			m.allArrived(r.Header.Revision)
		}
		return nil
	}
	i, ok := s.watches[r.WatchID]
	if !ok || i >= s.wanted {
		return fmt.Errorf("etcd sent events of watch %d, which was not asked for", r.WatchID)
	}
	upTo := r.Header.Revision // of a notice that nothing came before
	for _, ev := range r.Events {
		if ev.Kv.Key == "" {
			return errors.New("etcd sent an event without a key")
		}
		if err := s.event(i, ev); err != nil {
			return err
		}
		upTo = ev.Kv.ModRevision
	}
	if s.ordered {
		m.arrived(i, upTo)
	} else {
		m.allArrived(upTo)
	}
	return nil
}

// event puts one event of a watch into the merger.
func (s *stream) event(watch int, ev wire.Event) error {
	m, revision := s.w.merger, ev.Kv.ModRevision
	if !s.ordered {
		if watch = s.w.prefixOf(ev.Kv.Key); watch < 0 || revision <= m.seen[watch] {
			return nil // between the prefixes, or known from the stream before
		}
	}
	if !m.event(watch, revision, s.entry(ev)) {
		return fmt.Errorf("%w: events of revision %d came late", errResync, revision)
	}
	if s.created < s.wanted {
		s.news = &ev // of a history that is not known yet
	} else {
		s.w.last = &ev
	}
	return nil
}

// prefixOf finds the prefix that a key is of, -1 = none.
func (w *watch) prefixOf(key string) int {
	for i, p := range w.prefixes {
		if strings.HasPrefix(key, p) {
			return i
		}
	}
	return -1
}

func (s *stream) entry(ev wire.Event) model.Entry {
	e := s.w.c.entry(ev.Kv, ev.Deleted)
	if ev.Deleted {
		e.Err, e.Revision, e.Created = nil, 0, 0
	}
	return e
}

// established checks once the watches are set up that etcd has the history that was
// delivered. One that was restored from a backup has it no more, and a watch would wait for
// the revision to be reached again; or miss what changed, where others have reached it already.
func (s *stream) established(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	last, known := s.w.last, true
	ask := &wire.RangeRequest{Key: s.w.prefixes[0], Revision: s.w.merger.delivered}
	if last != nil {
		ask.Key, ask.Revision = last.Kv.Key, last.Kv.ModRevision
	}
	resp, err := wire.Range(ctx, s.conn, ask) // no member that is behind answers it
	switch {
	case errors.Is(rpctypes.Error(err), rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: etcd has gone back behind revision %d", errResync, ask.Revision)
	case errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted):
	case err != nil:
		return err
	case last == nil:
	case last.Deleted && len(resp.Kvs) == 0:
		// Most histories have no such key: it must have been there just before.
		ask.Revision--
		resp, err = wire.Range(ctx, s.conn, ask)
		if err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
			return err
		}
		known = err != nil || len(resp.Kvs) == 1
	case last.Deleted:
		known = false
	default:
		known = len(resp.Kvs) == 1 && resp.Kvs[0].Equal(last.Kv)
	}
	if !known {
		return fmt.Errorf("%w: etcd was restored from a backup: what came of %s at revision %d is not what it has", errResync, last.Kv.Key, last.Kv.ModRevision)
	}
	if s.news != nil {
		s.w.last = s.news
	}
	s.w.recovered()
	return nil
}

// ordersProgress asks which etcd this is.
func (s *stream) ordersProgress(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	resp, err := wire.Status(ctx, s.conn)
	switch status.Code(err) {
	case codes.OK:
		return ordersProgress(resp.Version) && !s.w.c.oldEtcd, nil
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false, err
	}
	return false, nil // it won't tell: take it for an old one
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
