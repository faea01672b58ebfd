// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// awaits receives events until one names the interface.
func awaits(tb testing.TB, events <-chan Event, name string) {
	tb.Helper()
	eventually.Find(tb, "an event for "+name, events, func(e Event) bool { return e.All || slices.Contains(e.Interfaces, name) })
}

func TestSubscribe(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		ctx, cancel := context.WithCancel(context.Background())
		events, err := h.Subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		a := wire(t, 1)
		awaits(t, events, "cali1")
		mustApply(t, h, a.endpoint)
		netns.IP(t, "link", "add", "eth9", "type", "veth", "peer", "name", "other9")
		netns.IP(t, "link", "set", "eth9", "up")
		for _, args := range [][]string{
			{"route", "del", "10.65.0.1"},
			{"-6", "route", "del", "fd00::1"},
			{"-6", "addr", "flush", "dev", "cali1"},
			{"link", "set", "cali1", "down"},
			{"link", "set", "cali1", "up"},
			{"link", "set", "cali1", "alias", "other"},
			{"route", "add", "10.9.9.9", "dev", "cali1"},
			{"route", "replace", "10.65.0.1", "dev", "eth9", "proto", "static"},
			{"route", "del", "10.65.0.1", "dev", "eth9"},
			{"route", "replace", "blackhole", "10.65.0.1"},
			{"route", "del", "blackhole", "10.65.0.1"},
			{"-6", "route", "add", "fd00::1", "dev", "eth9", "metric", "1"},
			{"-6", "route", "del", "fd00::1", "dev", "eth9"},
			{"link", "add", "cali5", "type", "veth", "peer", "name", "other5"},
		} {
			quiet(t, h, events, a.endpoint)
			netns.IP(t, args...)
			name := "cali1"
			if args[1] == "add" && args[0] == "link" {
				name = "cali5"
			}
			awaits(t, events, name)
			if _, err := h.Apply(ctx, []Endpoint{a.endpoint}); err != nil {
				t.Fatal(err)
			}
		}
		if err := link.Delete("cali1"); err != nil {
			t.Fatal(err)
		}
		awaits(t, events, "cali1")
		cancel()
		for range events { // closed in the end
		}
	})
	netns.NoLeaks(t)
}

// quiet makes changes by Apply and expects no event for them: its own changes are not reported. A change of another link shows when all
// earlier events have arrived.
func quiet(tb testing.TB, h *Path, events <-chan Event, e Endpoint) {
	tb.Helper()
	marks := 0
	mark := func() (before []string) {
		for lost := true; lost; {
			marks++
			name := "calimark" + strconv.Itoa(marks)
			netns.IP(tb, "link", "add", name, "type", "veth", "peer", "name", "peermark"+strconv.Itoa(marks))
			eventually.Find(tb, "an event for "+name, events, func(e Event) bool {
				before, lost = append(before, e.Interfaces...), e.All // where events were lost, that of the mark may be one of them
				return lost || slices.Contains(before, name)
			})
			netns.IP(tb, "link", "del", name)
		}
		return before
	}
	pods.AwaitSettled(tb, e.Interface) // of what the test did to it all has been told by then
	mark()
	off := e
	off.Active = false
	for _, e := range []Endpoint{off, e} {
		if _, err := h.Apply(context.Background(), []Endpoint{e}); err != nil {
			tb.Fatal(err)
		}
		if seen := mark(); slices.Contains(seen, e.Interface) {
			tb.Errorf("Path's own changes were reported: %q", seen)
		}
	}
}

// TestSubscribeCoalesces: events that are not received don't fill memory, and are not lost.
func TestSubscribeCoalesces(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		events, err := h.Subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"cali1", "cali2", "cali3"}
		for i := range want {
			wire(t, i+1)
		}
		got := make(map[string]bool)
		eventually.Find(t, "an event for each", events, func(e Event) bool {
			for _, name := range e.Interfaces {
				got[name] = true
			}
			return len(got) == len(want)
		})
	})
}
