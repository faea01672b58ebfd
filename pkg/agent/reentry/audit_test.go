// SPDX-License-Identifier: Apache-2.0

package reentry

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
)

var block = model.BlockKey{CIDR: netip.MustParsePrefix("10.0.0.0/26")}

// change edits the block of the first pods.
func (h *host) change(edit func(b *model.Block)) {
	h.Helper()
	b, ok := h.Get(block).(model.Block)
	if !ok {
		h.Fatal("no block")
	}
	edit(&b)
	h.Put(block, b)
}

// free marks an address of the block as free.
func free(ordinal int) func(b *model.Block) {
	return func(b *model.Block) {
		b.Allocations[ordinal] = model.Free
		b.Unallocated = append([]int{ordinal}, b.Unallocated...)
	}
}

// expectListed audits, and expects each key to be listed with this beginning of the reason and a remedy.
func (h *host) expectListed(want map[string]string) {
	h.Helper()
	if inOrder := h.audit(h.Context()); inOrder != (len(want) == 0) {
		h.Errorf("in order: %v", inOrder)
	}
	got := map[string]string{}
	for _, p := range h.Problems.All() {
		if p.Kind == allocation {
			got[p.Path] = p.Reason
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		h.Errorf("listed (-want +got):\n%s", diff)
	}
	for path, text := range want {
		what, remedy, _ := strings.Cut(text, "…")
		if !strings.HasPrefix(got[path], what) || !strings.HasSuffix(got[path], remedy) {
			h.Errorf("%s: %q, not %q", path, got[path], text)
		}
	}
}

// woken reports whether an update triggers the audit, and resets that.
func (h *host) woken(entries ...model.Entry) bool {
	h.look(model.Update{Entries: entries})
	select {
	case <-h.wake:
		return true
	default:
		return false
	}
}

// TestAuditClaims: an address that its block calls free is assigned again to its living endpoint, unless it was assigned to another
// meanwhile; if the endpoint has no container, that is listed.
func TestAuditClaims(t *testing.T) {
	h := newHost(t)
	for i, name := range []string{"one", "two", "three"} {
		h.add("a", name, "c-"+name, netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}).String())
	}
	h.mustUpdate()
	<-h.wake
	h.expectListed(nil)
	h.change(free(1))
	broken := model.Entry{Key: block, Path: block.Path(), Revision: 2, Value: h.Get(block)}
	if !h.woken(broken) {
		t.Error("a block that changes by itself doesn't wake the audit")
	}
	if h.woken(broken, model.Entry{Key: key("one"), Path: key("one").Path()}) {
		t.Error("a DEL wakes the audit")
	}
	h.expectListed(nil)
	h.Check()
	if got := h.Server.Held("net.c-one.eth0"); len(got) != 1 {
		t.Errorf("the living endpoint has %v", got)
	}

	h.change(free(1))
	one := h.Get(key("one"))
	h.Remove(key("one")) // so that its address can be assigned to another
	h.add("b", "other", "c-other", "10.0.0.1")
	h.Put(key("one"), one)
	h.links = h.links[:2] // three's is gone
	h.change(free(3))
	h.expectListed(map[string]string{
		key("one").Path():                         "its address 10.0.0.1 is allocated to handle \"net.c-other.eth0\"…: delete the workload, so that it starts anew with an address of its own",
		key("three").Path():                       "its address 10.0.0.3 is free in block 10.0.0.0/26: delete the workload…",
		"/calico/ipam/v2/handle/net.c-one.eth0":   "counts 1 in block 10.0.0.0/26, which has 0 of its addresses: run calicoctl ipam repair --force",
		"/calico/ipam/v2/handle/net.c-three.eth0": "",
	})
}

// TestAuditLists: what is wrong with the host's affinities, blocks and handles is listed once, with a remedy, until it is repaired; other
// hosts' are not.
func TestAuditLists(t *testing.T) {
	h := newHost(t)
	for i, name := range []string{"one", "two", "three"} {
		h.add("a", name, "c-"+name, netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}).String())
	}
	h.add("b", "far", "c-far", "10.0.0.65")
	one, two := model.HandleKey{ID: "net.c-one.eth0"}, model.HandleKey{ID: "net.c-two.eth0"}
	lonely := model.AffinityKey{Host: "a", CIDR: netip.MustParsePrefix("10.0.0.192/26")}
	whole := h.all()
	h.Remove(one, model.HandleKey{ID: "net.c-far.eth0"})
	h.Put(two, model.Handle{ID: two.ID, Blocks: map[netip.Prefix]int{block.CIDR: 1, netip.MustParsePrefix("10.0.0.128/26"): 1}})
	h.Put(lonely, model.Affinity{})
	h.Put(model.HandleKey{ID: "lonely"}, model.Handle{ID: "lonely", Blocks: map[netip.Prefix]int{lonely.CIDR: 1}})
	h.change(func(b *model.Block) { b.Attributes[b.Allocations[3]].HandleID += "\r\n" })
	misspelt := model.AffinityPrefix("a") + "ipv4/block/10.0.0.1-26"
	h.Client(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Put(ctx, misspelt, "{}")
		return err
	})
	const repair = "run calicoctl ipam repair --force"
	h.expectListed(map[string]string{
		block.Path():        `has addresses of handle "net.c-one.eth0", which does not exist: ` + repair + `; has addresses of handle "net.c-three.eth0\r\n", which does not exist: …` + repair,
		two.Path():          "counts 1 in block 10.0.0.128/26, which does not exist: …" + repair,
		lonely.Path():       "there is no such block: …" + repair,
		misspelt:            "key …: delete it",
		key("three").Path(): `its address 10.0.0.3 is allocated to handle "net.c-three.eth0\r\n"…: delete the workload, so that it starts anew with an address of its own`,
	})
	h.Client(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Delete(ctx, misspelt)
		return err
	})
	h.wipe()
	for _, e := range whole {
		h.Put(e.Key, e.Value)
	}
	h.expectListed(nil)
}
