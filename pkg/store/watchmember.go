// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/calico-go/calico/pkg/model"
)

const (
	// createTimeout is how long a member may take to set up the watch.
	createTimeout = answerPatience
	// silence is how long a member may stay silent when a change is expected.
	silence = 3 * time.Second
)

// errSilent ends the watch at a member that does not answer.
var errSilent = errors.New("no answer")

// follow delivers changes from one member, until that fails. It always returns an error.
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
	switch {
	case f.next == renew, f.next == later:
		w.c.forgetToken(tok)
		if w.renewals++; w.renewals <= maxRenewals {
			f.kind = ErrUnavailable // until there is a new token
		}
	case f.kind == ErrDenied:
		f.reason = w.c.denied(authCtx, client, []clientv3.Op{clientv3.OpGet(w.common, clientv3.WithPrefix(), clientv3.WithCountOnly())}, f.reason)
	}
	if f.kind == nil {
		f.kind = ErrUnavailable
	}
	return fmt.Errorf("watch: %w: %s: %s", f.kind, m.url, f.reason)
}

// followMember delivers what one stream of the member sends.
func (w *watch) followMember(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	watcher := clientv3.NewWatcher(client)
	defer func() { _ = watcher.Close() }() // nothing can be lost
	defer cancel()

	tooLate := time.AfterFunc(createTimeout, cancel)
	answers := watcher.Watch(ctx, w.common, clientv3.WithPrefix(), clientv3.WithRev(w.seen+1), clientv3.WithFragment(), clientv3.WithCreatedNotify())
	if !tooLate.Stop() {
		return fmt.Errorf("%w within %v", errSilent, createTimeout)
	}
	// If the watch could not be created, its channel says so. The channel also keeps what arrives meanwhile.
	if err := w.checkHistory(ctx, client); err != nil {
		return err
	}
	return w.hear(answers)
}

// hear delivers what the channel sends, until it ends or stays silent when a change is expected.
func (w *watch) hear(answers clientv3.WatchChan) error {
	var expected int64
	var silent <-chan time.Time
	for {
		select {
		case r, ok := <-answers:
			if !ok {
				return errors.New("the stream ended") // without an error
			}
			if err := w.take(r); err != nil {
				return err
			}
		case expected = <-w.expected:
			if silent != nil {
				continue
			}
		case <-silent:
			return fmt.Errorf("%w for %v", errSilent, silence)
		}
		if silent = nil; w.seen < expected {
			silent = time.After(silence)
		}
	}
}

// take delivers one answer of etcd as an update per revision. It skips keys outside of all prefixes.
func (w *watch) take(r clientv3.WatchResponse) error {
	switch {
	case r.CompactRevision != 0:
		return fmt.Errorf("%w: etcd has compacted the revisions since %d", errResync, w.seen)
	case r.Canceled:
		return cancelError(r)
	case r.Created:
		w.recovered()
	}
	// etcd's proxy leaves the ID out.
	if id := r.Header.ClusterId; id != w.cluster && id != 0 && w.cluster != 0 {
		return fmt.Errorf("%w: the endpoints lead to another etcd cluster now", errRestored)
	}
	var u model.Update
	for i, ev := range r.Events {
		if u.Revision = ev.Kv.ModRevision; u.Revision <= w.seen {
			return fmt.Errorf("%w: events of revision %d came late", errResync, u.Revision)
		}
		deleted := ev.Type == mvccpb.Event_DELETE
		if !deleted {
			w.last = ev.Kv
		}
		if slices.ContainsFunc(w.prefixes, func(p string) bool { return bytes.HasPrefix(ev.Kv.Key, []byte(p)) }) {
			e := w.c.entry(ev.Kv, deleted)
			if deleted {
				e.Err, e.Revision, e.Created = nil, 0, 0
			}
			u.Entries = append(u.Entries, e)
		}
		if i+1 < len(r.Events) && r.Events[i+1].Kv.ModRevision == u.Revision {
			continue
		}
		w.seen = u.Revision
		if len(u.Entries) > 0 {
			if err := w.fn(u); err != nil {
				return callbackError{err}
			}
		}
		u = model.Update{}
	}
	return nil
}

// cancelError returns the reason why a watch ended. etcd sends it as the text of a status instead of as a status.
func cancelError(r clientv3.WatchResponse) error {
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

// checkHistory checks that etcd still has the history that was delivered. An etcd restored from a backup doesn't: a
// watch would wait until the revision is reached again, or miss changes if other writers have already reached it.
func (w *watch) checkHistory(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	key, revision := w.prefixes[0], w.seen
	if w.last != nil {
		key, revision = string(w.last.Key), w.last.ModRevision
	}
	resp, err := client.Get(ctx, key, clientv3.WithRev(revision)) // a member that lags behind doesn't answer this
	switch {
	case errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: etcd has gone back behind revision %d", errRestored, revision)
	case errors.Is(err, rpctypes.ErrCompacted):
	case err != nil:
		return err
	case w.last != nil && (len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != revision || string(resp.Kvs[0].Value) != string(w.last.Value)):
		return fmt.Errorf("%w: etcd was restored from a backup: what came of %s at revision %d is not what it has", errRestored, key, revision)
	}
	return nil
}
