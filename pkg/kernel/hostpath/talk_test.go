// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

func TestPodsTalk(t *testing.T) {
	for _, defaultRoute := range []bool{false, true} {
		t.Run(fmt.Sprintf("host's default route %v", defaultRoute), func(t *testing.T) {
			netns.Host(t, func() {
				if defaultRoute {
					netns.IP(t, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
					netns.IP(t, "link", "set", "up0", "up")
					netns.IP(t, "link", "set", "up1", "up")
					netns.IP(t, "addr", "add", "192.0.2.1/24", "dev", "up0")
					netns.IP(t, "route", "add", "default", "via", "192.0.2.254")
				}
				h := newHostPath(t)
				a, b := wire(t, 1), wire(t, 2)
				mustApply(t, h, a.endpoint, b.endpoint)
				for i := range 2 {
					pods.Echo(t, a.ns, b.ns, b.endpoint.Addrs[i])
					pods.Echo(t, b.ns, a.ns, a.endpoint.Addrs[i])
				}
				again := mustApply(t, h, a.endpoint, b.endpoint)
				if again.Writes != 0 || again.Repairs != 0 {
					t.Errorf("a second Apply made %d writes, %d repairs", again.Writes, again.Repairs)
				}
			})
		})
	}
}

// TestPodsPing: pods ping each other, their host, and their gateway, which for IPv4 is an address of the host only if the host has no
// default route.
func TestPodsPing(t *testing.T) {
	for _, defaultRoute := range []bool{false, true} {
		t.Run(fmt.Sprintf("host's default route %v", defaultRoute), func(t *testing.T) {
			netns.Host(t, func() {
				pods.Uplink(t)
				gateways := []netip.Addr{link.HostGatewayLL().WithZone("eth0"), link.HostGateway()}
				if defaultRoute {
					netns.IP(t, "route", "add", "default", "via", "192.0.2.254")
					netns.IP(t, "-6", "route", "add", "default", "via", "2001:db8::fe")
					gateways = gateways[:1]
				}
				h := newHostPath(t)
				a, b := wire(t, 1), wire(t, 2)
				mustApply(t, h, a.endpoint, b.endpoint)
				host := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
				for _, pair := range [][2]wired{{a, b}, {b, a}} {
					from, to := pair[0], pair[1]
					for _, targets := range [][]netip.Addr{to.endpoint.Addrs, host, gateways} {
						for _, target := range targets {
							pods.Ping(t, from.ns, target)
						}
					}
					for _, target := range to.endpoint.Addrs {
						pods.Ping(t, nil, target)
					}
				}
				if r := mustApply(t, h, a.endpoint, b.endpoint); r.Writes != 0 {
					t.Errorf("a second Apply made %d writes", r.Writes)
				}
			})
		})
	}
}

// TestPodsPingOnAHostAlone: a host with no network but its pods' forwards all the same.
func TestPodsPingOnAHostAlone(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		mustApply(t, h, a.endpoint)
		pods.Ping(t, a.ns, link.HostGateway())
		pods.Ping(t, a.ns, link.HostGatewayLL().WithZone("eth0"))
	})
}
