// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// manyRoutes returns a state of n routes to blocks, through 500 hosts by VXLAN, and their remotes.
func manyRoutes(n int) plan.State {
	st := plan.State{
		Routes:  make(map[netip.Prefix]plan.Route, n),
		Remotes: make(map[plan.RemoteID]plan.Remote),
		Tunnels: []plan.Tunnel{{Kind: plan.VXLAN4, Device: "vxlan.calico", Local: netip.MustParseAddr("192.0.2.1"), Parent: "up0",
			Addr: netip.MustParseAddr("10.0.0.0"), MTU: 1450, MAC: mac("66:00:00:00:00:01"), VNI: 4096, Port: 4789}},
	}
	for i := range n {
		addSomeRoute(&st, i)
	}
	return st
}

func addSomeRoute(st *plan.State, i int) plan.Route {
	h := i % 500
	outer := netip.AddrFrom4([4]byte{192, 1, byte(h >> 8), byte(h)})
	id := plan.RemoteID{Tunnel: plan.VXLAN4, Outer: outer}
	st.Remotes[id] = plan.Remote{RemoteID: id, Host: fmt.Sprint("host", h), Gateway: outer, MAC: model.MAC{0x66, 1, 0, 0, byte(h >> 8), byte(h)}}
	dst := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(1 + i>>10), byte(i >> 2), byte(i << 6)}), 26)
	r := plan.Route{Destination: dst, Kind: plan.Unicast, Origin: plan.FromHost, Source: netip.MustParseAddr("10.0.0.0"),
		Hops: []plan.Hop{{Gateway: outer, Device: "vxlan.calico", OnLink: true}}}
	st.Routes[dst] = r
	return r
}

// BenchmarkFabricCold programs 5,000 routes and 500 remotes from nothing.
func BenchmarkFabricCold(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		netns.Host(b, func() {
			pods.Uplink(b)
			f, st := newFabric(b), manyRoutes(5000)
			b.StartTimer()
			r := mustHold(b, f, st)
			b.StopTimer()
			b.ReportMetric(float64(r.Writes), "writes/op")
		})
		b.StartTimer()
	}
}

// BenchmarkFabricAudit checks routes that are as they should be.
func BenchmarkFabricAudit(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			netns.Host(b, func() {
				pods.Uplink(b)
				f, st := newFabric(b), manyRoutes(n)
				mustHold(b, f, st)
				b.ReportAllocs()
				for b.Loop() {
					if r := mustHold(b, f, st); r.Writes != 0 {
						b.Fatal(r.Writes, "writes")
					}
				}
			})
		})
	}
}

// BenchmarkFabricOneMore programs one route beside many, and removes it.
func BenchmarkFabricOneMore(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			netns.Host(b, func() {
				pods.Uplink(b)
				f, st := newFabric(b), manyRoutes(n)
				mustHold(b, f, st)
				one := addSomeRoute(&st, n)
				for b.Loop() {
					r := mustHoldSome(b, f, plan.Changes{Routes: map[netip.Prefix]*plan.Route{one.Destination: &one}})
					if r.Writes != 1 {
						b.Fatal(r.Writes, "writes")
					}
					mustHoldSome(b, f, plan.Changes{Routes: map[netip.Prefix]*plan.Route{one.Destination: nil}})
				}
			})
		})
	}
}

// BenchmarkFabricOneMoreHost programs one host's entries beside those of many, and removes them.
func BenchmarkFabricOneMoreHost(b *testing.B) {
	netns.Host(b, func() {
		pods.Uplink(b)
		f, st := newFabric(b), manyRoutes(5000)
		mustHold(b, f, st)
		id := plan.RemoteID{Tunnel: plan.VXLAN4, Outer: netip.MustParseAddr("192.2.0.1")}
		remote := plan.Remote{RemoteID: id, Host: "one more", Gateway: id.Outer, MAC: mac("66:02:00:00:00:01")}
		for b.Loop() {
			mustHoldSome(b, f, plan.Changes{Remotes: map[plan.RemoteID]*plan.Remote{id: &remote}})
			mustHoldSome(b, f, plan.Changes{Remotes: map[plan.RemoteID]*plan.Remote{id: nil}})
		}
	})
}
