// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/lab/taps"
	"github.com/calico-go/calico/test/netns"
)

// TestTap: every tap has the MAC address that virtual machines know and their IPv6 gateway, and answers ARP at once; all that is repaired.
func TestTap(t *testing.T) {
	netns.Host(t, func() {
		machine, err := taps.Open("tap1")
		if err != nil {
			t.Fatal(err)
		}
		defer machine.Close()
		h, err := New(Config{Prefixes: []string{"tap"}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		endpoint := Endpoint{
			Interface: "tap1", Active: true, MAC: mac("fa:16:3e:00:00:01"),
			Addrs: []netip.Addr{netip.MustParseAddr("10.65.0.24"), netip.MustParseAddr("fd00:65::24")},
		}
		for _, broken := range []func(){
			func() {},
			func() { netns.IP(t, "link", "set", "tap1", "address", "fe:16:3e:00:00:01") },
			func() { netns.IP(t, "-6", "addr", "flush", "dev", "tap1") },
			func() { netns.IP(t, "link", "set", "tap1", "down"); netns.IP(t, "link", "set", "tap1", "up") },
		} {
			broken()
			mustApply(t, h, endpoint)
			l, err := link.Find("tap1")
			if err != nil {
				t.Fatal(err)
			}
			if l.MAC != link.TapMAC() || l.MAC.String() != "00:61:fe:ed:ca:fe" {
				t.Errorf("MAC address %s", l.MAC)
			}
			if got := strings.Join(netns.IP(t, "-6", "-o", "addr", "show", "dev", "tap1", "to", "fe80::261:feff:feed:cafe"), "\n"); !strings.Contains(got, "fe80::261:feff:feed:cafe/64") {
				t.Errorf("it has no gateway: %q", got)
			}
			for _, sysctl := range []string{"ipv4/conf/tap1/proxy_arp=1", "ipv4/neigh/tap1/proxy_delay=0", "ipv6/conf/tap1/accept_ra=0"} {
				name, want, _ := strings.Cut(sysctl, "=")
				if v, err := rtnl.ReadSysctl(name); err != nil || v != int(want[0]-'0') {
					t.Errorf("%s is %d, %v: want %s", name, v, err, want)
				}
			}
			if r := mustApply(t, h, endpoint); r.Writes != 0 {
				t.Errorf("%d writes were left", r.Writes)
			}
		}
	})
}
