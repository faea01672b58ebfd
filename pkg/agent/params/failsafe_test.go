// SPDX-License-Identifier: Apache-2.0

package params

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// TestHostLives checks what a host needs to stay on its network, in both families, while a policy denies everything on its host endpoint:
// IPv4 needs ARP, which is never filtered, IPv6 neighbour discovery and its routers.
func TestHostLives(t *testing.T) {
	e := policy.NewEngine("h1")
	e.SetInterfaces([]policy.Interface{{Name: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}}})
	endpoint, deny := model.HostEndpointKey{Host: "h1", Endpoint: "eth0"}, model.PolicyKey{Tier: "default", Policy: "deny"}
	e.Update(model.Entry{Path: endpoint.Path(), Key: endpoint, Revision: 1, Created: 1, Value: model.HostEndpoint{Name: "eth0"}})
	e.Update(model.Entry{Path: deny.Path(), Key: deny, Revision: 1, Created: 1, Value: model.Policy{Inbound: []model.Rule{{Action: model.ActionDeny}}, Outbound: []model.Rule{{Action: model.ActionDeny}}}})
	var st policy.State
	if err := st.Apply(e.Flush()); err != nil {
		t.Fatal(err)
	}
	type ends struct{ host, other, group, from string }
	families := []ends{{"192.0.2.10", "192.0.2.1", "255.255.255.255", "0.0.0.0"}, {"2001:db8::10", "fe80::1", "ff02::1:2", "fe80::10"}}
	asks, answers := [2]uint16{67, 547}, [2]uint16{68, 546}
	pass := func(what string, want policy.Verdict, in bool, src, dst string, p policy.Packet) {
		t.Helper()
		if p.In, p.Src, p.Dst = "eth0", netip.MustParseAddr(src), netip.MustParseAddr(dst); !in {
			p.In, p.Out = "", "eth0"
		}
		if got := policy.Evaluate(Resolve().Params.Firewall(), &st, p); got.Verdict != want {
			t.Errorf("%s, %s to %s: %s, want %s: %v", what, src, dst, got.Verdict, want, got.Trail)
		}
	}
	for i, f := range families {
		udp := func(from, to uint16) policy.Packet {
			return policy.Packet{Protocol: model.ProtocolUDP, SrcPort: from, DstPort: to}
		}
		tcp := func(to uint16) policy.Packet {
			return policy.Packet{Protocol: model.ProtocolTCP, SrcPort: 40000, DstPort: to}
		}
		pass("DHCP asks", policy.Accept, false, f.from, f.group, udp(answers[i], asks[i]))
		pass("DHCP renews", policy.Accept, false, f.host, f.other, udp(answers[i], asks[i]))
		pass("DHCP's answer", policy.Accept, true, f.other, f.host, udp(asks[i], answers[i]))
		pass("DNS", policy.Accept, false, f.host, f.other, udp(40000, 53))
		pass("SSH", policy.Accept, true, f.other, f.host, tcp(22))
		for _, port := range []uint16{179, 2379, 2380, 6443} {
			pass("a service of the cluster", policy.Accept, true, f.other, f.host, tcp(port))
			pass("a service of the cluster", policy.Accept, false, f.host, f.other, tcp(port))
		}
		pass("HTTP", policy.Drop, true, f.other, f.host, tcp(80))
		pass("HTTP", policy.Drop, false, f.host, f.other, tcp(80))
	}
	icmp := func(kind uint8) policy.Packet { return policy.Packet{Protocol: model.ProtocolICMPv6, ICMPType: kind} }
	pass("router solicitation", policy.Accept, false, "fe80::10", "ff02::2", icmp(133))
	pass("router advertisement", policy.Accept, true, "fe80::1", "ff02::1", icmp(134))
	for _, in := range []bool{false, true} {
		pass("duplicate address detection", policy.Accept, in, "::", "ff02::1:ff00:10", icmp(135))
		pass("neighbour advertisement", policy.Accept, in, "fe80::1", "fe80::10", icmp(136))
		pass("multicast listener report", policy.Accept, in, "fe80::1", "ff02::16", icmp(143))
		pass("an echo request", policy.Drop, in, "fe80::1", "fe80::10", icmp(128))
	}
}
