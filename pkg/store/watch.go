// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
)

// pageSize is how many entries of a prefix one request of a snapshot reads.
const pageSize = 1000

// errResync ends a stream that can't be resumed.
var errResync = errors.New("the watch can't be resumed")

// errRestored is an errResync of an etcd whose history differs from the one delivered.
var errRestored = fmt.Errorf("%w", errResync)

// callbackError is an error of the caller's function.
type callbackError struct{ error }

// watch is one call of Watch. It uses a single etcd watch on the longest common beginning of its prefixes: etcd sends
// the events of one watch in order, and those of one transaction together.
type watch struct {
	c        *Client
	prefixes []string
	common   string
	fn       func(model.Update) error

	expected chan int64       // the latest revision passed to Expect
	seen     int64            // everything up to this revision has been delivered; 0: a snapshot is due
	restored bool             // etcd was restored, or is another one, since the last snapshot
	page     int64            // entries per request of a snapshot; 0 = no limit
	cluster  uint64           // etcd's cluster id
	last     *mvccpb.KeyValue // the last one written since the snapshot; nil = none
	trouble  string           // last problem logged; "" = none
	renewals int              // of the token, since the last success
}

// Watch calls fn with the content of the prefixes and then with each change, in one goroutine, until the context ends
// (Watch returns nil) or fn returns an error (Watch returns it). Leader changes, disconnections and restarts of etcd
// are logged, and Watch continues after them without losing or repeating a change. If etcd has compacted changes that
// were missed, a Resync follows. The user must have the permission to read everything that begins with the longest
// common beginning of the prefixes.
func (c *Client) Watch(ctx context.Context, prefixes []string, fn func(model.Update) error) error {
	roots, common, err := disjoint(prefixes)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	w := &watch{c: c, prefixes: roots, common: common, fn: fn, page: pageSize, expected: make(chan int64, 1)}
	c.watches.Store(w, nil)
	defer c.watches.Delete(w)
	for round := 0; ; round++ {
		began := time.Now()
		err := w.run(ctx)
		var callback callbackError
		switch {
		case errors.As(err, &callback):
			w.recovered() // a watch ended by the caller isn't interrupted
			return callback.error
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errClosed):
			return fmt.Errorf("watch: %w", err)
		case errors.Is(err, errResync):
			c.log.Info("etcd watch starts over from a snapshot", "reason", err)
			w.seen, w.restored = 0, w.restored || errors.Is(err, errRestored)
		default:
			w.report(err)
		}
		if time.Since(began) > time.Second {
			round = 0
		}
		if !rest(ctx, round, err) {
			return nil
		}
	}
}

// Expect tells the watches that something of theirs was written at this revision, as the caller knows from elsewhere. A
// watch whose member then stays silent for a while turns to another one: a member whose disk hangs keeps its
// connections alive.
func (c *Client) Expect(revision int64) {
	c.watches.Range(func(w, _ any) bool {
		select {
		case w.(*watch).expected <- revision:
		default: // one is pending already
		}
		return true
	})
}

// run takes a snapshot if one is due, and delivers the changes after it until that fails.
func (w *watch) run(ctx context.Context) error {
	if w.seen == 0 {
		p, err := w.c.snapshot(ctx, w.prefixes, w.page)
		if errors.Is(err, errResync) {
			w.page = 0 // a single request is at one revision, however fast etcd compacts
		}
		if err != nil {
			return err
		}
		w.page = pageSize
		w.seen, w.cluster, w.last = p.Revision, p.cluster, nil
		if err := w.fn(model.Update{Revision: p.Revision, Resync: true, Restored: w.restored, Entries: p.Entries()}); err != nil {
			return callbackError{err}
		}
		w.restored = false
		w.recovered() // only now: what was known before may belong to another history
	}
	return w.follow(ctx)
}

// lastTry is how long before the end of its context a pause ends, so that etcd has time to check a password.
const lastTry = time.Second

