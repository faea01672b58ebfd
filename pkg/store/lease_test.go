// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
)

// leased writes a key under a new lease of a second.
func leased(t *testing.T, s *Client, name string) *Lease {
	t.Helper()
	ctx := within(t, 10*time.Second)
	l, err := s.Lease(ctx, 900*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, model.Change{Puts: []model.Put{put(name, "x")}}, WithLease(l)); err != nil {
		t.Fatal(err)
	}
	return l
}

func exists(t *testing.T, s *Client, name string) bool {
	t.Helper()
	snap, err := s.Read(within(t, 10*time.Second), Key(configKey(name)))
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

// TestLeaseLeft: what hangs on a lease that is left goes when the lease has run out,
// and not before; closing the client does not revoke it, either.
func TestLeaseLeft(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s, watcher := c.open(), c.open()
	ctx := within(t, 30*time.Second)
	long, err := s.Lease(ctx, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("long", "x")}}, WithLease(long)); err != nil {
		t.Fatal(err)
	}
	short := leased(t, s, "short")
	for range 2 {
		long.Leave()
		short.Leave()
	}
	if err := long.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the short lease has run out", func() bool { return !exists(t, watcher, "short") })
	if !exists(t, watcher, "long") {
		t.Error("a lease that was left has been revoked")
	}
}

func TestLease(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s, other := c.open(), c.open()
	kept, revoked, cut, left := leased(t, s, "kept"), leased(t, s, "revoked"), leased(t, other, "cut"), leased(t, other, "left")

	// Etcd's own sweep and the time to live pass more than twice.
	start := time.Now()
	eventually(t, "time passes", func() bool { return time.Since(start) > 2500*time.Millisecond })
	for _, l := range []*Lease{kept, revoked, cut, left} {
		if lost(l) {
			t.Fatal("a lease that is kept alive was lost")
		}
	}
	for _, n := range []string{"kept", "revoked", "cut", "left"} {
		if !exists(t, s, n) {
			t.Errorf("%s is gone", n)
		}
	}

	if _, err := c.admin().Revoke(within(t, 10*time.Second), clientv3.LeaseID(revoked.id)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the revoked lease is noticed", func() bool { return lost(revoked) })
	if err := revoked.Close(); err != nil {
		t.Errorf("closing a lease that is gone: %v", err)
	}

	for range 2 {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}
	if lost(kept) {
		t.Error("Close counts as lost")
	}
	if exists(t, s, "kept") {
		t.Error("the key outlived its closed lease")
	}

	if err := left.Close(); err != nil {
		t.Error(err)
	}
	c.members[0].proxy.set(stall)
	cutAt := time.Now()
	eventually(t, "the lease that can't be kept alive is lost", func() bool { return lost(cut) })
	took(t, cutAt, 3*time.Second)
	c.members[0].proxy.set(forward)
	eventually(t, "its key is gone", func() bool { return !exists(t, s, "cut") })

	if _, err := s.Lease(t.Context(), 0); err == nil {
		t.Error("a lease of no time was granted")
	}
	_, err := s.Commit(within(t, 5*time.Second), model.Change{Puts: []model.Put{put("A", "x")}}, WithLease(kept))
	if err == nil {
		t.Error("a put under a lease that is gone succeeded")
	}
}

func TestCloseRevokesLeases(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s, err := Open(context.Background(), Config{Endpoints: c.endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	leased(t, s, "A")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if exists(t, c.open(), "A") {
		t.Error("the key outlived the client")
	}
}
