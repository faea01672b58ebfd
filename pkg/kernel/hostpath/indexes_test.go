// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
)

// TestIndexes adds, removes, recreates and renames links. Each time an event must name the links whose index changed, and the new indexes
// must be known by then.
func TestIndexes(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		if n := h.Indexes("cali1")["cali1"]; n != 0 {
			t.Errorf("index %d before anything was told", n)
		}
		netns.IP(t, "link", "add", "cali0", "type", "veth", "peer", "name", "peer0")
		ctx, cancel := context.WithCancel(t.Context())
		events, err := h.Subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{"cali0", "cali1", "cali2", "other1", "peer1"}
		was := h.Indexes(names...)
		if was["cali0"] == 0 {
			t.Error("a link that was there before is not known")
		}
		for _, args := range [][]string{
			{"link", "add", "cali1", "type", "veth", "peer", "name", "peer1"},
			{"link", "set", "cali1", "name", "cali2"},
			{"link", "set", "cali2", "name", "other1"},
			{"link", "add", "cali1", "type", "veth", "peer", "name", "peer2"},
			{"link", "del", "cali1"},
			{"link", "add", "cali1", "index", "4711", "type", "veth", "peer", "name", "peer2"},
			{"link", "set", "other1", "name", "cali2"},
			{"link", "del", "cali1"},
			{"link", "set", "cali0", "name", "cali1"},
			{"link", "set", "cali2", "name", "cali0"},
			{"link", "set", "cali1", "up"},
			{"link", "del", "peer0"},
		} {
			netns.IP(t, args...)
			now := map[string]int{}
			for _, name := range names {
				if l, err := link.Find(name); err == nil && h.cfg.owns(name) {
					now[name] = l.Index
				}
			}
			others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return was[n] == now[n] })
			if len(others) == 0 {
				continue
			}
			eventually.Find(t, fmt.Sprintf("%q: an event for each of %q, when its index is known of %v", args, others, now), events, func(e Event) bool {
				// An event about an earlier change may come first.
				known := h.Indexes(names...)
				others = slices.DeleteFunc(others, func(n string) bool { return known[n] == now[n] && (e.All || slices.Contains(e.Interfaces, n)) })
				return len(others) == 0
			})
			was = now
		}
		cancel()
		for range events { // until nothing is told any more
		}
		for name, index := range h.Indexes(names...) {
			if index != 0 {
				t.Errorf("%s has index %d, and nobody would tell of another", name, index)
			}
		}
	})
}
