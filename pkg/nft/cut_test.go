// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestCut drops what would begin a connection of flows that are cut, and nothing else.
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
		var flows, fromHost []Flow
		for v := range own {
			flows = append(flows,
				Flow{Protocol: model.ProtocolUDP, Src: a.ep.Addrs[v], Dst: b.ep.Addrs[v], SrcPort: 1000, DstPort: 80}, Flow{Protocol: 253, Src: a.ep.Addrs[v], Dst: b.ep.Addrs[v], SrcPort: 0, DstPort: 0})
			fromHost = append(fromHost, Flow{Protocol: model.ProtocolUDP, Src: own[v], Dst: b.ep.Addrs[v], SrcPort: 1000, DstPort: 80})
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
			for end := time.Now().Add(patienceOfTests); ; time.Sleep(time.Millisecond) { // a packet may be under way still
				got, err := f.ReadCut()
				diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }))
				if diff == "" && err == nil {
					return
				}
				if err != nil || time.Now().After(end) {
					t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
					return
				}
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
	netns.Host(t, func() {
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
	netns.Host(t, func() {
		f := open(t)
		mustApply(t, f)
		var flows []Flow
		for i := range n {
			flows = append(flows, Flow{Protocol: model.ProtocolTCP, Src: ip("fd00::1"), Dst: ip("fd00::2"), SrcPort: 80, DstPort: uint16(i)})
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

// TestCoarseCut drops what goes on of coarse flows, and what begins any but of TCP.
func TestCoarseCut(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		a, b, c := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2"), newSpace(t, 3, "cali3")
		all := policy.Rule{Action: model.ActionAllow}
		for _, s := range []*space{&a, &b, &c} {
			s.ep.Inbound = policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
			s.ep.Outbound = s.ep.Inbound
		}
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(a.ep, b.ep, c.ep), Rules: rules(policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}})})
		mustApply(t, f)
		at := map[*space]net.PacketConn{&b: b.listen(80), &c: c.listen(80)}
		for v := range a.ep.Addrs {
			of := func(s *space) netip.Addr { return s.ep.Addrs[v] }
			dropped := func(flow Flow) uint64 {
				t.Helper()
				all, err := f.ReadCut()
				if err != nil {
					t.Fatal(err)
				}
				return all[flow]
			}
			passes := func(name string, from, to *space, flow Flow, want bool) {
				t.Helper()
				before := dropped(flow)
				from.do(func() {
					conn, err := net.DialUDP("udp", &net.UDPAddr{Port: 1000}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(of(to), 80)))
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					if _, err := conn.Write([]byte("x")); err != nil {
						t.Error(err)
					}
				})
				if want {
					if _, _, err := readWithin(at[to], make([]byte, 10)); err != nil {
						t.Errorf("%s, IPv%d: %v", name, []int{4, 6}[v], err)
					}
					return
				}
				for end := time.Now().Add(patienceOfTests); dropped(flow) == before; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%s, IPv%d: it is not dropped", name, []int{4, 6}[v])
					}
				}
			}
			for _, test := range []struct {
				name string
				flow Flow
				want [3]bool // a to b, a to c, c to b
			}{
				{"a pair", Flow{Src: of(&a), Dst: of(&b), AnyPorts: true}, [3]bool{false, true, true}},
				{"from one", Flow{Src: of(&a), AnyPorts: true}, [3]bool{false, false, true}},
				{"to one", Flow{Dst: of(&b), AnyPorts: true}, [3]bool{false, true, false}},
				{"from a port of one", Flow{Src: of(&a), SrcPort: 1000}, [3]bool{false, false, true}},
				{"from another port of one", Flow{Src: of(&a), SrcPort: 1001}, [3]bool{true, true, true}},
				{"from a port to one", Flow{Dst: of(&b), SrcPort: 1000}, [3]bool{false, true, false}},
				{"from another port to one", Flow{Dst: of(&b), SrcPort: 1001}, [3]bool{true, true, true}},
			} {
				udp, tcp := test.flow, test.flow
				udp.Protocol, tcp.Protocol = model.ProtocolUDP, model.ProtocolTCP
				if got := (Flow{Protocol: model.ProtocolUDP, Src: of(&a), Dst: of(&b), SrcPort: test.flow.SrcPort, DstPort: 2}).Coarser(); !udp.IsCoarse() || !slices.Contains(got, udp) {
					t.Errorf("%s: %v is not one of %v", test.name, udp, got)
				}
				f.Cut([]Flow{udp, tcp}, nil)
				wantWrites(t, f, 2, 0)
				if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
					t.Errorf("-ours +nft's:\n%s", diff)
				}
				for i, ways := range [][2]*space{{&a, &b}, {&a, &c}, {&c, &b}} {
					passes(fmt.Sprint(test.name, ", way ", i), ways[0], ways[1], udp, test.want[i])
				}
				// TCP: a new one works, and one that goes on as if it were new doesn't.
				var listener net.Listener
				b.do(func() {
					var err error
					if listener, err = net.Listen("tcp", netip.AddrPortFrom(of(&b), 80).String()); err != nil {
						t.Fatal(err)
					}
				})
				a.do(func() {
					conn, err := net.Dial("tcp", listener.Addr().String())
					if err != nil {
						t.Fatalf("%s: %v", test.name, err)
					}
					conn.Close()
				})
				far, err := listener.Accept()
				if err != nil {
					t.Fatal(err)
				}
				_ = far.SetReadDeadline(time.Now().Add(patienceOfTests))
				if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("%s: a new connection of TCP: %v", test.name, err)
				}
				if n := dropped(tcp); n != 0 {
					t.Errorf("%s: of a new connection of TCP %d are dropped", test.name, n)
				}
				var going net.Conn
				a.do(func() {
					d := net.Dialer{LocalAddr: &net.TCPAddr{Port: int(test.flow.SrcPort)}}
					going, err = d.Dial("tcp", listener.Addr().String())
				})
				if err != nil {
					t.Fatal(err)
				}
				run(t, "conntrack", "-F")
				if _, err := going.Write([]byte("x")); err != nil {
					t.Error(err)
				}
				for end := time.Now().Add(patienceOfTests); dropped(tcp) == 0; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%s: what goes on of TCP is not dropped", test.name)
					}
				}
				_ = going.(*net.TCPConn).SetLinger(0) // its port is free at once
				_ = going.Close()
				_ = far.Close()
				_ = listener.Close()
				again := open(t)
				if got, err := again.ReadCut(); len(got) != 2 || err != nil {
					t.Errorf("%s: another sees %v, %v", test.name, got, err)
				}
				f.Cut(nil, []Flow{udp, tcp})
				wantWrites(t, f, 2, 0)
				run(t, "conntrack", "-F")
			}
		}
	})
}
