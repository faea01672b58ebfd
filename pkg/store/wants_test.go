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
	if _, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("a", "1"), put("b", "2"), put("full", model.FullBlock+"1"), put("full2", model.FullBlock+"2"), put("c", model.FullBlock), put("c2", "3")}}); err != nil {
		t.Fatal(err)
	}
	paths := func(names ...string) (all []string) {
		for _, name := range names {
			all = append(all, configKey(name).Path())
		}
		return all
	}
	met := &ipam.Condition{Exist: paths("a", "b"), Full: paths("full", "full2")}
	want := []ipam.Want{{Key: configKey("a")}, {Key: configKey("b"), If: met}, {Key: configKey("none"), If: met}}
	before := s.Counters().RoundTrips
	all := slices.Clone(want)
	for _, unmet := range []ipam.Condition{{Exist: paths("a", "none")}, {Full: paths("full", "none")}, {Full: paths("full2", "c")}, {Exist: paths("none"), Full: paths("full")}} {
		all = slices.Insert(all, 1, ipam.Want{Key: configKey("b"), If: &unmet})
	}
	snapshot, read, err := s.ReadWants(ctx, all)
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

// TestReadWantsNotBeforeThePools has each request of a round that reads the pools show no less than was there when these were
// written, and reads nothing again for what else is written.
func TestReadWantsNotBeforeThePools(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s, other := open(t, Config{Endpoints: c.endpoints()}), open(t, Config{Endpoints: c.endpoints()})
	k := configKey("a")
	pools := ipam.Want{Prefix: model.PoolPrefix()}
	pool := model.Pool{CIDR: netip.MustParsePrefix("10.65.0.0/16"), BlockSize: 26, IPAM: true}
	for _, change := range []model.Change{
		{Puts: []model.Put{put("a", "1"), {Key: model.PoolKey{CIDR: pool.CIDR}, Value: pool}}},
		{Puts: []model.Put{put("a", "1")}},
	} {
		t.Run(fmt.Sprintf("%d keys", len(change.Puts)), func(t *testing.T) {
			ctx, cancel := context.WithCancel(within(t, patienceOfTests))
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
			met := &ipam.Condition{Exist: []string{k.Path()}}
			for range 300 {
				before := s.Counters().RoundTrips
				snapshot, _, err := s.ReadWants(ctx, []ipam.Want{pools, {Key: k}, {Key: k, If: met}, {Key: k, If: &ipam.Condition{Exist: met.Exist}}})
				if err != nil {
					t.Fatal(err)
				}
				written := snapshot.Ranges[0][0].Revision
				for _, blocks := range snapshot.Ranges[1:] {
					if blocks[0].Revision < written {
						t.Fatalf("the blocks are as of revision %d, the pool was written at %d", blocks[0].Revision, written)
					}
				}
				if got := s.Counters().RoundTrips - before; got > int64(len(change.Puts)) {
					t.Fatalf("%d round trips where so many keys are written all the time", got)
				}
			}
		})
	}
}

// TestAssignRoundTrips finds the last block of a pool, then the last address, in another host's block, in three round trips each,
// and that there is no more in two.
func TestAssignRoundTrips(t *testing.T) {
	s := open(t, newTokenRig(t, clusterOptions{}).cfg)
	ctx := within(t, patienceOfTests)
	pool := model.Pool{CIDR: netip.MustParsePrefix("10.65.0.0/16"), BlockSize: 30, IPAM: true}
	puts := []model.Put{{Key: model.PoolKey{CIDR: pool.CIDR}, Value: pool}}
	full := func(n int) model.Put {
		block := model.Block{Affinity: "other", Allocations: make([]int, 4), Attributes: []model.Attributes{{HandleID: "x"}}}
		block.CIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 65, byte(n >> 6), byte(n << 2)}), 30)
		if n == 9000 {
			block.Allocations[3], block.Unallocated = model.Free, []int{3}
		}
		return model.Put{Key: model.BlockKey{CIDR: block.CIDR}, Value: block}
	}
	for n := 1; n < 1<<14; n++ {
		puts = append(puts, full(n))
	}
	for part := range slices.Chunk(puts, maxOps) {
		if _, err := s.Commit(ctx, model.Change{Puts: part}); err != nil {
			t.Fatal(err)
		}
	}
	for i, tt := range []struct {
		host, want string
		trips      int64
	}{{"a", "10.65.0.0", 3}, {"b", "10.65.140.163", 3}, {"c", "invalid IP", 2}} {
		before := s.Counters().RoundTrips
		addr, err := assign(ctx, s, ipam.Request{Host: tt.host, Handle: fmt.Sprint("h", i), IPv4: true, Now: time.Now()})
		var none *ipam.ExhaustedError
		if got := s.Counters().RoundTrips - before; got != tt.trips || addr.String() != tt.want || errors.As(err, &none) == addr.IsValid() {
			t.Errorf("%s has %s after %d round trips, want %s after %d: %v", tt.host, addr, got, tt.want, tt.trips, err)
		}
		if _, err := s.Commit(ctx, model.Change{Puts: []model.Put{full(0)}}); err != nil {
			t.Fatal(err)
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
			view.Add(read[i], snapshot.Revision, entries)
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
