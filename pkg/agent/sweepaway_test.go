// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/statefile"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/model"
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
// runs and the firewall is gone: connections of those that went are deleted by the next agent,
// whoever gave them their addresses, and no others.
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
	first := h.spawn()
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
	h.kill(first)
	if out, err := exec.Command("nft", "delete", "table", "inet", "calico").CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
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
	h.until("an address that is given again passes the gate", func() bool { return h.ask(again.key, revision, patience) == nil })
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

// TestFormer says of which addresses that the last agent left on record connections are over.
func TestFormer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(x *cutting) {
			stays, nat, moved, again := testSpec("cali1", "10.0.0.1"), testSpec("cali3", "10.0.0.3"), testSpec("cali4", "10.0.0.4"), testSpec("cali6", "10.0.0.6")
			for _, ep := range []*model.WorkloadEndpoint{&stays, &nat, &moved, &again} {
				ep.ProfileIDs = []string{"open"} // else policy cuts theirs
			}
			nat.IPv4NAT = []model.NAT{{IntIP: netip.MustParseAddr("10.0.0.3"), ExtIP: netip.MustParseAddr("10.0.0.33")}}
			nat.ContainerID, again.ContainerID = "n", "y"
			inactive := testSpec("cali5", "10.0.0.5")
			inactive.State = model.StateInactive
			open := model.Rules{Inbound: []model.Rule{{Action: model.ActionAllow}}, Outbound: []model.Rule{{Action: model.ActionAllow}}}
			x.first = []model.Entry{put(model.ReadyKey{}, model.Ready(true), 1), put(model.ProfileRulesKey{Profile: "open"}, open, 1), put(testKey("a"), stays, 1),
				put(testKey("nat"), nat, 1), put(testKey("moved"), moved, 1), put(testKey("inactive"), inactive, 1), put(testKey("again"), again, 1)}
			x.system.interfaces = func([]string) ([]hostnet.Interface, error) {
				return []hostnet.Interface{{Name: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.9")}}}, nil
			}
			x.onRecord("10.0.0.1 cali1", "10.0.0.11 cali1", "10.0.0.3 cali3 n", "10.0.0.33 cali3 n", "10.0.0.4 cali44", "10.0.0.5 cali5", "10.0.0.6 cali6 x", "10.0.0.8 tap8", "10.0.0.9 tap8")
			from := func(port uint16, addr string) conntrack.Tracked { return tcp(addr, port, "192.0.2.1", 80) }
			x.set(from(1001, "10.0.0.1"), from(1011, "10.0.0.11"), from(1003, "10.0.0.3"), from(1033, "10.0.0.33"), from(1007, "10.0.0.7"),
				from(1004, "10.0.0.4"), from(1005, "10.0.0.5"), from(1006, "10.0.0.6"), from(1008, "10.0.0.8"), from(1009, "10.0.0.9"))
		})
		time.Sleep(time.Second)
		x.expectCut("those that lead where they led are left, those of nobody on record, and the host's own", []uint16{1001, 1003, 1033, 1007, 1009})
		x.expectRecord("of who is there", "10.0.0.1 cali1", "10.0.0.2 cali2", "10.0.0.3 cali3 n", "10.0.0.33 cali3 n", "10.0.0.4 cali4", "10.0.0.6 cali6 y")
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
			x.onRecord("10.0.0.9 cali9")
		})
		c := testKey("c")
		x.write(put(c, testSpec("cali3", "10.0.0.9"), 1))
		if err := (gatekeeper{x.loop}).Wait(x.ctx, gate.Request{Endpoint: c, Revision: x.revision}); err != nil {
			t.Errorf("gate: %v", err)
		}
		x.expectCut("at the gate", nil)
	})
}

// TestRecord keeps on record who left until the tracker was walked, for an agent that is killed before.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		c := testSpec("cali3", "10.0.0.3")
		c.ContainerID = "x"
		x.write(put(testKey("c"), c, 1))
		time.Sleep(2 * maxSweepRest)
		x.expectRecord("all are there", "10.0.0.1 cali1", "10.0.0.2 cali2", "10.0.0.3 cali3 x")
		x.fails(errors.New("broken"))
		c.ContainerID = "y"
		x.write(gone(testKey("a")), put(testKey("c"), c, 1))
		time.Sleep(time.Second)
		x.expectRecord("the tracker can't be read", "10.0.0.1 cali1", "10.0.0.2 cali2", "10.0.0.3 cali3 x", "10.0.0.3 cali3 y")
		x.fails(nil)
		time.Sleep(time.Minute)
		x.expectRecord("it was read", "10.0.0.2 cali2", "10.0.0.3 cali3 y")
	})
}

// TestRecordAtEnd leaves nothing on record of who left before the agent was told to end, and has no connections any more.
func TestRecordAtEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		time.Sleep(2 * maxSweepRest)
		x.write(gone(testKey("a")))
		x.expectRecord("before the end", "10.0.0.1 cali1", "10.0.0.2 cali2")
		x.cancel()
		<-x.stopped
		x.expectRecord("at the end", "10.0.0.2 cali2")
	})
}

// TestRecordAgain has no room for addresses when they come.
func TestRecordAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(x *cutting) {
			x.system.addresses = statefile.Addresses(filepath.Join(t.TempDir(), "addresses"))
			if err := os.WriteFile(string(x.system.addresses), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		})
		synctest.Wait()
		if err := os.Remove(string(x.system.addresses)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(x.params.RefreshInterval)
		x.expectRecord("there is room again", "10.0.0.1 cali1", "10.0.0.2 cali2")
	})
}

// onRecord is what a former run left.
func (x *cutting) onRecord(names ...string) {
	x.t.Helper()
	for _, name := range names {
		a, err := statefile.ParseAddress(name)
		if err == nil {
			err = x.system.addresses.Add(a)
		}
		if err != nil {
			x.t.Fatal(err)
		}
	}
}

func (x *cutting) expectRecord(name string, want ...string) {
	x.t.Helper()
	synctest.Wait()
	all, err := x.system.addresses.Read()
	if err != nil {
		x.t.Error(err)
	}
	var got []string
	for _, a := range all {
		got = append(got, a.String())
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("on record, %s (-want +got):\n%s", name, diff)
	}
}
