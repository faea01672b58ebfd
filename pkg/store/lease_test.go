// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// leased writes a key under a new lease, or a longer one if that ends too soon.
func leased(t *testing.T, s *Client, name string, ttl time.Duration) *Lease {
	t.Helper()
	ctx := within(t, eventually.Limit)
	for ; ; ttl *= 3 {
		l, err := s.Lease(ctx, ttl)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.commit(ctx, model.Change{Puts: []model.Put{put(name, "x")}}, l.id, nil)
		if err == nil {
			return l
		}
		if ttl > 20*time.Second {
			t.Fatal(err)
		}
		_ = l.Close() // it is gone, which is an error
	}
}

func exists(t *testing.T, s *Client, name string) bool {
	t.Helper()
	snap, err := s.Read(within(t, eventually.Limit), model.KeyRange(configKey(name)))
	if err != nil {
		t.Fatal(err)
	}
	return len(snap.Ranges[0]) == 1
}

func lost(l *Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// TestLeaseRefused: nothing listens at etcd's address when a lease must be kept alive, for longer than a request goes
// on. The lease is renewed once etcd is back, and counts from the request that was granted, not from the first one.
func TestLeaseRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	door := startProxyAt(t, freeAddr(t), c.members[0].clientAddr) // no other process listens there meanwhile
	door.set(forward)
	s := open(t, Config{Endpoints: []string{door.addr}, RefusedTimeout: time.Millisecond})
	l := leased(t, s, "kept", time.Hour)
	_ = door.l.Close()
	door.set(refuse)
	var ttl time.Duration
	var sent, opened time.Time
	err := during(t, s, func() (err error) {
		ttl, sent, err = l.renew(t.Context(), time.Now().Add(eventually.Limit))
		return err
	}, func() {
		opened = time.Now()
		startProxyAt(t, door.addr, door.to).set(forward)
	})
	if err != nil || ttl != l.ttl {
		t.Fatalf("got %v, %v", ttl, err)
	}
	if sent.Before(opened) {
		t.Errorf("it counts from %v before etcd was there to grant it", opened.Sub(sent))
	}
}

// TestLeaseRest: access is refused, but maybe only for less time than the lease lasts.
func TestLeaseRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithDeadline(t.Context(), start.Add(4*time.Second))
		defer cancel()
		if !rest(ctx, 0, ErrAuth) || time.Since(start) != 4*time.Second-lastTry {
			t.Errorf("it rested for %v, %v", time.Since(start), ctx.Err())
		}
		if rest(ctx, 1, ErrAuth) {
			t.Error("it asks more than once in the last moment")
		}
	})
}

// TestLeaseLeft: the keys of a lease that is left, by itself or with its client, are deleted when it has expired, and
// not before.
func TestLeaseLeft(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	s, watcher := c.open(), c.open()
	ctx := within(t, eventually.Limit)
	long, err := s.Lease(ctx, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.commit(ctx, model.Change{Puts: []model.Put{put("long", "x")}}, long.id, nil); err != nil {
		t.Fatal(err)
	}
	short := leased(t, s, "short", 900*time.Millisecond)
	for range 2 {
		short.Leave()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	eventually.True(t, "the short lease has run out", func() bool { return !exists(t, watcher, "short") })
	if !exists(t, watcher, "long") {
		t.Error("closing the client has revoked a lease")
	}
}

// TestLeaseLost: etcd can't be found. The lease is lost when its time to live is over, and no later.
func TestLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{DiscoverySRV: "example.org"})
		s.lookup = func(context.Context, string, string, string) (string, []*net.SRV, error) {
			return "", nil, errors.New("no such host")
		}
		l, granted := &Lease{c: s, ttl: 15 * time.Second, lost: make(chan struct{})}, time.Now()
		go l.keepAlive(t.Context(), granted)
		<-l.lost
		if took := time.Since(granted); took < 14*time.Second || took > 15*time.Second {
			t.Errorf("lost after %v", took)
		}
	})
}

func TestLease(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	s, other := c.open(), c.open()
	admin := c.admin()
	var kept, cut *Lease
	try := func(ttl time.Duration) error {
		var revoked, left *Lease
		kept, revoked, cut, left = leased(t, s, "kept", ttl), leased(t, s, "revoked", ttl), leased(t, other, "cut", ttl), leased(t, other, "left", ttl)
		all := []*Lease{kept, revoked, cut, left}

		for range 2 { // twice the time to live passes, and etcd sweeps
			leased(t, s, "not kept", ttl).Leave()
			eventually.True(t, "a lease that is not kept alive ends", func() bool { return !exists(t, s, "not kept") })
		}
		if slices.ContainsFunc(all, lost) {
			return errors.New("a lease that is kept alive was lost")
		}
		for _, n := range []string{"kept", "revoked", "cut", "left"} {
			if !exists(t, s, n) {
				return fmt.Errorf("%s is gone", n)
			}
		}
		if _, err := admin.Revoke(within(t, eventually.Limit), clientv3.LeaseID(revoked.id)); err != nil {
			return err
		}
		eventually.True(t, "the revoked lease is noticed", func() bool { return lost(revoked) })
		if err := revoked.Close(); err != nil {
			return fmt.Errorf("closing a lease that is gone: %w", err)
		}
		if slices.ContainsFunc([]*Lease{kept, cut, left}, lost) {
			return errors.New("a lease that is kept alive was lost")
		}
		for range 2 {
			if err := kept.Close(); err != nil {
				return err
			}
		}
		if exists(t, s, "kept") {
			t.Error("the key outlived its closed lease")
		}
		if lost(kept) {
			return errors.New("Close counts as lost")
		}
		if err := left.Close(); err != nil {
			return err
		}
		if lost(cut) || !exists(t, s, "cut") {
			return errors.New("a lease that is kept alive was lost")
		}
		return nil
	}
	// On a busy machine a short lease may be over before it is kept alive, or closed: it is tried again longer.
	for ttl := 900 * time.Millisecond; ; ttl *= 3 {
		err := try(ttl)
		if err == nil {
			break
		}
		if ttl > 20*time.Second {
			t.Fatal(err)
		}
		t.Log(err)
	}
	c.members[0].proxy.set(stall)
	eventually.True(t, "the lease that can't be kept alive is lost", func() bool { return lost(cut) })
	c.members[0].proxy.set(forward)
	eventually.True(t, "its key is gone", func() bool { return !exists(t, s, "cut") })

	if _, err := s.Lease(t.Context(), 0); err == nil {
		t.Error("a lease of no time was granted")
	}
	_, err := s.commit(within(t, eventually.Limit), model.Change{Puts: []model.Put{put("A", "x")}}, kept.id, nil)
	if !errors.Is(err, ErrLeaseEnded) {
		t.Errorf("a put under a lease that is gone: %v", err)
	}
}
