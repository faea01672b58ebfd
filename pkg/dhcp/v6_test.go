// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/mdlayher/ndp"
)

var vmLL = ip("fe80::f816:3eff:fe00:1")

// in6 is the frame in which a client sends a message.
func in6(m dhcpv6.DHCPv6) frame {
	return frame{
		source: vmMAC, destination: [6]byte{0x33, 0x33, 0, 1, 0, 2}, src: vmLL, dst: ip("ff02::1:2"),
		protocol: protocolUDP, hopLimit: 1, srcPort: clientPort6, dstPort: serverPort6, payload: m.ToBytes(),
	}
}

func message6(what dhcpv6.MessageType, options ...dhcpv6.Option) *dhcpv6.Message {
	m := &dhcpv6.Message{MessageType: what, TransactionID: dhcpv6.TransactionID{1, 2, 3}}
	for _, o := range options {
		m.AddOption(o)
	}
	return m
}

// said6 is an answer on a line.
func said6(t testing.TB, b []byte) string {
	t.Helper()
	if b == nil {
		return ""
	}
	f := parseChecked(t, b)
	m, err := dhcpv6.MessageFromBytes(f.payload)
	if err != nil {
		t.Fatal(err)
	}
	if f.source != tapMAC || f.destination != vmMAC || f.src != ip("fe80::261:feff:feed:cafe") || f.dst != vmLL || f.srcPort != 547 || f.dstPort != 546 ||
		m.TransactionID != (dhcpv6.TransactionID{1, 2, 3}) {
		t.Errorf("answer from %s %s:%d to %s %s:%d:\n%s", f.source, f.src, f.srcPort, f.destination, f.dst, f.dstPort, m)
	}
	out := []string{m.MessageType.String()}
	for _, o := range m.Options.Options {
		switch o := o.(type) {
		case *dhcpv6.OptIANA:
			out = append(out, fmt.Sprintf("na%x[%s]", o.IaId[3:], inside(o.Options.Options)))
		case *dhcpv6.OptIATA:
			out = append(out, fmt.Sprintf("ta[%s]", inside(o.Options.Options)))
		case *dhcpv6.OptIAPD:
			out = append(out, fmt.Sprintf("pd[%s]", inside(o.Options.Options)))
		case *dhcpv6.OptStatusCode:
			out = append(out, o.StatusCode.String())
		default:
			switch o.Code() {
			case dhcpv6.OptionClientID:
				out = append(out, "client")
			case dhcpv6.OptionServerID:
				out = append(out, "server")
			case dhcpv6.OptionRapidCommit:
				out = append(out, "rapid")
			case dhcpv6.OptionDNSRecursiveNameServer:
				out = append(out, fmt.Sprint(m.Options.DNS()))
			case dhcpv6.OptionDomainSearchList:
				out = append(out, strings.Join(m.Options.DomainSearchList().Labels, ","))
			default:
				out = append(out, o.String())
			}
		}
	}
	return strings.Join(out, " ")
}

// inside is what an association has.
func inside(options dhcpv6.Options) string {
	var out []string
	for _, o := range options {
		switch o := o.(type) {
		case *dhcpv6.OptIAAddress:
			out = append(out, fmt.Sprintf("%s for %s", o.IPv6Addr, o.ValidLifetime))
		case *dhcpv6.OptStatusCode:
			out = append(out, o.StatusCode.String())
		}
	}
	return strings.Join(out, ", ")
}

