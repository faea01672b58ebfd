// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// ahead is how many datagrams a flood may have in flight: fewer than any queue drops if the receiver is late.
const ahead = 100

// A flood of datagrams from one pod to another, which counts those that don't
// arrive.
type flood struct {
	server *net.UDPConn
	stop   chan struct{}
	done   chan struct{}
	sent   uint64
	first  chan struct{}   // closed when one has arrived,
	least  uint64          // this one; none before it counts
	got    map[uint64]bool // those that did
	count  atomic.Uint64   // of got
}

func startFlood(tb testing.TB, from, to *pod.Namespace, addr netip.Addr) *flood {
	tb.Helper()
	f := &flood{stop: make(chan struct{}), done: make(chan struct{}), first: make(chan struct{}), got: make(map[uint64]bool)}
	var client *net.UDPConn
	err := to.Enter(func() (err error) {
		f.server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		return err
	})
	if err == nil {
		_ = f.server.SetReadBuffer(8 << 20)
		err = from.Enter(func() (err error) {
			client, err = net.DialUDP("udp", nil, f.server.LocalAddr().(*net.UDPAddr))
			return err
		})
	}
	if err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(f.done)
		b := make([]byte, 8)
		for {
			if _, err := f.server.Read(b); err != nil {
				return
			}
			n := binary.BigEndian.Uint64(b)
			f.got[n] = true
			if f.count.Store(uint64(len(f.got))); len(f.got) == 1 {
				f.least = n
				close(f.first)
			}
		}
	}()
	go func() {
		defer close(f.stop)
		defer func() { _ = client.Close() }()
		tick := time.NewTicker(200 * time.Microsecond)
		defer tick.Stop()
		for range tick.C {
			select {
			case f.stop <- struct{}{}:
				return
			default:
			}
			if f.count.Load() > 0 && f.missing() > ahead {
				continue
			}
			f.sent++
			_, _ = client.Write(binary.BigEndian.AppendUint64(nil, f.sent))
		}
	}()
	eventually.Receive(tb, "the first to arrive", f.first)
	return f
}

// missing returns how many datagrams sent since the first that arrived have not arrived.
func (f *flood) missing() int {
	<-f.first
	return int(f.sent-f.least+1) - int(f.count.Load())
}

// end stops the flood and returns how many datagrams were sent and how many of them are lost.
func (f *flood) end() (sent, lost int) {
	<-f.stop
	for range f.stop { // until the sender has ended
	}
	// What is on its way, or in the socket, isn't lost.
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit)
	defer cancel()
	_ = eventually.Wait(ctx, "all to arrive", eventually.Holds(func() bool { return f.missing() == 0 }))
	_ = f.server.Close()
	<-f.done
	return int(f.sent - f.least + 1), f.missing()
}

// TestModeChangesWithoutLoss: a pool's mode changes from VXLAN to no encapsulation and back, by replacing routes, without a loss.
func TestModeChangesWithoutLoss(t *testing.T) {
	netns.Host(t, func() {
		hosts := virtualHosts(t, 2)
		a, b := hosts[0], hosts[1]
		apply := func(v *virtualHost, encapsulated bool) {
			st := v.vxlanState(hosts)
			if !encapsulated {
				st = v.plainState(hosts)
			}
			mustHold(t, v.fabric, st)
		}
		for _, v := range hosts {
			apply(v, true)
		}
		for _, to := range []netip.Addr{b.addr4(), b.addr6()} { // the neighbours are known
			pods.Ping(t, a.ns, to)
		}
		for _, to := range []netip.Addr{b.pod4(), b.pod6()} {
			f := startFlood(t, a.pod, b.pod, to)
			for range 50 {
				// The devices stay at one end while the other still sends through them.
				for _, encapsulated := range []bool{false, true} {
					both := func(v *virtualHost) plan.State {
						st := v.vxlanState(hosts)
						if !encapsulated {
							st.Routes = v.plainState(hosts).Routes
						}
						return st
					}
					mustHold(t, a.fabric, both(a))
					mustHold(t, b.fabric, both(b))
				}
			}
			sent, lost := f.end()
			if t.Logf("%s: %d of %d lost", to, lost, sent); lost > 0 {
				t.Errorf("%s: %d of %d datagrams were lost while routes were replaced", to, lost, sent)
			}
		}
		for _, v := range hosts {
			apply(v, false)
		}
		pingAll(t, hosts)
		netns.Within(t, a.ns, func() {
			for _, line := range netns.IP(t, "link", "show", "type", "vxlan") {
				t.Errorf("a device is left: %s", line)
			}
		})
	})
}

