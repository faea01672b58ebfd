// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"strconv"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// TestPropertiesRepaired breaks each property of an interface that a workload's packets rely on, in turn. If the kernel reports the change
// there is an event; in any case the next Apply repairs it, and the workload talks.
func TestPropertiesRepaired(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		mustApply(t, h, a.endpoint, b.endpoint)
		events, err := h.Subscribe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		netns.IP(t, "link", "add", "br0", "up", "type", "bridge")
		type property struct {
			name  string
			spoil func()
			told  bool
		}
		ip := func(told bool, args ...string) property {
			return property{args[len(args)-1] + " " + args[0], func() { netns.IP(t, args...) }, told}
		}
		properties := []property{
			ip(true, "link", "set", "cali1", "address", "02:00:00:00:00:99"),
			{"bridge", func() { netns.IP(t, "link", "set", "cali1", "master", "br0") }, true},
			{"arp", func() { netns.IP(t, "link", "set", "cali1", "arp", "off") }, true},
			ip(true, "route", "del", "10.65.0.1"),
			ip(true, "-6", "route", "del", "fd00::1"),
			ip(true, "-6", "addr", "flush", "dev", "cali1"),
			ip(false, "neigh", "del", "10.65.0.1", "dev", "cali1"),
			ip(false, "neigh", "replace", "fd00::1", "dev", "cali1", "lladdr", "02:00:00:00:00:99", "nud", "permanent"),
		}
		quiet := map[string]bool{"accept_source_route": true, "route_localnet": true, "accept_ra": true, "arp_ignore": true} // of these the kernel tells nothing
		for family, settings := range map[string][]setting{"ipv4": a.endpoint.settings4(), "ipv6": a.endpoint.settings6()} {
			for _, s := range settings {
				sysctl := family + "/conf/cali1/" + s.name
				properties = append(properties, property{sysctl, func() { netns.SetSysctl(t, sysctl, strconv.Itoa(int(1-s.value))) }, !quiet[s.name]})
			}
		}
		for _, p := range properties {
			pods.Echo(t, a.ns, b.ns, b.endpoint.Addrs[0])
			p.spoil()
			if p.told {
				awaits(t, events, "cali1")
			}
			if r := mustApply(t, h, a.endpoint, b.endpoint); r.Repairs == 0 {
				t.Errorf("%s: nothing was repaired", p.name)
			}
			if r := mustApply(t, h, a.endpoint, b.endpoint); r.Writes != 0 {
				t.Errorf("%s: %d writes were left", p.name, r.Writes)
			}
			for _, addr := range b.endpoint.Addrs {
				pods.Echo(t, a.ns, b.ns, addr)
				netns.Within(t, a.ns, func() { netns.IP(t, "neigh", "flush", "all") })
			}
		}
	})
}

// TestOlderLink: a link of an older version of Calico, without an alias, is taken out of a bridge, and keeps the MAC address that its
// workload knows.
func TestOlderLink(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		netns.IP(t, "link", "add", "br0", "up", "type", "bridge")
		netns.IP(t, "link", "set", "cali1", "alias", "", "address", "02:00:00:00:00:99", "master", "br0")
		mustApply(t, h, a.endpoint)
		if l, err := link.Find("cali1"); err != nil || l.MAC.String() != "02:00:00:00:00:99" || l.Master != 0 {
			t.Errorf("%+v, %v", l, err)
		}
	})
}

// TestAddressOfOthers: a link that the plugin didn't create, or not as a veth, keeps its MAC address.
func TestAddressOfOthers(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		netns.IP(t, "link", "set", "cali1", "alias", "somebody's", "address", "02:00:00:00:00:99")
		mustApply(t, h, a.endpoint)
		if l, err := link.Find("cali1"); err != nil || l.MAC.String() != "02:00:00:00:00:99" {
			t.Errorf("the MAC address is %s, %v", l.MAC, err)
		}
	})
}