func TestAnswer6(t *testing.T) {
	client := dhcpv6.OptClientID(&dhcpv6.DUIDUUID{UUID: [16]byte{1}})
	ours := dhcpv6.OptServerID(&dhcpv6.DUIDLL{HWType: 1, LinkLayerAddr: tapMAC[:]})
	another := dhcpv6.OptServerID(&dhcpv6.DUIDLL{HWType: 1, LinkLayerAddr: other[:]})
	na := func(id byte, addrs ...string) dhcpv6.Option {
		o := &dhcpv6.OptIANA{IaId: [4]byte{0, 0, 0, id}}
		for _, a := range addrs {
			o.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(a), ValidLifetime: time.Hour})
		}
		return o
	}
	rapid := &dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit}
	const (
		solicit, request, renew, rebind, confirm = dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind, dhcpv6.MessageTypeConfirm
		release, decline, information            = dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline, dhcpv6.MessageTypeInformationRequest

		given = " client server na01[fd00:65::24 for 24h0m0s] [fd00::53] example.com"
	)
	p := portOf(t, endpoint())
	for _, c := range []struct {
		name string
		in   *dhcpv6.Message
		want string
	}{
		{"solicit", message6(solicit, client, na(1)), "ADVERTISE" + given},
		{"solicit, at once", message6(solicit, client, na(1), rapid), "REPLY client server rapid na01[fd00:65::24 for 24h0m0s] [fd00::53] example.com"},
		{"solicit, another's", message6(solicit, client, na(1, "fd00:65::25")), "ADVERTISE" + given},
		{"solicit, without a client", message6(solicit, na(1)), ""},
		{"solicit, of a server", message6(solicit, client, ours, na(1)), ""},
		{"solicit, of all kinds", message6(solicit, client, na(1), na(2), &dhcpv6.OptIATA{}, &dhcpv6.OptIAPD{}),
			"ADVERTISE client server na01[fd00:65::24 for 24h0m0s] na02[NoAddrsAvail] ta[NoAddrsAvail] pd[NoPrefixAvail] [fd00::53] example.com"},
		{"request", message6(request, client, ours, na(1, "fd00:65::24")), "REPLY" + given},
		{"request, to another server", message6(request, client, another, na(1)), ""},
		{"request, to none", message6(request, client, na(1)), ""},
		{"renew", message6(renew, client, ours, na(1, "fd00:65::24")), "REPLY" + given},
		{"renew, another's", message6(renew, client, ours, na(1, "fd00:65::25")), "REPLY client server na01[fd00:65::24 for 24h0m0s, fd00:65::25 for 0s] [fd00::53] example.com"},
		{"renew, in a second association", message6(renew, client, ours, na(1), na(2, "fd00:65::24")),
			"REPLY client server na01[fd00:65::24 for 24h0m0s] na02[NoAddrsAvail, fd00:65::24 for 0s] [fd00::53] example.com"},
		{"rebind", message6(rebind, client, na(1, "fd00:65::24")), "REPLY" + given},
		{"rebind, to a server", message6(rebind, client, ours, na(1, "fd00:65::24")), ""},
		{"confirm", message6(confirm, client, na(1, "fd00:65::24")), "REPLY client server Success"},
		{"confirm, another's", message6(confirm, client, na(1, "fd00:65::24", "fd00:66::1")), "REPLY client server NotOnLink"},
		{"confirm nothing", message6(confirm, client, na(1)), ""},
		{"release", message6(release, client, ours, na(1, "fd00:65::24")), "REPLY client server Success"},
		{"decline", message6(decline, client, ours, na(1, "fd00:65::24")), "REPLY client server Success"},
		{"information", message6(information, client), "REPLY client server [fd00::53] example.com"},
		{"information, anonymous", message6(information), "REPLY server [fd00::53] example.com"},
		{"information, with an address", message6(information, client, na(1)), ""},
		{"information, of another server", message6(information, client, another), ""},
		{"a reply", message6(dhcpv6.MessageTypeReply, client, ours, na(1)), ""},
	} {
		if got := said6(t, p.Answer(in6(c.in).bytes())); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}

	in := in6(message6(solicit, client, na(1)))
	relayed := in6(&dhcpv6.RelayMessage{MessageType: dhcpv6.MessageTypeRelayForward, LinkAddr: net.ParseIP("fd00::1"), PeerAddr: net.ParseIP("fe80::1"),
		Options: dhcpv6.RelayOptions{Options: dhcpv6.Options{dhcpv6.OptRelayMessage(message6(solicit, client, na(1)))}}})
	spoofed, routed, none := in, in, p
	spoofed.source, routed.src = other, ip("fd00:65::24")
	none.Leases = none.Leases[:2]
	for name, got := range map[string][]byte{
		"relayed": p.Answer(relayed.bytes()), "another machine's": p.Answer(spoofed.bytes()), "not link-local": p.Answer(routed.bytes()),
		"cut": p.Answer(in.bytes()[:len(in.bytes())-1]), "no IPv6 address": none.Answer(in.bytes()),
	} {
		if got != nil {
			t.Errorf("%s: %s", name, said6(t, got))
		}
	}
}

