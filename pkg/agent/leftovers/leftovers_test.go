// SPDX-License-Identifier: Apache-2.0

package leftovers

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
	"github.com/calico-go/calico/test/etcd"
)

var leftover = netip.MustParsePrefix("10.77.0.64/26")

// host is a keeper beside an etcd that has a block of its host.
type host struct {
	*etcd.Server
	*Blocks
	noon time.Time
}

func newHost(t *testing.T) host {
	t.Helper()
	s := etcd.New(t)
	client, err := store.Open(t.Context(), store.Config{Endpoints: []string{s.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	h := host{s, New(slog.New(slog.DiscardHandler), client, "a"), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = h.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done; _ = client.Close() })
	h.Put(model.ReadyKey{}, model.Ready(true))
	h.block(leftover)
	return h
}

func (h host) block(c netip.Prefix) {
	b := model.Block{CIDR: c, Affinity: "a", EmptySince: h.noon}
	for i := range b.Size() {
		b.Allocations, b.Unallocated = append(b.Allocations, model.Free), append(b.Unallocated, i)
	}
	h.Put(model.BlockKey{CIDR: c}, b)
	h.Put(model.AffinityKey{Host: "a", CIDR: c}, model.Affinity{})
}

func (h host) there(c netip.Prefix) bool {
	block, affinity := h.Get(model.BlockKey{CIDR: c}), h.Get(model.AffinityKey{Host: "a", CIDR: c})
	return block != nil || affinity != nil
}

// TestLeftovers: a leftover is removed after five minutes without a break, and nothing else is.
func TestLeftovers(t *testing.T) {
	h := newHost(t)
	at := func(minutes float64, blocks ...netip.Prefix) {
		h.Note(h.noon.Add(time.Duration(minutes*float64(time.Minute))), blocks)
	}
	pooled, after := netip.MustParsePrefix("10.78.0.0/26"), netip.MustParsePrefix("10.79.0.0/26")
	h.block(pooled)
	h.Put(model.PoolKey{CIDR: netip.MustParsePrefix("10.78.0.0/16")}, model.Pool{CIDR: netip.MustParsePrefix("10.78.0.0/16"), IPAM: true})
	at(0, leftover, pooled)
	at(4, leftover, pooled)
	at(4.5, pooled) // the pool is there again
	at(5, leftover, pooled, after)
	at(9.9, leftover, pooled, after)
	if !h.there(leftover) {
		t.Fatal("deleted while it was no leftover for long")
	}
	h.block(after)
	at(10, leftover, pooled, after)
	h.Until("both are deleted", func() bool { return !h.there(leftover) && !h.there(after) })
	if !h.there(pooled) {
		t.Error("a block of a pool is deleted")
	}
	h.Check()
}

// TestLeftoversLater: while Ready is false, and while etcd is away, nothing is deleted; it is tried again.
func TestLeftoversLater(t *testing.T) {
	h := newHost(t)
	h.Put(model.ReadyKey{}, model.Ready(false))
	h.Note(h.noon, []netip.Prefix{leftover})
	if err := h.delete(t.Context(), leftover); err != nil || !h.there(leftover) {
		t.Fatalf("deleted while not ready, or %v", err)
	}
	h.Put(model.ReadyKey{}, model.Ready(true))
	h.Stop()
	h.Note(h.noon.Add(patience), []netip.Prefix{leftover})
	h.Until("it was tried", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.due[leftover].After(h.noon.Add(patience))
	})
	h.Start()
	h.Note(h.noon.Add(2*patience), []netip.Prefix{leftover})
	h.Until("it is deleted", func() bool { return !h.there(leftover) })
}
