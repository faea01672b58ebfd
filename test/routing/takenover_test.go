// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestTakenOver has a host take over an empty block of another, which is cut off from etcd and so
// announces it on: a third one sends to the holder alone, and to the other again when etcd says so.
func TestTakenOver(t *testing.T) {
	long.Test(t)
	r := New(t, lab.Config{Hosts: []string{"a", "b", "c"}})
	a, b, c := r.Host("a"), r.Host("b"), r.Host("c")
	if err := b.Pod("short").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Hosts() {
		r.Established(h, 4)
	}
	blocks := r.Blocks(b)
	leads := func(to *lab.Host) {
		t.Helper()
		r.Until("routes to host "+to.Name()+" alone", func() error {
			routes := r.Routes(a)
			for i, block := range blocks {
				want := fmt.Sprintf("%s via %s dev eth0", block, to.Addrs()[i])
				if !slices.ContainsFunc(routes, func(s string) bool { return strings.HasPrefix(s, want) }) {
					return fmt.Errorf("%q lack %q", routes, want)
				}
			}
			return nil
		})
	}
	slices.SortFunc(blocks, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	leads(b)
	if err := r.PartitionFromEtcd("b"); err != nil {
		t.Fatal(err)
	}
	give := func(from, to *lab.Host) {
		t.Helper()
		var change model.Change
		for _, p := range blocks {
			key := model.BlockKey{CIDR: p}
			snapshot, err := r.Etcd().Read(t.Context(), model.KeyRange(key))
			if err != nil {
				t.Fatal(err)
			}
			entry, _ := snapshot.Get(key)
			block := entry.Value.(model.Block)
			block.Affinity = to.Name()
			change.Puts = append(change.Puts, model.Put{Key: key, Value: block},
				model.Put{Key: model.AffinityKey{Host: to.Name(), CIDR: p}, Value: model.Affinity{}})
			change.Deletes = append(change.Deletes, model.AffinityKey{Host: from.Name(), CIDR: p})
		}
		r.commit(change)
	}
	give(b, c)
	leads(c)
	r.Says(a, "kind=refused-route", "with next hop "+b.IPv4().String(), "etcd gives it to host c")
	give(c, b)
	leads(b)
	if err := r.Heal(); err != nil {
		t.Fatal(err)
	}
	r.Counts(a, `calico_node_route_problems{kind="refused-route"}`, Exactly(0))
}
