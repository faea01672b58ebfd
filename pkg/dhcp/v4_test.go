// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// in4 is the frame in which a client sends a message.
func in4(m *dhcpv4.DHCPv4) frame {
	return frame{
		source: vmMAC, destination: broadcastMAC, src: netip.IPv4Unspecified(), dst: broadcast,
		protocol: protocolUDP, hopLimit: 64, srcPort: clientPort4, dstPort: serverPort4, payload: m.ToBytes(),
	}
}

func message4(t testing.TB, what dhcpv4.MessageType, with ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(vmMAC[:]), dhcpv4.WithMessageType(what)}, with...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// said4 is an answer on a line.
func said4(t testing.TB, b []byte) string {
	t.Helper()
	if b == nil {
		return ""
	}
	f := parseChecked(t, b)
	m, err := dhcpv4.FromBytes(f.payload)
	if err != nil {
		t.Fatal(err)
	}
	if f.source != tapMAC || f.srcPort != 67 || f.dstPort != 68 || m.OpCode != dhcpv4.OpcodeBootReply || addr(m.ServerIdentifier()) != f.src {
		t.Errorf("answer from %s, %s:%d to port %d:\n%s", f.source, f.src, f.srcPort, f.dstPort, m.Summary())
	}
	return fmt.Sprintf("%s %s by %s to %s %s", m.MessageType(), addr(m.YourIPAddr), f.src, f.dst, f.destination)
}

func requested(a string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(a)))
}

func server(a string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(a)))
}

func from(a string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(a)) }

