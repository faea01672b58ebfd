// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
)

func TestRanges(t *testing.T) {
	key := model.BlockKey{CIDR: netip.MustParsePrefix("10.65.0.0/26")}
	got := Ranges([]ipam.Want{
		{Key: key},
		{Prefix: model.PoolPrefix()},
		{Prefix: "/a/", From: "/a/b", Limit: 7, KeysOnly: true},
	})
	want := []Range{Key(key), Prefix(model.PoolPrefix()), Prefix("/a/").From("/a/b").Limit(7).KeysOnly()}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Range{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
