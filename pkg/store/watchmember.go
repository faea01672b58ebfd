// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// createTimeout is how long a member may take to set up the watches.
	createTimeout = answerPatience
	// askAgain is when a member that did not say how far it is is asked again: it keeps silent while a watch is behind.
	// It doubles up to a second.
	askAgain = 20 * time.Millisecond
	// silence is how long a member that is asked may say nothing at all.
	silence = 3 * time.Second
)

// errSilent ends the watches of a member that does not answer.
var errSilent = errors.New("no answer")

// follow delivers the changes after the merger's state from one member, until that fails. It always returns an error.
func (w *watch) follow(ctx context.Context) error {
	m, ring, err := w.c.member(ctx)
	if err != nil {
		return err
	}
	client, err := m.connect(ctx, ring > 1)
	var tok token
	authCtx := ctx
	if err == nil {
		authCtx, tok, _, err = w.c.authenticate(ctx, m, client, true)
	}
	if err == nil {
		err = w.followMember(authCtx, client)
	}
	if _, callback := errors.AsType[callbackError](err); callback || ctx.Err() != nil || errors.Is(err, errResync) {
		return err
	}
	w.c.failover(m)
	f := judge(m.url, err, true, w.c.cfg.Username != "")
	if f.next == renew {
		w.c.forgetToken(tok)
		if w.renewals++; w.renewals <= maxRenewals {
			f.kind = ErrUnavailable // until the next token is there
		}
	}
	if f.kind == ErrDenied {
		w.merger = nil // reading the snapshot names the prefix
	}
	if f.kind == nil {
		f.kind = ErrUnavailable
	}
	return fmt.Errorf("watch: %w: %s: %s", f.kind, m.url, f.reason)
}

// answer is what etcd says on one of the watches.
type answer struct {
	watch int
	clientv3.WatchResponse
}

// followMember watches each prefix, on one stream to the member.
func (w *watch) followMember(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	watcher := clientv3.NewWatcher(client)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() { _ = watcher.Close() }() // there is nothing to lose
	defer cancel()

	w.merger.rewind()
	tooLate := time.AfterFunc(createTimeout, cancel)
	channels := make([]clientv3.WatchChan, len(w.prefixes))
	for i, p := range w.prefixes {
		channels[i] = watcher.Watch(ctx, p, clientv3.WithPrefix(), clientv3.WithRev(w.merger.seen[i]+1), clientv3.WithProgressNotify(), clientv3.WithFragment())
	}
	if !tooLate.Stop() {
		return fmt.Errorf("%w within %v", errSilent, createTimeout)
	}
	answers := make(chan answer)
	for i, ch := range channels {
		wg.Go(func() {
			// The channel of a stream that broke may be closed without a word.
			last := clientv3.WatchResponse{Canceled: true, CancelReason: "the stream ended"}
			for ok := true; ok; {
				var r clientv3.WatchResponse
				if r, ok = <-ch; !ok {
					r = last
				}
				select {
				case answers <- answer{i, r}:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	// A watch that could not be created says so on its channel; what else came meanwhile is kept there.
	if err := w.checkHistory(ctx, client); err != nil {
		return err
	}
	return w.take(ctx, watcher, answers)
}

// take delivers what the watches say. Where entries wait, or somebody expects a revision, it asks the member how far it
// is.
func (w *watch) take(ctx context.Context, watcher clientv3.Watcher, answers <-chan answer) error {
	var (
		expected int64
		heard    time.Time // of anything, or when the watches fell behind
		behind   bool
		asked    bool  // how far the member is
		least    int64 // up to where all watches were when it was asked
		wait     time.Duration
	)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-answers:
			if err := w.merge(r); err != nil {
				return err
			}
			for _, u := range w.merger.ready() {
				if err := w.fn(u); err != nil {
					return callbackError{err}
				}
			}
			heard = time.Now() // after the call, which may have taken long
		case expected = <-w.expected:
		case <-timer.C:
			if behind && time.Since(heard) > silence {
				return fmt.Errorf("%w for %v", errSilent, silence)
			}
			asked = false
		}
		before := behind
		if behind = w.merger.behind(expected); !behind {
			asked = false
			continue
		}
		if !before {
			heard = time.Now()
		}
		if w.merger.least() > least {
			asked, wait = false, askAgain // it has answered
		}
		if !asked {
			if err := watcher.RequestProgress(ctx); err != nil {
				return err
			}
			asked, least = true, w.merger.least()
			timer.Reset(wait)
			wait = min(2*wait, time.Second)
		}
	}
}

// merge puts one answer of etcd into the merger.
func (w *watch) merge(r answer) error {
	m := w.merger
	switch {
	case r.CompactRevision != 0:
		return fmt.Errorf("%w: etcd has compacted the revisions since %d", errResync, m.delivered)
	case r.Canceled:
		return cancelError(r)
	}
	// A proxy of etcd leaves the id out.
	if id := r.Header.ClusterId; id != w.cluster && id != 0 && w.cluster != 0 {
		return fmt.Errorf("%w: the endpoints lead to another etcd cluster now", errResync)
	}
	upTo := r.Header.Revision // of a notice that nothing came before
	for _, ev := range r.Events {
		upTo = ev.Kv.ModRevision
		e := w.c.entry(ev.Kv, ev.Type == mvccpb.Event_DELETE)
		if ev.Type == mvccpb.Event_DELETE {
			e.Err, e.Revision, e.Created = nil, 0, 0
		} else {
			w.last = ev.Kv
		}
		if !m.event(r.watch, upTo, e) {
			return fmt.Errorf("%w: events of revision %d came late", errResync, upTo)
		}
	}
	m.arrived(r.watch, upTo)
	return nil
}

// cancelError is why a watch ended. etcd's own reason is the text of a status that was not sent as one.
func cancelError(r answer) error {
	err := r.Err()
	if _, final := errors.AsType[finalError](err); final {
		return err
	}
	const before = "desc = "
	if i := strings.LastIndex(err.Error(), before); i >= 0 {
		return status.Error(codes.Unknown, err.Error()[i+len(before):])
	}
	return err
}

// checkHistory checks that etcd has the history that was delivered. One that was restored from a backup has it no more:
// a watch would wait for the revision to be reached again, or miss what changed where others have reached it already.
func (w *watch) checkHistory(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	key, revision := w.prefixes[0], w.merger.delivered
	if w.last != nil {
		key, revision = string(w.last.Key), w.last.ModRevision
	}
	resp, err := client.Get(ctx, key, clientv3.WithRev(revision)) // no member that is behind answers it
	switch {
	case errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: etcd has gone back behind revision %d", errResync, revision)
	case errors.Is(err, rpctypes.ErrCompacted):
	case err != nil:
		return err
	case w.last != nil && (len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != revision || string(resp.Kvs[0].Value) != string(w.last.Value)):
		return fmt.Errorf("%w: etcd was restored from a backup: what came of %s at revision %d is not what it has", errResync, key, revision)
	}
	w.recovered()
	return nil
}
