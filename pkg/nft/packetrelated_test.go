// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestErrors sends ICMP errors about connections: from an end of the connection and from a router they pass, from a workload that has no
// part in it they don't.
func TestErrors(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		a, b, third, out := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2"), newSpace(t, 3, "cali3"), newSpace(t, 4, "eth0")
		own := ownAddrs(t)
		b.translate()
		all := policy.Rule{Action: model.ActionAllow}
		prod := policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		for _, s := range []space{a, b, third} {
			s.ep.Inbound, s.ep.Outbound = prod, prod
		}
		third.ep.Outbound = policy.Verdicts{Profiles: []policy.RulesID{profileID("none")}} // what follows isn't up to policy
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(a.ep, b.ep, third.ep), Rules: rules(
			policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}}, policy.Rules{ID: profileID("none")})})
		mustApply(t, f)
		ats := map[netip.Addr]net.PacketConn{}
		for _, s := range []space{b, third, out} {
			at := s.listen(80)
			ats[s.ep.Addrs[0]], ats[s.ep.Addrs[1]] = at, at
		}
		for v, o := range own {
			hears := map[string]net.PacketConn{"the host": hear(t, v)}
			for _, s := range []space{a, out} {
				s.do(func() { hears[s.iface] = hear(t, v) })
			}
			connect := func(in func(func()), from, called, to netip.Addr) {
				t.Helper()
				in(func() { sendUDP(t, netip.AddrPortFrom(from, 1000), netip.AddrPortFrom(called, 80)) })
				if _, _, err := readWithin(ats[to], make([]byte, 10)); err != nil {
					t.Fatalf("%s -> %s: %v", from, called, err)
				}
			}
			a1, b1, third1, out1 := a.ep.Addrs[v], b.ep.Addrs[v], third.ep.Addrs[v], out.ep.Addrs[v]
			connect(a.do, a1, b1, b1)
			connect(a.do, a1, out1, out1)
			connect(here, o, out1, out1)
			connect(here, o, third1, third1)
			connect(out.do, out1, b.ep.NAT[v].ExtIP, b1)
			denied := count(t, "related-packets", "about a connection of others")
			for _, c := range []struct {
				name     string
				from     space
				src, dst netip.Addr // of the packet that the error is about, as its sender has it
				at       string     // "" = it is dropped
			}{
				{"the callee", b, a1, b1, a.iface},
				{"the callee, to the host", third, o, third1, "the host"},
				{"the callee, called by its outer address", b, out1, b1, out.iface},
				{"a router, to a workload", out, a1, b1, a.iface},
				{"a router, to the host", out, o, third1, "the host"},
				{"a workload, about another's to another workload", third, a1, b1, ""},
				{"a workload, about another's to outside", third, a1, out1, ""},
				{"a workload, about the host's", third, o, out1, ""},
			} {
				c.from.do(func() { sendError(t, v, c.from.ep.Addrs[v], c.src, c.dst) })
				if c.at == "" {
					denied++
					waitCount(t, "related-packets", "about a connection of others", denied)
				} else if err := hearsError(hears[c.at], v); err != nil {
					t.Errorf("IPv%d, from %s: %v", []int{4, 6}[v], c.name, err)
				}
			}
		}
	})
}

// hear opens a raw socket for ICMP in the current namespace.
func hear(tb testing.TB, v int) net.PacketConn {
	tb.Helper()
	c, err := net.ListenPacket([]string{"ip4:icmp", "ip6:ipv6-icmp"}[v], []string{"0.0.0.0", "::"}[v])
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// errorType returns the ICMP type that says that a packet was too big, by IP version.
func errorType(v int) byte { return []byte{3, 2}[v] }

func hearsError(c net.PacketConn, v int) error {
	buf := make([]byte, 200)
	for {
		n, _, err := readWithin(c, buf)
		if err != nil || n > 0 && buf[0] == errorType(v) {
			return err
		}
	}
}

// sendError tells the sender of a UDP packet from port 1000 to 80 that it was too big.
func sendError(tb testing.TB, v int, from, src, dst netip.Addr) {
	tb.Helper()
	const size, mtu = 1480, 1300
	quoted := []byte{0x45, 0, size >> 8, size & 0xff, 0, 1, 0x40, 0, 64, byte(model.ProtocolUDP), 0, 0}
	m := []byte{errorType(v), 4, 0, 0, 0, 0, mtu >> 8, mtu & 0xff}
	if v == 1 {
		quoted = []byte{0x60, 0, 0, 0, size >> 8, size & 0xff, byte(model.ProtocolUDP), 64}
		m[1] = 0
	}
	m = slices.Concat(m, quoted, src.AsSlice(), dst.AsSlice(), []byte{1000 >> 8, 1000 & 0xff, 0, 80, size >> 8, size & 0xff, 0, 0})
	if v == 0 { // the kernel does it for the other
		sum := uint32(0)
		for i := 0; i < len(m); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(m[i:]))
		}
		for sum>>16 != 0 {
			sum = sum>>16 + sum&0xffff
		}
		binary.BigEndian.PutUint16(m[2:], ^uint16(sum))
	}
	c, err := net.DialIP([]string{"ip4:icmp", "ip6:ipv6-icmp"}[v], &net.IPAddr{IP: from.AsSlice()}, &net.IPAddr{IP: src.AsSlice()})
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(m); err != nil {
		tb.Fatal(err)
	}
}
