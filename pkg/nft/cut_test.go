// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// TestCut drops what would begin a connection of flows that are cut, and nothing else.
func TestCut(t *testing.T) {
	inHost(t, func() {
		asHost(t)
		a, b := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2")
		own := []netip.Addr{ip("10.9.9.9"), ip("fd09::9")}
		for _, o := range own {
			run(t, "ip", "addr", "add", netip.PrefixFrom(o, o.BitLen()).String(), "dev", "lo", "nodad")
		}
		all := policy.Rule{Action: model.ActionAllow}
		for _, s := range []space{a, b} {
			s.ep.Inbound = policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
			s.ep.Outbound = s.ep.Inbound
		}
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(a.ep, b.ep), Rules: rules(policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}})})
		mustApply(t, f)
		var flows, fromHost []Flow
		for v := range own {
			flows = append(flows,
				Flow{model.ProtocolUDP, a.ep.Addrs[v], b.ep.Addrs[v], 1000, 80}, Flow{253, a.ep.Addrs[v], b.ep.Addrs[v], 0, 0})
			fromHost = append(fromHost, Flow{model.ProtocolUDP, own[v], b.ep.Addrs[v], 1000, 80})
		}
		flows = append(flows, fromHost...)
		f.Cut(flows, nil)
		wantWrites(t, f, len(flows), 0)
		if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
			t.Errorf("-ours +nft's:\n%s", diff)
		}
		at, fence := map[int]net.PacketConn{80: b.listen(80), 81: b.listen(81)}, b.listen(fencePort)
		passes := func(name string, in func(func()), from netip.Addr, fromPort uint16, v int, port int, want bool) {
			t.Helper()
			if _, ok := probe(t, in, netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(b.ep.Addrs[v], uint16(port)), at[port], fence, from, b.ep.Addrs[v], want); ok != want {
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
			a.do(func() {
				c, err := net.Dial([]string{"ip4:253", "ip6:253"}[v], b.ep.Addrs[v].String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := c.Write([]byte("no ports here")); err != nil {
					t.Error(err)
				}
			})
			passes("after another protocol", a.do, src, 1002, v, 81, true)
		}
		want := map[Flow]uint64{flows[0]: 2, flows[1]: 1, flows[2]: 2, flows[3]: 1, flows[4]: 1, flows[5]: 1}
		expect := func(name string, f *Firewall, want map[Flow]uint64) {
			t.Helper()
			got, err := f.ReadCut()
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
			}
		}
		expect("what was dropped", f, want)

		next := open(t)
		expect("as another sees it", next, want)
		next.Update(policy.Changes{Endpoints: endpoints(a.ep, b.ep), Rules: rules(policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}})})
		next.Cut(slices.Collect(maps.Keys(want)), nil)
		wantWrites(t, next, 0, 0)
		next.Cut(nil, flows[1:])
		wantWrites(t, next, len(flows)-1, 0)
		expect("others may begin", next, map[Flow]uint64{flows[0]: 2})
		passes("cut still", a.do, a.ep.Addrs[0], 1000, 0, 80, false)
		passes("no longer", a.do, a.ep.Addrs[1], 1000, 1, 80, true)
		run(t, "nft", "flush", "set", "inet", TableName, "cut4")
		next.Audit()
		wantWrites(t, next, 1, 1)
		passes("repaired", a.do, a.ep.Addrs[0], 1000, 0, 80, false)
	})
}

// TestReadCutNothing reads where there is no table, or one of another make.
func TestReadCutNothing(t *testing.T) {
	inHost(t, func() {
		f := open(t)
		for _, table := range []string{"add table inet calico", "add set inet calico cut4 { type ipv4_addr; elements = { 192.0.2.1 }; }"} {
			if got, err := f.ReadCut(); len(got) != 0 || err != nil {
				t.Errorf("before %s: %v, %v", table, got, err)
			}
			run(t, "nft", table)
		}
		if got, err := f.ReadCut(); len(got) != 0 || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// TestLargeCut cuts as many as the agent keeps at once.
func TestLargeCut(t *testing.T) {
	const n = 1 << 16
	inHost(t, func() {
		f := open(t)
		mustApply(t, f)
		var flows []Flow
		for i := range n {
			flows = append(flows, Flow{model.ProtocolTCP, ip("fd00::1"), ip("fd00::2"), 80, uint16(i)})
		}
		f.Cut(flows, nil)
		wantWrites(t, f, n, 0)
		if got, err := f.ReadCut(); len(got) != n || err != nil {
			t.Errorf("the kernel has %d, %v: want %d", len(got), err, n)
		}
		f.Cut(nil, flows)
		wantWrites(t, f, n, 0)
		if got, err := f.ReadCut(); len(got) != 0 || err != nil {
			t.Errorf("the kernel still has %d, %v", len(got), err)
		}
	})
}
