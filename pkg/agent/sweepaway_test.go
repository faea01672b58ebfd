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

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
)

// block writes a block of a host whose addresses are all free but those taken, by this one.
func (h *host) block(cidr, affinity string, taken ...int) {
	h.Helper()
	b := model.Block{CIDR: netip.MustParsePrefix(cidr), Affinity: affinity}
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
// runs: connections of those that went are deleted by the next, whoever gave them their
// addresses, and no others.
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
	const borrowed = 1<<8 + 5 // its addresses are of another host's blocks
	blocks := func(own, others []int) {
		h.block("10.65.0.0/28", h.name, own...)
		h.block("fd00::/124", h.name, own...)
		h.block("10.65.1.0/28", "host-2", others...)
		h.block("fd00::100/124", "host-2", others...)
	}
	blocks([]int{1, 2, 3, 4}, []int{5})
	stop := h.start()
	h.ready()
	others := h.newPod(6) // with addresses of another IPAM plugin's
	others.spec.IPv4Nets, others.spec.IPv6Nets = []netip.Prefix{netip.MustParsePrefix("192.168.7.6/32")}, []netip.Prefix{netip.MustParsePrefix("fd07::6/128")}
	others.wire()
	h.mustPass(others.key, others.put())
	went, again, stays := []*testPod{h.addPod(1), h.addPod(borrowed), others}, h.addPod(2), h.newPod(3)
	h.put(model.ProfileRulesKey{Profile: "open"}, model.Rules{Inbound: []model.Rule{{Action: model.ActionAllow}}, Outbound: []model.Rule{{Action: model.ActionAllow}}})
	stays.spec.ProfileIDs = []string{"open"} // else policy cuts its connections
	stays.wire()
	h.mustPass(stays.key, stays.put())
	v4, v6 := podAddrs(4) // given to somebody who has no endpoint
	left, all := []string{v4.String(), v6.String()}, []string{}
	for _, p := range append(went, again, stays) {
		v4, v6 := p.spec.IPv4Nets[0].Addr().String(), p.spec.IPv6Nets[0].Addr().String()
		all = append(all, v4, v6)
		if p == stays {
			left = append(left, v4, v6)
		}
	}
	all = append(all, left[:2]...)
	for _, a := range all {
		far, near := "192.0.2.1", "192.0.2.2"
		if strings.Contains(a, ":") {
			far, near = "2001:db8::1", "2001:db8::2"
		}
		h.track(a, far)
		h.track(near, a)
	}
	if got := h.trackedWith(all...); len(got) != len(all) {
		t.Fatalf("connections of %v are tracked, want %v", got, all)
	}
	stop()
	for _, p := range went {
		p.unwire()
		h.remove(p.key)
	}
	blocks([]int{2, 3, 4}, nil)
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
	h.until("all connections were judged", func() bool { return h.metric("calico_node_connections_deleted_total") >= 16 })
	slices.Sort(left)
	if got := h.trackedWith(all...); !slices.Equal(slices.Sorted(slices.Values(got)), left) {
		t.Errorf("connections of %v are left, want %v", got, left)
	}
}

// TestFormer says of which addresses that the last agent left in the firewall connections
// are over.
func TestFormer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(x *cutting) {
			stays, nat, moved := testSpec("cali1", "10.0.0.1"), testSpec("cali3", "10.0.0.3"), testSpec("cali4", "10.0.0.4")
			stays.ProfileIDs, nat.ProfileIDs, moved.ProfileIDs = []string{"open"}, []string{"open"}, []string{"open"} // else policy cuts theirs
			nat.IPv4NAT = []model.NAT{{IntIP: netip.MustParseAddr("10.0.0.3"), ExtIP: netip.MustParseAddr("10.0.0.33")}}
			inactive := testSpec("cali5", "10.0.0.5")
			inactive.State = model.StateInactive
			open := model.Rules{Inbound: []model.Rule{{Action: model.ActionAllow}}, Outbound: []model.Rule{{Action: model.ActionAllow}}}
			x.first = []model.Entry{put(model.ReadyKey{}, model.Ready(true), 1), put(model.ProfileRulesKey{Profile: "open"}, open, 1), put(testKey("a"), stays, 1),
				put(testKey("nat"), nat, 1), put(testKey("moved"), moved, 1), put(testKey("inactive"), inactive, 1)}
			x.system.interfaces = func([]string) ([]hostnet.Interface, error) {
				return []hostnet.Interface{{Name: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.9")}}}, nil
			}
			for name, addrs := range map[string][]string{
				"cali1": {"10.0.0.1", "10.0.0.11"}, "cali3": {"10.0.0.3", "10.0.0.33"}, "cali44": {"10.0.0.4"}, "cali5": {"10.0.0.5"}, "tap8": {"10.0.0.8", "10.0.0.9"},
			} {
				for _, a := range addrs {
					x.wallside.sources = append(x.wallside.sources, nft.Source{Interface: name, Addr: netip.MustParseAddr(a)})
				}
			}
			from := func(port uint16, addr string) conntrack.Tracked { return tcp(addr, port, "192.0.2.1", 80) }
			x.set(from(1001, "10.0.0.1"), from(1011, "10.0.0.11"), from(1003, "10.0.0.3"), from(1033, "10.0.0.33"),
				from(1004, "10.0.0.4"), from(1005, "10.0.0.5"), from(1008, "10.0.0.8"), from(1009, "10.0.0.9"))
		})
		time.Sleep(time.Second)
		x.expectCut("those that lead where they led are left, and the host's own", []uint16{1001, 1003, 1033, 1009})
	})
}

// TestFormerIsGiven has the next holder of an address that was left wait for the tracker.
func TestFormerIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(x *cutting) {
			x.system.connections = func(keep func(conntrack.Connection) bool) ([]conntrack.Tracked, error) {
				time.Sleep(300 * time.Millisecond)
				return x.connections(keep)
			}
			x.set(tcp("192.0.2.1", 1000, "10.0.0.9", 80))
			x.wallside.sources = []nft.Source{{Interface: "cali9", Addr: netip.MustParseAddr("10.0.0.9")}}
		})
		c := testKey("c")
		x.write(put(c, testSpec("cali3", "10.0.0.9"), 1))
		if err := (gatekeeper{x.loop}).Wait(x.ctx, gate.Request{Endpoint: c, Revision: x.revision}); err != nil {
			t.Errorf("gate: %v", err)
		}
		x.expectCut("at the gate", nil)
	})
}
