// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/calico-go/calico/pkg/model"
)

func TestNewPort(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*model.WorkloadEndpoint)
		want   string // of the leases, or of the error
	}{
		{"all", func(*model.WorkloadEndpoint) {}, "10.65.0.24 of 10.65.0.0/24, 10.66.1.2 of 10.66.0.0/16, fd00:65::24 of fd00:65::/64"},
		{"IPv6 alone", func(ep *model.WorkloadEndpoint) { ep.IPv4SubnetIDs = nil }, "fd00:65::24 of fd00:65::/64"},
		{"an IPv6 subnet without a gateway", func(ep *model.WorkloadEndpoint) { ep.IPv6SubnetIDs = []string{"no6"} }, "10.65.0.24 of 10.65.0.0/24, 10.66.1.2 of 10.66.0.0/16, fd00:65::24 of fd00:65::/64"},
		{"no names, no MTU", func(ep *model.WorkloadEndpoint) { ep.FQDN, ep.MTU, ep.IPv6SubnetIDs = "", 0, nil }, "10.65.0.24 of 10.65.0.0/24, 10.66.1.2 of 10.66.0.0/16"},
		{"no MAC address", func(ep *model.WorkloadEndpoint) { ep.MAC = model.MAC{} }, "mac: missing: a machine is known by its tap and its MAC address"},
		{"subnets that don't match", func(ep *model.WorkloadEndpoint) { ep.IPv4SubnetIDs = []string{"v4"} }, "ipv4_subnet_ids: 1 for 2 of ipv4_nets: want one for each"},
		{"a subnet that isn't there", func(ep *model.WorkloadEndpoint) { ep.IPv6SubnetIDs = []string{"x"} }, `ipv6_subnet_ids[0]: subnet "x": there is none`},
		{"an address elsewhere", func(ep *model.WorkloadEndpoint) { ep.IPv4SubnetIDs = []string{"v4", "v4"} },
			`ipv4_subnet_ids[1]: subnet "v4": its cidr is 10.65.0.0/24, which 10.66.1.2 isn't in`},
		{"the other family", func(ep *model.WorkloadEndpoint) { ep.IPv6SubnetIDs = []string{"v4"} },
			`ipv6_subnet_ids[0]: subnet "v4": its cidr is 10.65.0.0/24, which fd00:65::24 isn't in`},
		{"a name for a shell", func(ep *model.WorkloadEndpoint) { ep.FQDN = "a;reboot" }, `fqdn: "a;reboot": want labels of up to 63 letters, digits and hyphens, with dots between`},
		{"an empty label", func(ep *model.WorkloadEndpoint) { ep.FQDN = "a..b" }, `fqdn: "a..b": want labels of up to 63 letters, digits and hyphens, with dots between`},
		{"a long name", func(ep *model.WorkloadEndpoint) { ep.FQDN = strings.Repeat("a.", 130) }, "fqdn: 260 bytes: at most 253"},
		{"the root", func(ep *model.WorkloadEndpoint) { ep.FQDN = "vm1.example.com." }, "10.65.0.24 of 10.65.0.0/24, 10.66.1.2 of 10.66.0.0/16, fd00:65::24 of fd00:65::/64"},
		{"more than fits", func(ep *model.WorkloadEndpoint) {
			ep.IPv4Nets, ep.IPv4SubnetIDs, ep.MTU = nets("10.67.0.2/32"), []string{"many"}, 600
		}, "subnet 10.67.0.0/16: what DHCP is to tell takes 949 bytes, and the MTU is 600: give it fewer host_routes and dns_servers"},
		{"more than fits, IPv6", func(ep *model.WorkloadEndpoint) {
			ep.IPv6Nets, ep.IPv6SubnetIDs, ep.MTU = nets("fd00:66::2/128"), []string{"many6"}, 1000
		},
			"what DHCPv6 and the router advertisement are to tell takes 1233 bytes, and the MTU is 1000: give the subnets fewer dns_servers"},
	} {
		ep := endpoint()
		c.change(&ep)
		p, err := NewPort(ep, tapMAC, readSubnet)
		var got []string
		for _, l := range p.Leases {
			got = append(got, fmt.Sprintf("%s of %s", l.Addr, l.Subnet.CIDR))
		}
		text := strings.Join(got, ", ")
		if err != nil {
			text = err.Error()
		}
		if text != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, text, c.want)
		}
	}
	if IsServed(model.WorkloadEndpoint{IPv4Nets: nets("10.65.0.24/32")}) || !IsServed(endpoint()) {
		t.Error("an endpoint is served that names no subnet, or one isn't that does")
	}
}

// FuzzAnswer sends anything: what is answered goes to the machine and gives it its own addresses alone.
func FuzzAnswer(f *testing.F) {
	client, ia := dhcpv6.OptClientID(&dhcpv6.DUIDUUID{}), &dhcpv6.OptIANA{}
	f.Add(in4(message4(f, dhcpv4.MessageTypeDiscover)).bytes())
	f.Add(in4(message4(f, dhcpv4.MessageTypeRequest, requested("10.65.0.25"))).bytes())
	f.Add(in6(message6(dhcpv6.MessageTypeSolicit, client, ia)).bytes())
	f.Add(in6(message6(dhcpv6.MessageTypeRebind, client, ia)).bytes())
	f.Add(in6(message6(dhcpv6.MessageTypeInformationRequest)).bytes())
	f.Add(solicitation(f).bytes())
	p := portOf(f, endpoint())
	f.Fuzz(func(t *testing.T, in []byte) {
		if a, ok := p.Declined(in); ok && !hasAddr(p.Leases, a) {
			t.Fatalf("%s is declined", a)
		}
		out := p.Answer(in)
		if out == nil {
			return
		}
		if len(in) < 12 || model.MAC(in[6:12]) != vmMAC {
			t.Fatalf("another machine than %s is answered", vmMAC)
		}
		got := parseChecked(t, out)
		if got.source != tapMAC || !slices.Contains([]model.MAC{vmMAC, broadcastMAC, allNodesMAC}, got.destination) {
			t.Fatalf("from %s to %s", got.source, got.destination)
		}
		switch {
		case got.isUDP4(67, 68):
			m, err := dhcpv4.FromBytes(got.payload)
			if err != nil {
				t.Fatal(err)
			}
			if a := addr(m.YourIPAddr); !a.IsUnspecified() && !hasAddr(p.Leases, a) {
				t.Fatalf("%s is given", a)
			}
		case got.isUDP6(546):
			m, err := dhcpv6.MessageFromBytes(got.payload)
			if err != nil {
				t.Fatal(err)
			}
			for _, ia := range m.Options.IANA() {
				for _, o := range ia.Options.Addresses() {
					if a := addr(o.IPv6Addr); o.ValidLifetime > 0 && !hasAddr(p.Leases, a) {
						t.Fatalf("%s is given", a)
					}
				}
			}
		case got.protocol != protocolICMPv6:
			t.Fatalf("protocol %d, to port %d", got.protocol, got.dstPort)
		}
	})
}