// TestTunnelChanges: settings of a device change while it is used, also those for which it is recreated.
func TestTunnelChanges(t *testing.T) {
	netns.Host(t, func() {
		hosts := virtualHosts(t, 2)
		changes := map[string]func(v *virtualHost, t *plan.Tunnel){
			"MTU": func(_ *virtualHost, t *plan.Tunnel) { t.MTU = 1380 },
			"VNI": func(_ *virtualHost, t *plan.Tunnel) { t.VNI = 4097 },
			"port": func(_ *virtualHost, t *plan.Tunnel) {
				t.Port = 4790
			},
			"no parent": func(_ *virtualHost, t *plan.Tunnel) { t.Parent = "" },
			"address": func(v *virtualHost, t *plan.Tunnel) {
				if t.Kind == plan.VXLAN4 {
					t.Addr = netip.AddrFrom4([4]byte{10, 65, byte(v.n), 77})
				}
			},
			"no address": func(_ *virtualHost, t *plan.Tunnel) {
				if t.Kind == plan.VXLAN4 {
					t.Addr = netip.Addr{}
				}
			},
		}
		for name, change := range changes {
			for range 2 { // there, and back
				for _, v := range hosts {
					st := v.vxlanState(hosts)
					for i := range st.Tunnels {
						change(v, &st.Tunnels[i])
					}
					for p, r := range st.Routes { // from the tunnel's address
						if r.Source == v.tun4() {
							r.Source = st.Tunnels[0].Addr
							st.Routes[p] = r
						}
					}
					if r := mustHold(t, v.fabric, st); r.Writes == 0 || r.Repairs != 0 {
						t.Errorf("%s: %d writes, %d repairs", name, r.Writes, r.Repairs)
					}
					netns.Within(t, v.ns, func() {
						again := newFabric(t)
						if r := mustHold(t, again, st); r.Writes != 0 {
							t.Errorf("%s: after a restart %d writes", name, r.Writes)
						}
					})
				}
				pingAll(t, hosts)
				change = func(*virtualHost, *plan.Tunnel) {}
			}
		}
	})
}

// TestECMP: next hops share the flows, and those whose link goes away or down leave.
func TestECMP(t *testing.T) {
	netns.Host(t, func() {
		f := newFabric(t)
		st := plan.State{Routes: make(map[netip.Prefix]plan.Route)}
		dst4, dst6 := netip.MustParsePrefix("10.65.2.0/24"), netip.MustParsePrefix("fd00:2::/64")
		var hops4, hops6 []plan.Hop
		for i := range 2 {
			name := fmt.Sprintf("up%d", i)
			netns.IP(t, "link", "add", name, "type", "veth", "peer", "name", "peer"+name)
			netns.IP(t, "link", "set", name, "up")
			netns.IP(t, "link", "set", "peer"+name, "up")
			pods.AwaitSettled(t, name)
			netns.IP(t, "addr", "add", fmt.Sprintf("192.0.%d.1/24", i), "dev", name)
			netns.IP(t, "addr", "add", fmt.Sprintf("2001:db8:%d::1/64", i), "dev", name, "nodad")
			pods.AwaitAddr(t, netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::1", i)))
			hops4 = append(hops4, plan.Hop{Gateway: netip.AddrFrom4([4]byte{192, 0, byte(i), 2}), Device: name})
			hops6 = append(hops6, plan.Hop{Gateway: netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::2", i)), Device: name})
		}
		st.Routes[dst4] = plan.Route{Destination: dst4, Kind: plan.Unicast, Hops: hops4}
		st.Routes[dst6] = plan.Route{Destination: dst6, Kind: plan.Unicast, Hops: hops6}
		mustHold(t, f, st)
		both := []string{
			"10.65.2.0/24 metric 1100", "nexthop via 192.0.0.2 dev up0 weight 1", "nexthop via 192.0.1.2 dev up1 weight 1",
			"fd00:2::/64 metric 1100 pref medium", "nexthop via 2001:db8:0::2 dev up0 weight 1", "nexthop via 2001:db8:1::2 dev up1 weight 1",
		}
		both[4] = "nexthop via 2001:db8::2 dev up0 weight 1"
		if diff := cmp.Diff(both, heldByFabric(t)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		used := make(map[string]bool)
		for port := range 64 {
			line := netns.IP(t, "route", "get", "10.65.2.9", "ipproto", "udp", "dport", fmt.Sprint(1000+port), "sport", fmt.Sprint(2000+port))[0]
			used[strings.Fields(line)[4]] = true
		}
		netns.SetSysctl(t, "ipv4/fib_multipath_hash_policy", "1")
		for port := range 64 {
			line := netns.IP(t, "route", "get", "10.65.2.9", "ipproto", "udp", "dport", fmt.Sprint(1000+port), "sport", fmt.Sprint(2000+port))[0]
			used[strings.Fields(line)[4]] = true
		}
		if len(used) != 2 {
			t.Errorf("flows go by %v", used)
		}
		netns.IP(t, "link", "set", "up1", "down")
		r, err := f.Apply(context.Background(), st)
		if err != nil || len(r.Problems) != 2 {
			t.Errorf("with a link down: %v, %v", r, err)
		}
		one := []string{
			"10.65.2.0/24 via 192.0.0.2 dev up0 metric 1100", "fd00:2::/64 via 2001:db8::2 dev up0 metric 1100 pref medium",
		}
		if diff := cmp.Diff(one, heldByFabric(t)); diff != "" {
			t.Errorf("with a link down (-want +got):\n%s", diff)
		}
		if r, err := f.Apply(context.Background(), st); err != nil || r.Writes != 0 {
			t.Errorf("again with a link down: %v, %v", r, err)
		}
		netns.IP(t, "link", "set", "up1", "up")
		pods.AwaitSettled(t, "up1")
		netns.IP(t, "addr", "add", "2001:db8:1::1/64", "dev", "up1", "nodad")
		mustHold(t, f, st)
		if diff := cmp.Diff(both, heldByFabric(t)); diff != "" {
			t.Errorf("with the link up again (-want +got):\n%s", diff)
		}
	})
}