func solicitation(t testing.TB) frame {
	t.Helper()
	f := frame{source: vmMAC, destination: [6]byte{0x33, 0x33, 0, 0, 0, 2}, src: vmLL, dst: ip("ff02::2"), protocol: protocolICMPv6, hopLimit: 255}
	var err error
	f.payload, err = ndp.MarshalMessageChecksum(&ndp.RouterSolicitation{}, f.src, f.dst)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAdvertisement(t *testing.T) {
	itself := endpoint()
	itself.IPv6Nets, itself.MTU = nets("fd00:65::f816:3eff:fe00:1/128"), 0
	itself.FQDN = "vm1"
	mac := &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: tapMAC[:]}
	dns := &ndp.RecursiveDNSServer{Lifetime: 30 * time.Minute, Servers: []netip.Addr{ip("fd00::53")}}
	ra := ndp.RouterAdvertisement{CurrentHopLimit: 64, ManagedConfiguration: true, OtherConfiguration: true, RouterLifetime: 30 * time.Minute}
	with := func(options ...ndp.Option) *ndp.RouterAdvertisement {
		ra := ra
		ra.Options = options
		return &ra
	}
	for _, c := range []struct {
		name string
		port Port
		want *ndp.RouterAdvertisement
	}{
		{"DHCPv6", portOf(t, endpoint()), with(mac, ndp.NewMTU(1450), dns, &ndp.DNSSearchList{Lifetime: 30 * time.Minute, DomainNames: []string{"example.com"}})},
		{"SLAAC", portOf(t, itself), with(mac, &ndp.PrefixInformation{PrefixLength: 64, AutonomousAddressConfiguration: true,
			ValidLifetime: 24 * time.Hour, PreferredLifetime: 24 * time.Hour, Prefix: ip("fd00:65::")}, dns)},
	} {
		f := parseChecked(t, c.port.Answer(solicitation(t).bytes()))
		m, err := ndp.ParseMessage(f.payload)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ndp.Message(c.want), m, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if f.source != tapMAC || f.destination != allNodesMAC || f.src != ip("fe80::261:feff:feed:cafe") || f.dst != allNodes || f.hopLimit != 255 {
			t.Errorf("%s: from %s %s to %s %s, hop limit %d", c.name, f.source, f.src, f.destination, f.dst, f.hopLimit)
		}
	}

	p, in := portOf(t, endpoint()), solicitation(t)
	forwarded, spoofed, nothing := in, in, in
	forwarded.hopLimit, spoofed.source, nothing.payload = 254, other, []byte{136, 0, 0, 0}
	none := p
	none.Leases = none.Leases[:2]
	for name, got := range map[string][]byte{
		"from afar": p.Answer(forwarded.bytes()), "another machine's": p.Answer(spoofed.bytes()), "not asked": p.Answer(nothing.bytes()),
		"no IPv6 address": none.Answer(in.bytes()), "no IPv6 address, unasked": none.Advertisement(),
	} {
		if got != nil {
			t.Errorf("%s: %x", name, got)
		}
	}
}
