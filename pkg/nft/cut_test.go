// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestCut: packets that would begin a connection anew in a cut flow are dropped, and no others.
func TestCut(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		a, b := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2")
		own := []netip.Addr{ip("10.9.9.9"), ip("fd09::9")}
		addAddrs(t, "lo", own...)
		all := policy.Rule{Action: model.ActionAllow}
		for _, s := range []space{a, b} {
			s.ep.Inbound = policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
			s.ep.Outbound = s.ep.Inbound
		}
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(a.ep, b.ep), Rules: rules(policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}})})
		mustApply(t, f)
		var flows []Flow
		for v := range own {
			for _, src := range []netip.Addr{a.ep.Addrs[v], own[v]} {
				flows = append(flows, Flow{Protocol: model.ProtocolUDP, Src: src, Dst: b.ep.Addrs[v], SrcPort: 1000, DstPort: 80})
			}
		}
		cut := func(lasts time.Duration, flows ...Flow) {
			t.Helper()
			var cuts []Cut
			for _, f := range flows {
				cuts = append(cuts, Cut{f, lasts})
			}
			if err := f.Cut(cuts); err != nil {
				t.Fatal(err)
			}
		}
		cut(time.Hour, flows...)
		cut(time.Hour, flows...) // they are there already
		wantWrites(t, f, 0, 0)
		at, last := map[int]net.PacketConn{80: b.listen(80), 81: b.listen(81)}, b.listen(markerPort)
		passes := func(name string, in func(func()), from netip.Addr, fromPort uint16, v int, port int, want bool) {
			t.Helper()
			if _, ok := probe(t, in, netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(b.ep.Addrs[v], uint16(port)), at[port], last, from, b.ep.Addrs[v], want); ok != want {
				t.Errorf("%s, IPv%d: passes: %t", name, []int{4, 6}[v], ok)
			}
		}
		for v, o := range own {
			src := a.ep.Addrs[v]
			passes("cut", a.do, src, 1000, v, 80, false)
			passes("cut, again", a.do, src, 1000, v, 80, false)
			passes("another port", a.do, src, 1000, v, 81, true)
			passes("another source port", a.do, src, 1001, v, 80, true)
			passes("from the host", here, o, 1000, v, 80, false)
			passes("from the host, another port", here, o, 1001, v, 80, true)
		}
		expect := func(name string, f *Firewall, want ...Flow) {
			t.Helper()
			got, err := f.ReadCuts()
			sorted := cmpopts.SortSlices(func(a, b Flow) bool { return a.Key() < b.Key() })
			if diff := cmp.Diff(want, got, sorted, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
			}
		}
		expect("cut", f, flows...)

		next := open(t)
		expect("before another agent has written", next, flows...)
		next.Update(policy.Changes{Endpoints: endpoints(a.ep, b.ep), Rules: rules(policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}})})
		wantWrites(t, next, 0, 0)
		next.Audit()
		wantWrites(t, next, 0, 0)
		if err := next.Uncut(flows[1:]); err != nil {
			t.Fatal(err)
		}
		expect("others may begin", next, flows[0])
		passes("cut still", a.do, a.ep.Addrs[0], 1000, 0, 80, false)
		passes("no longer", a.do, a.ep.Addrs[1], 1000, 1, 80, true)
		if err := next.Uncut(flows[:1]); err != nil {
			t.Fatal(err)
		}
		cut(50*time.Millisecond, flows[0])
		eventually.True(t, "the kernel forgets the flow", func() bool {
			left, err := f.ReadCuts()
			return len(left) == 0 && err == nil
		})
		f.Audit()
		wantWrites(t, f, 0, 0)
	})
}

// TestCutMany cuts more flows than fit in one message.
func TestCutMany(t *testing.T) {
	const n = 10000
	netns.Host(t, func() {
		f := open(t)
		mustApply(t, f)
		var cuts []Cut
		var flows []Flow
		for i := range n {
			flows = append(flows, Flow{Protocol: model.ProtocolTCP, Src: ip("fd00::1"), Dst: ip("fd00::2"), SrcPort: 80, DstPort: uint16(i)})
			cuts = append(cuts, Cut{flows[i], time.Hour})
		}
		if err := f.Cut(cuts); err != nil {
			t.Fatal(err)
		}
		if got, err := f.ReadCuts(); len(got) != n || err != nil {
			t.Errorf("the kernel has %d, %v: want %d", len(got), err, n)
		}
		if err := f.Uncut(flows); err != nil {
			t.Fatal(err)
		}
		if got, err := f.ReadCuts(); len(got) != 0 || err != nil {
			t.Errorf("the kernel still has %d, %v", len(got), err)
		}
	})
}

// TestReadCutsNothing reads where there is no table, no set, or a set of another type.
func TestReadCutsNothing(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		for _, table := range []string{"add table inet calico", "add set inet calico cut4 { type ipv4_addr; elements = { 192.0.2.1 }; }"} {
			if got, err := f.ReadCuts(); len(got) != 0 || err != nil {
				t.Errorf("before %s: %v, %v", table, got, err)
			}
			run(t, "nft", table)
		}
		if got, err := f.ReadCuts(); len(got) != 0 || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	})
}