// rest waits before the next attempt. It reports false if the context ends.
func rest(ctx context.Context, round int, err error) bool {
	d := delay(round)
	if errors.Is(err, ErrAuth) {
		d = 5*time.Second + rand.N(5*time.Second) // checking a password is expensive for etcd: ask rarely
	}
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline) - lastTry; left > 0 {
			d = min(d, left)
		}
	}
	return retry.Wait(ctx, d) == nil
}

// report logs a problem once, however often it occurs.
func (w *watch) report(err error) {
	since := time.Now()
	if before := w.c.interrupted.Load(); before != nil {
		since = before.since
	}
	w.c.interrupted.Store(&interruption{since, err})
	if s := err.Error(); w.trouble == "" || w.trouble != s && !errors.Is(err, ErrUnavailable) {
		w.c.log.Warn("etcd watch interrupted, trying again", "err", err)
		w.trouble = s
	}
}

func (w *watch) recovered() {
	w.renewals = 0
	if w.trouble != "" {
		w.c.log.Info("etcd watch is back")
		w.c.interrupted.Store(nil)
		w.trouble = ""
	}
}

// An interruption is the reason why a watch is interrupted, and the time since when.
type interruption struct {
	since time.Time
	err   error
}

// Away says why nothing has been read yet.
func (c *Client) Away() string {
	if _, err := c.WatchTrouble(); err != nil {
		return err.Error()
	}
	if c.cfg.DiscoverySRV != "" {
		return "no answer yet"
	}
	return "no answer yet from " + strings.Join(c.cfg.Endpoints, ", ")
}

// WatchTrouble returns since when a watch of this client has been interrupted and the latest reason, or nil if none is.
func (c *Client) WatchTrouble() (since time.Time, err error) {
	if i := c.interrupted.Load(); i != nil {
		return i.since, i.err
	}
	return time.Time{}, nil
}

// disjoint sorts the prefixes and drops those inside another. common is their longest common beginning.
func disjoint(prefixes []string) (roots []string, common string, err error) {
	sorted := slices.Sorted(slices.Values(prefixes))
	if len(sorted) > 0 {
		first, last := sorted[0], sorted[len(sorted)-1]
		for common = first; !strings.HasPrefix(last, common); {
			common = common[:len(common)-1]
		}
	}
	if common == "" {
		return nil, "", fmt.Errorf("no prefix, an empty one, or two that have nothing in common name the whole of etcd: name a part of it, such as %s", model.Root)
	}
	for _, p := range sorted {
		if n := len(roots); n == 0 || !strings.HasPrefix(p, roots[n-1]) {
			roots = append(roots, p)
		}
	}
	if len(roots) > maxOps {
		return nil, "", fmt.Errorf("%d prefixes: at most %d can be watched together: watch a common part of them", len(roots), maxOps)
	}
	return roots, common, nil
}

// snapshot reads the prefixes page by page, all at one revision. If etcd compacts that revision meanwhile, the error is
// errResync.
func (c *Client) snapshot(ctx context.Context, prefixes []string, limit int64) (page, error) {
	first := make([]model.Range, len(prefixes))
	for i, p := range prefixes {
		first[i] = model.Range{Prefix: p, Limit: limit}
	}
	all, err := c.readAt(ctx, 0, first)
	if err != nil {
		return page{}, err
	}
	for i, r := range first {
		for all.more[i] {
			entries := all.Ranges[i]
			r.From = entries[len(entries)-1].Path + "\x00"
			p, err := c.readAt(ctx, all.Revision, []model.Range{r})
			if errors.Is(err, rpctypes.ErrCompacted) {
				return page{}, fmt.Errorf("%w: etcd compacted revision %d while its snapshot was read", errResync, all.Revision)
			}
			if err != nil {
				return page{}, err
			}
			all.Ranges[i] = append(entries, p.Ranges[0]...)
			all.more[i] = p.more[0] && len(p.Ranges[0]) > 0
		}
	}
	return all, nil
}
