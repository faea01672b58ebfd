// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// block writes a block of the host whose addresses are all free but those taken.
func (h *host) block(cidr string, taken ...int) {
	h.Helper()
	b := model.Block{CIDR: netip.MustParsePrefix(cidr), Affinity: h.name}
	for i := range b.Size() {
		if !slices.Contains(taken, i) {
			b.Allocations, b.Unallocated = append(b.Allocations, model.Free), append(b.Unallocated, i)
			continue
		}
		b.Allocations = append(b.Allocations, len(b.Attributes))
		b.Attributes = append(b.Attributes, model.Attributes{HandleID: "h", Secondary: map[string]string{"node": h.name}})
	}
	h.put(model.BlockKey{CIDR: b.CIDR}, b)
}

// trackedWith are those of the addresses that tracked connections have.
func (h *host) trackedWith(addrs ...string) (with []string) {
	h.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		out, err := exec.Command("conntrack", "-L", "-f", family, "-p", "udp", "--sport", "1000").Output()
		if err != nil {
			h.Fatalf("conntrack -L: %v", err)
		}
		for _, a := range addrs {
			if slices.ContainsFunc(strings.Fields(string(out)), func(f string) bool { return f == "src="+a || f == "dst="+a }) {
				with = append(with, a)
			}
		}
	}
	return with
}

// TestAway has pods go, and one be made again with the address that it had, while no agent
// runs: connections of those that went are deleted by the next, and no others.
func TestAway(t *testing.T) {
	h := newHost(t)
	h.Cleanup(func() {
		for _, family := range []string{"-4", "-6"} {
			_ = exec.Command("ip", family, "route", "flush", "proto", "81").Run()
		}
	})
	h.put(model.ReadyKey{}, model.Ready(true))
	for _, cidr := range []string{"10.65.0.0/16", "fd00::/64"} {
		h.put(model.PoolKey{CIDR: netip.MustParsePrefix(cidr)}, model.Pool{CIDR: netip.MustParsePrefix(cidr), IPAM: true})
	}
	blocks := func(taken ...int) {
		h.block("10.65.0.0/28", taken...)
		h.block("fd00::/124", taken...)
	}
	blocks(1, 2, 3, 4)
	stop := h.start()
	h.ready()
	went, again, stays := h.addPod(1), h.addPod(2), h.newPod(3)
	h.put(model.ProfileRulesKey{Profile: "open"}, model.Rules{Inbound: []model.Rule{{Action: model.ActionAllow}}, Outbound: []model.Rule{{Action: model.ActionAllow}}})
	stays.spec.ProfileIDs = []string{"open"} // else policy cuts its connections
	stays.wire()
	h.mustPass(stays.key, stays.put())
	var all, left []string
	for n := 1; n <= 5; n++ {
		v4, v6 := podAddrs(n)
		all = append(all, v4.String())
		h.track(v4.String(), "192.0.2.1")
		h.track("192.0.2.2", v4.String())
		h.track(v6.String(), "2001:db8::1")
		h.track("2001:db8::2", v6.String())
		all = append(all, v6.String())
		if n == 3 || n == 4 { // 4 is given to somebody who has no endpoint
			left = append(left, v4.String(), v6.String())
		}
	}
	slices.Sort(all)
	slices.Sort(left)
	if got := h.trackedWith(all...); len(got) != len(all) {
		t.Fatalf("connections of %v are tracked, want %v", got, all)
	}
	stop()
	went.unwire()
	h.remove(went.key)
	blocks(2, 3, 4)
	again.unwire()
	h.remove(again.key)
	again = h.newPod(2)
	again.wire()
	revision := again.put()

	h.start()
	h.mustPass(again.key, revision)
	if _, v6 := podAddrs(2); len(h.trackedWith("10.65.0.2", v6.String())) != 0 {
		t.Error("an address is given again, and passes the gate with the connections of who had it before")
	}
	h.until("connections of those who went are deleted", func() bool { return len(h.trackedWith(all...)) <= len(left) })
	// What is still to come would come with the same walk, or the next: of all.
	h.until("all connections were judged", func() bool { return h.metric("calico_node_connections_deleted_total") >= 12 })
	if got := h.trackedWith(all...); !slices.Equal(slices.Sorted(slices.Values(got)), left) {
		t.Errorf("connections of %v are left, want %v", got, left)
	}
}

// TestVacantIsTaken has a pod come with an address of which the router finds just now that
// nobody has it: its connections stay.
func TestVacantIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		x.set(tcp("192.0.2.1", 1000, "10.0.0.1", 80), tcp("192.0.2.1", 1001, "10.0.0.9", 80))
		x.handover.Tell(router.News{Vacant: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")}})
		synctest.Wait()
		time.Sleep(time.Second)
		x.expectCut("that of an address that nobody has is gone", []uint16{1000})
	})
}

// TestVacantIsGiven has the next holder of an address that was vacant wait for the tracker.
func TestVacantIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		time.Sleep(2 * maxSweepRest)
		x.with(func() { x.tracked = 300 * time.Millisecond })
		x.set(tcp("192.0.2.1", 1000, "10.0.0.9", 80))
		x.handover.Tell(router.News{Vacant: []netip.Addr{netip.MustParseAddr("10.0.0.9")}})
		synctest.Wait()
		c := testKey("c")
		x.write(put(c, testSpec("cali3", "10.0.0.9"), 1))
		if err := (gatekeeper{x.loop}).Wait(x.ctx, gate.Request{Endpoint: c, Revision: x.revision}); err != nil {
			t.Errorf("gate: %v", err)
		}
		x.expectCut("at the gate", nil)
	})
}
