// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/retry"
)

const (
	// connectPatience is how long a member may take to connect if there are others. It keeps connecting meanwhile. (RFC
	// 8305 uses the same delay for addresses.)
	connectPatience = 250 * time.Millisecond
	// answerPatience bounds one attempt if there are other members.
	answerPatience = 5 * time.Second
	// maxRenewals bounds how often one request renews its authentication.
	maxRenewals = 3
)

// request is one request of a client, regardless of the member that serves it.
type request struct {
	what string // for messages: "read /calico/v1/Ready and 2 more"
	// once marks a write, which must not be repeated if it may have reached etcd.
	once bool
	// ops are the operations that etcd may deny to the user, for the error to name them. nil: it doesn't.
	ops  []clientv3.Op
	send func(ctx context.Context, client *clientv3.Client) error
}

// call sends a request to one member, and to others if that one can't serve it, until the context ends.
func (c *Client) call(ctx context.Context, r request) error {
	start := time.Now()
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
	}
	var seen failures
	served := start // when a member last did anything other than refuse the connection
	refusals := 0   // since then
	renewals := 0
	for n := 1; ; n++ {
		m, ring, err := c.member(ctx)
		var f failure
		switch {
		case errors.Is(err, errClosed):
			return fmt.Errorf("%s: %w", r.what, err)
		case err != nil:
			f = failure{reason: err.Error(), err: err, kind: ErrUnavailable, next: elsewhere}
		default:
			f, err = c.attempt(ctx, m, ring, r)
			if err == nil {
				return nil
			}
		}
		seen.note(f)
		if refusals++; !isRefusedText(f.reason) {
			served, refusals = time.Now(), 0
		}
		if f.next == renew {
			if renewals++; renewals > maxRenewals {
				f.next = stop
			}
		}
		if m != nil && (f.next == elsewhere || f.next == others) && !errors.Is(ctx.Err(), context.Canceled) {
			c.failover(m) // also for the sake of the next request, if this one must not be repeated
		}
		_, refused := seen.refused(ring)
		switch {
		case f.next == stop:
			return final(r, f)
		case f.sent && r.once:
			return c.gaveUp(ctx, r, start, seen, true)
		case ctx.Err() != nil, refused:
			return c.gaveUp(ctx, r, start, seen, false)
		case c.cfg.RefusedTimeout > 0 && refusals >= ring && time.Since(served) >= c.cfg.RefusedTimeout:
			return c.gaveUp(ctx, r, start, seen, false)
		case f.next == renew:
			continue
		}
		if n%ring == 0 && !pause(ctx, n/ring) {
			return c.gaveUp(ctx, r, start, seen, false)
		}
	}
}

// attempt sends a request to one member.
func (c *Client) attempt(ctx context.Context, m *member, ring int, r request) (failure, error) {
	client, err := m.connect(ctx, ring > 1)
	if err != nil {
		return judge(m.url, err, false, false), err
	}
	if ring > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerPatience)
		defer cancel()
	}
	ctx, used, f, err := c.authenticate(ctx, m, client, r.once)
	if err != nil {
		return f, err
	}
	var t trace
	sendCtx := context.WithValue(ctx, traceKey{}, &t)
	if used.onTrial {
		var cancel context.CancelFunc
		sendCtx, cancel = context.WithTimeout(sendCtx, c.trial)
		defer cancel()
	}
	c.roundTrips.Add(1)
	err = r.send(sendCtx, client)
	if tcp, ok := t.peer.(*net.TCPAddr); ok {
		c.addrs.Store(tcp.AddrPort().Addr().Unmap().WithZone(""), struct{}{})
	}
	if err == nil {
		if used.onTrial {
			c.tokenServed(used)
		}
		return failure{}, nil
	}
	if t.err != nil {
		err = t.err
	}
	f = judge(m.url, err, t.peer != nil, c.cfg.Username != "")
	if f.next == renew || f.next == later || f.sent && sendCtx.Err() != nil && ctx.Err() == nil {
		c.forgetToken(used)
	}
	if f.kind == ErrDenied {
		f.reason = c.denied(ctx, client, r.ops, f.reason)
	}
	return f, err
}

// final returns the error of a request that etcd answered.
func final(r request, f failure) error {
	if f.kind == nil {
		return fmt.Errorf("%s: %w", r.what, f.err)
	}
	return fmt.Errorf("%s: %w: %s: %s", r.what, f.kind, f.member, f.reason)
}

// gaveUp returns the error of a request that no member answered.
func (c *Client) gaveUp(ctx context.Context, r request, start time.Time, seen failures, sent bool) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		if sent {
			return fmt.Errorf("%s: %w: %w", r.what, ctx.Err(), ErrUnknownOutcome)
		}
		return fmt.Errorf("%s: %w", r.what, ctx.Err())
	}
	kind, hint := ErrUnavailable, "check that etcd runs and that the endpoints are right"
	if seen.otherScheme() {
		hint += ", https or http included"
	}
	switch refusal, all := seen.refused(1); {
	case all && refusal != ErrAuth:
		return fmt.Errorf("%s: %w: %s", r.what, refusal, seen)
	case all:
		kind, hint = ErrAuth, cmp.Or(c.tls.outdated(time.Now()), "check the certificate files and that etcd's certificate names the endpoint")
	}
	after := time.Since(start).Round(time.Millisecond)
	switch {
	case sent && ctx.Err() != nil:
		return fmt.Errorf("%s: %w: %s (%w after %v): %w", r.what, kind, seen, ctx.Err(), after, ErrUnknownOutcome)
	case sent:
		return fmt.Errorf("%s: %w: %s (after %v): %w", r.what, kind, seen, after, ErrUnknownOutcome)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w: %s (%w after %v): %s", r.what, kind, seen, ctx.Err(), after, hint)
	}
	return fmt.Errorf("%s: %w: %s (after %v): %s", r.what, kind, seen, after, hint)
}

// pause waits between rounds: longer each time, up to half a second, with jitter. It reports false if the context ends,
// or will end too soon for another round.
func pause(ctx context.Context, round int) bool {
	d := delay(round)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		// Shorten the wait: an attempt shortly before the deadline may succeed.
		d = time.Until(deadline) - 20*time.Millisecond
		if d <= 0 {
			return false
		}
	}
	return retry.Wait(ctx, d) == nil
}

func delay(round int) time.Duration {
	d := min(20*time.Millisecond<<min(round, 5), 500*time.Millisecond)
	return d/2 + rand.N(d)
}