func TestAnswer4(t *testing.T) {
	const (
		discover, request, inform = dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform

		offered = "OFFER 10.65.0.24 by 10.65.0.1 to 10.65.0.24 fa:16:3e:00:00:01"
		given   = "ACK 10.65.0.24 by 10.65.0.1 to 10.65.0.24 fa:16:3e:00:00:01"
		refused = "NAK 0.0.0.0 by 10.65.0.1 to 255.255.255.255 ff:ff:ff:ff:ff:ff"
	)
	p := portOf(t, endpoint())
	for _, c := range []struct {
		name string
		in   *dhcpv4.DHCPv4
		want string
	}{
		{"discover", message4(t, discover), offered},
		{"discover, can't take unicast", message4(t, discover, dhcpv4.WithBroadcast(true)), "OFFER 10.65.0.24 by 10.65.0.1 to 255.255.255.255 ff:ff:ff:ff:ff:ff"},
		{"discover, asks for its second address", message4(t, discover, requested("10.66.1.2")), "OFFER 10.66.1.2 by 10.66.0.1 to 10.66.1.2 fa:16:3e:00:00:01"},
		{"discover, asks for another's", message4(t, discover, requested("10.65.0.25")), offered},
		{"selecting", message4(t, request, requested("10.65.0.24"), server("10.65.0.1")), given},
		{"selecting, its second", message4(t, request, requested("10.66.1.2"), server("10.66.0.1")), "ACK 10.66.1.2 by 10.66.0.1 to 10.66.1.2 fa:16:3e:00:00:01"},
		{"selecting another server", message4(t, request, requested("10.65.0.24"), server("10.65.0.9")), ""},
		{"selecting another's address", message4(t, request, requested("10.65.0.25"), server("10.65.0.1")), refused},
		{"rebooting", message4(t, request, requested("10.65.0.24")), given},
		{"rebooting in another network", message4(t, request, requested("192.168.1.7")), refused},
		{"renewing", message4(t, request, from("10.65.0.24")), given},
		{"rebinding another's", message4(t, request, from("10.65.0.25"), dhcpv4.WithBroadcast(true)), refused},
		{"request for nothing", message4(t, request), ""},
		{"inform", message4(t, inform, from("10.66.1.2")), "ACK 0.0.0.0 by 10.66.0.1 to 10.66.1.2 fa:16:3e:00:00:01"},
		{"inform of another's", message4(t, inform, from("10.65.0.25")), ""},
		{"inform of none", message4(t, inform), ""},
		{"release", message4(t, dhcpv4.MessageTypeRelease, from("10.65.0.24")), ""},
		{"decline", message4(t, dhcpv4.MessageTypeDecline, requested("10.65.0.24")), ""},
		{"offer", message4(t, dhcpv4.MessageTypeOffer), ""},
		{"BOOTP", message4(t, dhcpv4.MessageTypeNone, dhcpv4.WithoutOption(dhcpv4.OptionDHCPMessageType)), ""},
		{"another machine's", message4(t, discover, dhcpv4.WithHwAddr(other[:])), ""},
		{"not Ethernet", message4(t, discover, dhcpv4.WithHWType(6)), ""},
		{"short hardware address", message4(t, discover, dhcpv4.WithHwAddr(vmMAC[:5])), ""},
		{"relayed", message4(t, discover, dhcpv4.WithGatewayIP(net.ParseIP("10.65.0.7"))), ""},
		{"relayed, by hops", message4(t, discover, func(m *dhcpv4.DHCPv4) { m.HopCount = 1 }), ""},
		{"relayed, by option 82", message4(t, discover, dhcpv4.WithOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(1), []byte("x"))))), ""},
		{"a reply", message4(t, discover, func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply }), ""},
	} {
		if got := said4(t, p.Answer(in4(c.in).bytes())); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// TestFrames4 has the message in frames that are none of the machine's, or none for a server.
func TestFrames4(t *testing.T) {
	p := portOf(t, endpoint())
	discover := in4(message4(t, dhcpv4.MessageTypeDiscover))
	change := func(how func(*frame)) []byte {
		f := discover
		how(&f)
		return f.bytes()
	}
	raw := func(how func(b []byte) []byte) []byte { return how(discover.bytes()) }
	for _, c := range []struct {
		name string
		in   []byte
		ok   bool
	}{
		{"as it is", discover.bytes(), true},
		{"padded", raw(func(b []byte) []byte { return append(b, make([]byte, 60)...) }), true},
		{"unicast to the gateway", change(func(f *frame) { f.destination, f.dst = tapMAC, ip("10.65.0.1") }), true},
		{"checksum left to hardware", raw(func(b []byte) []byte { b[etherLen+ipv4Len+6] ^= 0xff; return b }), true},
		{"not to be fragmented", raw(func(b []byte) []byte { b[etherLen+6] |= 0x40; return b }), true},
		{"from another MAC address", change(func(f *frame) { f.source = other }), false},
		{"to another port", change(func(f *frame) { f.dstPort = 69 }), false},
		{"from another port", change(func(f *frame) { f.srcPort = 67 }), false},
		{"TCP", raw(func(b []byte) []byte { b[etherLen+9] = 6; return b }), false},
		{"ARP", raw(func(b []byte) []byte { b[13] = 6; return b }), false},
		{"a fragment", raw(func(b []byte) []byte { b[etherLen+6] |= 0x20; return b }), false},
		{"cut", raw(func(b []byte) []byte { return b[:len(b)-1] }), false},
		{"a header alone", raw(func(b []byte) []byte { return b[:etherLen] }), false},
		{"not even that", raw(func(b []byte) []byte { return b[:etherLen-1] }), false},
		{"empty", nil, false},
		{"no DHCP", change(func(f *frame) { f.payload = []byte("hello") }), false},
	} {
		if got := p.Answer(c.in); (got != nil) != c.ok {
			t.Errorf("%s: %q", c.name, said4(t, got))
		}
	}
}

func TestOptions4(t *testing.T) {
	ask := func(p Port, what dhcpv4.MessageType, with ...dhcpv4.Modifier) string {
		in := in4(message4(t, what, append(with, dhcpv4.WithTransactionID(dhcpv4.TransactionID{1, 2, 3, 4}))...))
		m, err := dhcpv4.FromBytes(parseChecked(t, p.Answer(in.bytes())).payload)
		if err != nil {
			t.Fatal(err)
		}
		_, options, _ := strings.Cut(m.Summary(), "options:\n")
		return options
	}
	full := portOf(t, endpoint())
	least := portOf(t, endpoint())
	least.FQDN, least.MTU = "", 0
	own := full
	own.Leases[0].Subnet.HostRoutes[0].Destination = netip.MustParsePrefix("0.0.0.0/0")
	for _, c := range []struct {
		name, got, want string
	}{
		{"ack", ask(portOf(t, endpoint()), dhcpv4.MessageTypeRequest, requested("10.65.0.24"), dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte{1, 2}))), `    Subnet Mask: ffffff00
    Router: 10.65.0.1
    Domain Name Server: 8.8.8.8, 8.8.4.4
    Host Name: vm1
    Domain Name: example.com
    Interface MTU: [5 170]
    IP Addresses Lease Time: 24h0m0s
    DHCP Message Type: ACK
    Server Identifier: 10.65.0.1
    Renew Time Value: 12h0m0s
    Rebinding Time Value: 21h0m0s
    Client identifier: [1 2]
    Classless Static Route: route to 169.254.169.254/32 via 10.65.0.2; route to 0.0.0.0/0 via 10.65.0.1
`},
		{"without all that may be missing", ask(least, dhcpv4.MessageTypeDiscover, requested("10.66.1.2")), `    Subnet Mask: ffff0000
    Router: 10.66.0.1
    IP Addresses Lease Time: 24h0m0s
    DHCP Message Type: OFFER
    Server Identifier: 10.66.0.1
    Renew Time Value: 12h0m0s
    Rebinding Time Value: 21h0m0s
    Classless Static Route: route to 0.0.0.0/0 via 10.66.0.1
`},
		{"inform", ask(least, dhcpv4.MessageTypeInform, from("10.66.1.2")), `    Subnet Mask: ffff0000
    Router: 10.66.0.1
    DHCP Message Type: ACK
    Server Identifier: 10.66.0.1
    Classless Static Route: route to 0.0.0.0/0 via 10.66.0.1
`},
		{"a default route of its own", ask(own, dhcpv4.MessageTypeInform, from("10.65.0.24")), `    Subnet Mask: ffffff00
    Router: 10.65.0.1
    Domain Name Server: 8.8.8.8, 8.8.4.4
    Host Name: vm1
    Domain Name: example.com
    Interface MTU: [5 170]
    DHCP Message Type: ACK
    Server Identifier: 10.65.0.1
    Classless Static Route: route to 0.0.0.0/0 via 10.65.0.2
`},
		{"nak", ask(full, dhcpv4.MessageTypeRequest, requested("10.65.0.25")), `    DHCP Message Type: NAK
    Server Identifier: 10.65.0.1
`},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestRoutes4 has gateways inside and outside of the lease's subnet: a machine that takes classless routes must reach each next hop
// on its link first.
func TestRoutes4(t *testing.T) {
	for id, want := range map[string]string{
		"v4":  "169.254.169.254/32 by 10.65.0.2, 0.0.0.0/0 by 10.65.0.1",
		"far": "192.0.2.7/32 by 0.0.0.0, 192.0.2.1/32 by 0.0.0.0, 169.254.169.254/32 by 10.65.0.2, 10.9.0.0/16 by 192.0.2.7, 0.0.0.0/0 by 192.0.2.1",
		"one": "169.254.1.1/32 by 0.0.0.0, 0.0.0.0/0 by 169.254.1.1",
		"def": "0.0.0.0/0 by 10.65.0.2",
	} {
		s, err := readSubnet(id)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range routes4(Lease{ip("10.65.0.24"), s}) {
			got = append(got, r.Dest.String()+" by "+r.Router.String())
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s:\n got %s\nwant %s", id, text, want)
		}
	}
}

func TestDeclined(t *testing.T) {
	p := portOf(t, endpoint())
	decline := func(with ...dhcpv4.Modifier) []byte {
		return in4(message4(t, dhcpv4.MessageTypeDecline, append(with, server("10.65.0.1"))...)).bytes()
	}
	for _, c := range []struct {
		name string
		in   []byte
		want string
	}{
		{"its own", decline(requested("10.66.1.2")), "10.66.1.2"},
		{"another's", decline(requested("10.65.0.25")), ""},
		{"another machine", decline(requested("10.66.1.2"), dhcpv4.WithHwAddr(other[:])), ""},
		{"nothing", decline(), ""},
		{"a discover", in4(message4(t, dhcpv4.MessageTypeDiscover, requested("10.65.0.24"))).bytes(), ""},
		{"noise", []byte{1, 2, 3}, ""},
	} {
		got := ""
		if a, ok := p.Declined(c.in); ok {
			got = a.String()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAnnouncements are to be a gratuitous ARP for each gateway but the machine's own address, and an advertisement of the router.
func TestAnnouncements(t *testing.T) {
	p := portOf(t, endpoint())
	p.Leases[1].Subnet.GatewayIP = p.Leases[1].Addr
	var got []string
	for _, b := range p.Announcements() {
		got = append(got, fmt.Sprintf("%x", b))
	}
	want := "ffffffffffff0061feedcafe08060001080006040001" + "0061feedcafe0a410001" + "0000000000000a410001"
	if len(got) != 2 || got[0] != want || !strings.Contains(got[1], "8800") {
		t.Errorf("%q, want %s first", got, want)
	}
	if f := parseChecked(t, p.Announcements()[1]); f.payload[0] != 136 || f.payload[4] != 0xa0 || f.hopLimit != 255 {
		t.Errorf("advertised %x", f.payload)
	}
}
