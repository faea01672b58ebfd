// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// revokeTimeout bounds Close. A lease that can't be revoked expires by itself.
const revokeTimeout = 2 * time.Second

// Lease ties keys to the life of this process: etcd deletes them when the lease ends.
type Lease struct {
	c    *Client
	id   clientv3.LeaseID
	ttl  time.Duration
	lost chan struct{}
	stop context.CancelFunc
	done chan struct{} // the keepalive has ended
	once sync.Once
	err  error // of Close
}

// Lease grants a lease with the given time to live, rounded up to seconds (etcd may grant more), and keeps it alive
// until Close or Leave. Closing the client leaves it. The context bounds the grant only.
func (c *Client) Lease(ctx context.Context, ttl time.Duration) (*Lease, error) {
	if ttl <= 0 {
		return nil, fmt.Errorf("grant lease: %v is no time to live", ttl)
	}
	start := time.Now()
	var resp *clientv3.LeaseGrantResponse
	// If a grant is sent twice, the extra lease expires.
	err := c.call(ctx, request{what: "grant lease", send: func(ctx context.Context, client *clientv3.Client) (err error) {
		resp, err = client.Grant(ctx, int64(math.Ceil(ttl.Seconds())))
		return err
	}})
	if err != nil {
		return nil, err
	}
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &Lease{
		c: c, id: resp.ID, ttl: time.Duration(resp.TTL) * time.Second,
		lost: make(chan struct{}), stop: stop, done: make(chan struct{}),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		stop()
		return nil, fmt.Errorf("grant lease: %w", errClosed)
	}
	c.work.Go(func() {
		defer close(l.done)
		defer stop()
		l.keepAlive(keep, start)
	})
	c.work.Go(func() { // closing the client leaves the lease
		select {
		case <-c.done:
			stop()
		case <-l.done:
		}
	})
	return l, nil
}

// Lost returns a channel that is closed when the lease has ended, or must be assumed to have ended because etcd did not
// answer for its time to live. Its keys are gone: take a new lease and write them again. Close does not close the
// channel.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Close revokes the lease, so that etcd deletes its keys at once. If etcd can't be reached, the error says so, and the
// keys are deleted when the time to live is over.
func (l *Lease) Close() error {
	l.once.Do(func() {
		l.stop()
		<-l.done
		l.err = l.revoke()
	})
	return l.err
}

// Leave stops keeping the lease alive. Its keys stay until the time to live is over, or another lease takes them over.
func (l *Lease) Leave() {
	l.once.Do(func() {
		l.stop()
		<-l.done
	})
}

// ID returns etcd's ID of the lease, as in model.Entry.
func (l *Lease) ID() int64 { return int64(l.id) }

func (l *Lease) revoke() error {
	ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
	defer cancel()
	return l.c.Revoke(ctx, int64(l.id))
}

// Revoke ends a lease of any holder: etcd deletes its keys at once and accepts no more writes under it. It is no error
// if the lease has already ended.
func (c *Client) Revoke(ctx context.Context, id int64) error {
	err := c.call(ctx, request{what: "revoke lease", send: func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Lease.Revoke(ctx, clientv3.LeaseID(id))
		return err
	}})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// keepAlive renews the lease three times per time to live. granted is when the lease was requested, so that the
// deadline errs on the early side.
func (l *Lease) keepAlive(ctx context.Context, granted time.Time) {
	deadline := granted.Add(l.ttl)
	timer := time.NewTimer(l.ttl / 3)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		ttl, sent, err := l.renew(ctx, deadline)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.c.log.Warn("lease not kept alive: its keys are gone or will go", "lease", l.id, "err", err)
			close(l.lost)
			return
		case ttl <= 0:
			l.c.log.Warn("lease has ended: its keys are gone", "lease", l.id)
			close(l.lost)
			return
		}
		deadline = sent.Add(ttl)
		timer.Reset(ttl / 3)
	}
}

// renew renews the lease once, retrying until the deadline: a refusal may be temporary, for example while etcd restarts
// or a password is being changed.
func (l *Lease) renew(ctx context.Context, deadline time.Time) (ttl time.Duration, sent time.Time, err error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for round := 0; ; round++ {
		if ttl, sent, err = l.ask(ctx); err == nil || !rest(ctx, round, err) {
			return ttl, sent, err
		}
	}
}

// ask requests another time to live. It begins when the request was sent, or later.
func (l *Lease) ask(ctx context.Context) (ttl time.Duration, sent time.Time, err error) {
	err = l.c.call(ctx, request{what: "keep lease alive", send: func(ctx context.Context, client *clientv3.Client) error {
		sent = time.Now()
		resp, err := client.KeepAliveOnce(ctx, l.id)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			ttl = 0
			return nil
		}
		if err == nil {
			ttl = time.Duration(resp.TTL) * time.Second
		}
		return err
	}})
	return ttl, sent, err
}
