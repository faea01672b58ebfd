// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

var (
	tapMAC = model.MAC{0x00, 0x61, 0xfe, 0xed, 0xca, 0xfe}
	vmMAC  = model.MAC{0xfa, 0x16, 0x3e, 0x00, 0x00, 0x01}
	other  = model.MAC{0xfa, 0x16, 0x3e, 0x00, 0x00, 0x02}

	ip = netip.MustParseAddr
)

var subnets = map[string]string{
	"v4": `{"cidr": "10.65.0.0/24", "gateway_ip": "10.65.0.1", "dns_servers": ["8.8.8.8", "8.8.4.4"],
		"host_routes": [{"destination": "169.254.169.254/32", "nexthop": "10.65.0.2"}]}`,
	"v4b":   `{"cidr": "10.66.0.0/16", "gateway_ip": "10.66.0.1"}`,
	"far":   `{"cidr": "10.65.0.0/24", "gateway_ip": "192.0.2.1", "host_routes": [{"destination": "169.254.169.254/32", "nexthop": "10.65.0.2"}, {"destination": "10.9.0.0/16", "nexthop": "192.0.2.7"}]}`,
	"one":   `{"cidr": "10.65.0.24/32", "gateway_ip": "169.254.1.1"}`,
	"def":   `{"cidr": "10.65.0.0/24", "gateway_ip": "192.0.2.1", "host_routes": [{"destination": "0.0.0.0/0", "nexthop": "10.65.0.2"}]}`,
	"no6":   `{"cidr": "fd00:65::/64"}`,
	"v6":    `{"cidr": "fd00:65::/64", "gateway_ip": "fd00:65::1", "dns_servers": ["fd00::53"]}`,
	"many":  `{"cidr": "10.67.0.0/16", "gateway_ip": "10.67.0.1", "dns_servers": [` + servers("10.0.0.%d", 120) + `]}`,
	"many6": `{"cidr": "fd00:66::/64", "gateway_ip": "fd00:66::1", "dns_servers": [` + servers("fd00::%d", 60) + `]}`,
}

func servers(format string, n int) string {
	all := make([]string, n)
	for i := range n {
		all[i] = fmt.Sprintf(`"`+format+`"`, i)
	}
	return strings.Join(all, ", ")
}

func readSubnet(id string) (model.Subnet, error) {
	text, ok := subnets[id]
	if !ok {
		return model.Subnet{}, errors.New("there is none")
	}
	v, err := model.ParseValue(model.DHCPSubnetKey{ID: id}, []byte(text))
	if err != nil {
		return model.Subnet{}, err
	}
	return v.(model.Subnet), nil
}

// endpoint has an address of each family, and the second of IPv4 in another subnet.
func endpoint() model.WorkloadEndpoint {
	return model.WorkloadEndpoint{
		State: model.StateActive, Name: "tap1", MAC: vmMAC, FQDN: "vm1.example.com", MTU: 1450,
		IPv4Nets: nets("10.65.0.24/32", "10.66.1.2/32"), IPv4SubnetIDs: []string{"v4", "v4b"},
		IPv6Nets: nets("fd00:65::24/128"), IPv6SubnetIDs: []string{"v6"},
	}
}

func nets(all ...string) (list []netip.Prefix) {
	for _, s := range all {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

func portOf(t testing.TB, ep model.WorkloadEndpoint) Port {
	t.Helper()
	p, err := NewPort(ep, tapMAC, readSubnet)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// parseChecked reads a frame that was made here, checksums included.
func parseChecked(t testing.TB, b []byte) frame {
	t.Helper()
	f, ok := parseFrame(b)
	if !ok {
		t.Fatalf("a frame that can't be read: %x", b)
	}
	header, l4 := b[etherLen:], []byte(nil)
	if f.src.Is4() {
		if checksum(header[:ipv4Len]) != 0 {
			t.Errorf("checksum of IPv4's header: %x", b)
		}
		l4 = header[ipv4Len:]
	} else {
		l4 = header[ipv6Len:]
	}
	pseudo := append(append(f.src.AsSlice(), f.dst.AsSlice()...), 0, f.protocol, byte(len(l4)>>8), byte(len(l4)))
	if checksum(pseudo, l4) != 0 {
		t.Errorf("checksum of protocol %d: %x", f.protocol, b)
	}
	return f
}
