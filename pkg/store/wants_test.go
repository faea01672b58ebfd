// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
)

func TestRanges(t *testing.T) {
	key := model.BlockKey{CIDR: netip.MustParsePrefix("10.65.0.0/26")}
	got := ranges([]ipam.Want{
		{Key: key},
		{Prefix: model.PoolPrefix()},
		{Prefix: "/a/", From: "/a/b", Limit: 7, KeysOnly: true},
	})
	want := []Range{Key(key), Prefix(model.PoolPrefix()), Prefix("/a/").From("/a/b").Limit(7).KeysOnly()}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Range{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReadWants reads more than etcd takes in one transaction.
func TestReadWants(t *testing.T) {
	s := open(t, Config{Endpoints: startCluster(t, clusterOptions{}).endpoints()})
	ctx := within(t, patienceOfTests)
	const n = 3*maxOps + 1
	wants := make([]ipam.Want, n)
	for i := range wants {
		wants[i].Key = configKey(fmt.Sprint(i))
		if i%100 == 0 {
			if _, err := s.Commit(ctx, model.Change{Puts: []model.Put{put(fmt.Sprint(i), fmt.Sprint(i))}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := s.Counters().RoundTrips
	snapshot, _, err := s.ReadWants(ctx, wants)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Counters().RoundTrips - before; got != 1 {
		t.Errorf("%d round trips, want 1", got)
	}
	if len(snapshot.Ranges) != n {
		t.Fatalf("%d ranges, want %d", len(snapshot.Ranges), n)
	}
	for i, entries := range snapshot.Ranges {
		if found := len(entries) == 1 && entries[0].Key == wants[i].Key; found != (i%100 == 0) {
			t.Errorf("range %d has %v", i, entries)
		}
	}
	wants[n-1] = ipam.Want{}
	if _, _, err := s.ReadWants(ctx, wants); err == nil {
		t.Error("the last of several requests failed, and nothing is said")
	}
}

// TestReadWantsOnCondition reads what has a condition only where that holds, in the same round trip.
func TestReadWantsOnCondition(t *testing.T) {
	s := open(t, Config{Endpoints: startCluster(t, clusterOptions{}).endpoints()})
	ctx := within(t, patienceOfTests)
	if _, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("a", "1"), put("b", "2")}}); err != nil {
		t.Fatal(err)
	}
	exist := func(names ...string) *ipam.Condition {
		c := &ipam.Condition{}
		for _, name := range names {
			c.Exist = append(c.Exist, configKey(name))
		}
		return c
	}
	met, unmet := exist("a", "b"), exist("a", "none")
	want := []ipam.Want{{Key: configKey("a")}, {Key: configKey("b"), If: met}, {Key: configKey("none"), If: met}}
	before := s.Counters().RoundTrips
	snapshot, read, err := s.ReadWants(ctx, slices.Insert(slices.Clone(want), 1, ipam.Want{Key: configKey("b"), If: unmet}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	if got := s.Counters().RoundTrips - before; got != 1 {
		t.Errorf("%d round trips, want 1", got)
	}
	var found []int
	for _, entries := range snapshot.Ranges {
		found = append(found, len(entries))
	}
	if diff := cmp.Diff([]int{1, 1, 0}, found); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

// TestReadWantsNotBeforeThePools has each request of a round that reads the pools show no less than the one with the pools.
func TestReadWantsNotBeforeThePools(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s, other := open(t, Config{Endpoints: c.endpoints()}), open(t, Config{Endpoints: c.endpoints()})
	ctx, cancel := context.WithCancel(within(t, patienceOfTests))
	change := model.Change{Puts: []model.Put{put("a", "1")}}
	if _, err := s.Commit(ctx, change); err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		for ctx.Err() == nil {
			_, _ = other.Commit(ctx, change)
		}
	})
	defer writer.Wait()
	defer cancel()
	k := configKey("a")
	met, unmet := &ipam.Condition{Exist: []model.Key{k}}, &ipam.Condition{Exist: []model.Key{configKey("none")}}
	pools := ipam.Want{Prefix: model.PoolPrefix()}
	for range 300 {
		before := s.Counters().RoundTrips
		snapshot, _, err := s.ReadWants(ctx, []ipam.Want{pools, {Key: k}, {Key: k, If: met}, {Key: k, If: &ipam.Condition{Exist: met.Exist}}})
		if err != nil {
			t.Fatal(err)
		}
		pool := snapshot.Ranges[1][0].Revision
		for _, blocks := range snapshot.Ranges[2:] {
			if blocks[0].Revision < pool {
				t.Fatalf("the blocks are as of revision %d, the pools as of %d", blocks[0].Revision, pool)
			}
		}
		if got := s.Counters().RoundTrips - before; got > 2 {
			t.Fatalf("%d round trips, want 2 at most", got)
		}
		before = s.Counters().RoundTrips
		if _, _, err := s.ReadWants(ctx, []ipam.Want{pools, {Key: k, If: unmet}}); err != nil {
			t.Fatal(err)
		}
		if got := s.Counters().RoundTrips - before; got != 1 {
			t.Fatalf("%d round trips where a condition doesn't hold, want 1", got)
		}
	}
}

// TestAssignRoundTrips finds the last block of a pool, and then an address in another host's, in three round trips each.
func TestAssignRoundTrips(t *testing.T) {
	s := open(t, Config{Endpoints: startCluster(t, clusterOptions{}).endpoints()})
	ctx := within(t, patienceOfTests)
	pool := model.Pool{CIDR: netip.MustParsePrefix("10.65.0.0/16"), BlockSize: 26, IPAM: true}
	first := netip.PrefixFrom(pool.CIDR.Addr(), pool.BlockSize)
	puts := []model.Put{{Key: model.PoolKey{CIDR: pool.CIDR}, Value: pool}}
	block := model.Block{Affinity: "other", Allocations: make([]int, 64), Attributes: []model.Attributes{{HandleID: "x"}}}
	block.Allocations[63], block.Unallocated = model.Free, []int{63}
	for n := 1; n < 1<<10; n++ {
		block.CIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 65, byte(n >> 2), byte(n << 6)}), 26)
		puts = append(puts, model.Put{Key: model.BlockKey{CIDR: block.CIDR}, Value: block})
	}
	for part := range slices.Chunk(puts, maxOps) {
		if _, err := s.Commit(ctx, model.Change{Puts: part}); err != nil {
			t.Fatal(err)
		}
	}
	for i, host := range []string{"a", "b"} {
		before := s.Counters().RoundTrips
		r := ipam.Request{Host: host, Handle: fmt.Sprint("h", i), IPv4: true, Now: time.Now()}
		addr, err := assign(ctx, s, r)
		if got := s.Counters().RoundTrips - before; err != nil || got != 3 || first.Contains(addr) != (host == "a") {
			t.Errorf("%s has %s after %d round trips, want 3: %v", host, addr, got, err)
		}
	}
}

// assign is what a plugin does in etcd.
func assign(ctx context.Context, s *Client, r ipam.Request) (netip.Addr, error) {
	view, wants := ipam.NewView(), ipam.FirstRead(r)
	for {
		snapshot, read, err := s.ReadWants(ctx, wants)
		if err != nil {
			return netip.Addr{}, err
		}
		for i, entries := range snapshot.Ranges {
			view.Add(read[i], entries)
		}
		p := ipam.NewPlan(view)
		choice, err := p.Assign(r)
		if need, more := errors.AsType[*ipam.NeedError](err); more {
			wants = need.Wants
			continue
		}
		if err == nil {
			_, err = s.Commit(ctx, p.Change())
		}
		if err != nil {
			return netip.Addr{}, err
		}
		return choice.Addrs[0].Addr, nil
	}
}

func TestPause(t *testing.T) {
	if err := Pause(context.Background(), 0); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for attempt := range 100 {
		// A pause of no time may be over before it is seen that the context has ended.
		if err := Pause(ctx, attempt); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if err := Pause(context.Background(), 1<<30); err != nil { // it has a bound
		t.Error(err)
	}
}
