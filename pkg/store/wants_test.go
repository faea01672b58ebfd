// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

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
	snapshot, err := s.ReadWants(ctx, wants)
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
	if _, err := s.ReadWants(ctx, wants); err == nil {
		t.Error("the last of several requests failed, and nothing is said")
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
