// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/google/go-cmp/cmp"
)

// randomRemote returns one of a few hosts, at one of a few addresses: hosts move, and give their address to others.
func randomRemote(r *rand.Rand, host int) plan.Remote {
	at := byte(10 + r.IntN(6))
	m := model.MAC{0x66, 0, 0, 0, 0, byte(host)}
	if r.IntN(2) == 0 {
		outer := netip.AddrFrom4([4]byte{192, 0, 2, at})
		return plan.Remote{RemoteID: plan.RemoteID{Tunnel: plan.VXLAN4, Outer: outer}, Host: fmt.Sprint(host), Gateway: outer, MAC: m}
	}
	outer := netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", at))
	return plan.Remote{RemoteID: plan.RemoteID{Tunnel: plan.VXLAN6, Outer: outer}, Host: fmt.Sprint(host), Gateway: rtnl.LinkLocal(m), MAC: m}
}

// randomChanges returns random changes to routes and remotes; no two hosts have the same MAC address.
func randomChanges(r *rand.Rand, st plan.State) plan.Changes {
	c := plan.Changes{Routes: make(map[netip.Prefix]*plan.Route), Remotes: make(map[plan.RemoteID]*plan.Remote)}
	for range r.IntN(4) {
		dst := netip.MustParsePrefix(fmt.Sprintf("10.65.%d.0/24", r.IntN(5)))
		if r.IntN(2) == 0 {
			dst = netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", r.IntN(5)))
		}
		c.Routes[dst] = nil
		for _, route := range shapes(dst) { // any of them
			if r.IntN(3) > 0 {
				c.Routes[dst] = &route
			}
			break
		}
	}
	for range r.IntN(4) {
		host := 1 + r.IntN(4)
		remote := randomRemote(r, host)
		now := plan.State{Remotes: make(map[plan.RemoteID]plan.Remote)}
		now.Apply(plan.Changes{Remotes: c.Remotes})
		for id, other := range st.Remotes { // it is no longer where it was
			if _, changed := c.Remotes[id]; !changed && id.Tunnel == remote.Tunnel && other.MAC == remote.MAC {
				c.Remotes[id] = nil
			}
		}
		for id, other := range now.Remotes {
			if id.Tunnel == remote.Tunnel && other.MAC == remote.MAC {
				c.Remotes[id] = nil
			}
		}
		if r.IntN(3) > 0 {
			c.Remotes[remote.RemoteID] = &remote
		}
	}
	return c
}

// TestChangesEqualApply: whatever changes lead to a state, the kernel holds what one Apply of that state makes it hold.
func TestChangesEqualApply(t *testing.T) {
	netns.Host(t, func() {
		pods.Uplink(t)
		f := newFabric(t)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		st := plan.State{Routes: make(map[netip.Prefix]plan.Route), Remotes: make(map[plan.RemoteID]plan.Remote), Tunnels: []plan.Tunnel{
			{Kind: plan.VXLAN4, Device: "vxlan.calico", Local: netip.MustParseAddr("192.0.2.1"), MTU: 1450, MAC: mac("66:04:00:00:00:01"), VNI: 4096, Port: 4789},
			{Kind: plan.VXLAN6, Device: "vxlan-v6.calico", Local: netip.MustParseAddr("2001:db8::1"), MTU: 1430, MAC: mac("66:06:00:00:00:01"), VNI: 4096, Port: 4789},
		}}
		mustHold(t, f, st)
		for i := range 200 {
			c := randomChanges(r, st)
			mustHoldSome(t, f, c)
			st.Apply(c)
			other := newFabric(t)
			if w := mustHold(t, other, st); w.Writes != 0 {
				t.Errorf("step %d: %d writes were left after ApplySome; now there is %q", i, w.Writes, heldByFabric(t))
			}
			other.Close()
			if t.Failed() {
				return
			}
		}
	})
}

// TestFabricBesideHostPath: a Fabric and a hostpath.Path leave each other's routes alone. While an address is moving from another host to
// this one, its endpoint here comes first.
func TestFabricBesideHostPath(t *testing.T) {
	netns.Host(t, func() {
		pods.Uplink(t)
		f, h := newFabric(t), newHostPath(t)
		a := wire(t, 1)
		st := plan.State{Routes: make(map[netip.Prefix]plan.Route)}
		for _, addr := range a.endpoint.Addrs {
			st.Routes[rtnl.HostPrefix(addr)] = shapes(rtnl.HostPrefix(addr))["one hop"]
		}
		for _, dst := range []string{"10.65.0.0/26", "fd00::/122"} {
			p := netip.MustParsePrefix(dst)
			st.Routes[p] = shapes(p)["blackhole"]
		}
		for range 2 {
			mustHold(t, f, st)
			mustApply(t, h, a.endpoint)
		}
		if r, w := mustHold(t, f, st), mustApply(t, h, a.endpoint); r.Writes+w.Writes != 0 {
			t.Errorf("%d and %d writes where nothing changed", r.Writes, w.Writes)
		}
		for _, addr := range a.endpoint.Addrs {
			if got := netns.IP(t, "route", "get", addr.String())[0]; !strings.Contains(got, "dev cali1") {
				t.Errorf("to the endpoint: %s", got)
			}
		}
		held := heldByFabric(t)
		mustApply(t, h)
		if diff := cmp.Diff(held, heldByFabric(t)); diff != "" {
			t.Errorf("after the endpoint left (-want +got):\n%s", diff)
		}
		mustApply(t, h, a.endpoint)
		mustHold(t, f, plan.State{})
		if r := mustApply(t, h, a.endpoint); r.Writes != 0 {
			t.Errorf("the endpoint lacked %d after the fabric's routes left", r.Writes)
		}
	})
}
