// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// advertise creates the link up0, which accepts router advertisements, and a router on it that has sent one.
func advertise(tb testing.TB) {
	tb.Helper()
	netns.IP(tb, "link", "add", "up0", "type", "veth", "peer", "name", "router0")
	netns.SetSysctl(tb, "ipv6/conf/up0/accept_ra", "1")
	netns.SetSysctl(tb, "ipv6/conf/up0/accept_ra_from_local", "1")
	netns.SetSysctl(tb, "ipv6/conf/router0/accept_ra", "0")
	for _, name := range []string{"router0", "up0"} {
		netns.SetSysctl(tb, "ipv6/conf/"+name+"/accept_dad", "0")
		netns.IP(tb, "link", "set", name, "up")
	}
	pods.AwaitSettled(tb, "router0")
	pods.AwaitSettled(tb, "up0")
	router, err := net.InterfaceByName("router0")
	if err != nil {
		tb.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	for option, value := range map[int]int{unix.IPV6_MULTICAST_HOPS: 255, unix.IPV6_MULTICAST_IF: router.Index} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, option, value); err != nil {
			tb.Fatal(err)
		}
	}
	advert := []byte{134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // RFC 4861, 4.2
	binary.BigEndian.PutUint16(advert[6:], 1800)
	prefix := netip.MustParseAddr("2001:db8:77::").As16() // 4.6.2
	advert = append(advert, 3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0)
	advert = append(advert, prefix[:]...)
	allNodes := &unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16(), ZoneId: uint32(router.Index)}
	eventually.True(tb, "the router advertisement to be taken", func() bool {
		if err := unix.Sendto(fd, advert, 0, allNodes); err != nil {
			tb.Log(err) // it has no address yet
		}
		return byRouter(tb) != ""
	})
}

// byRouter returns the default route that a router advertised.
func byRouter(tb testing.TB) string {
	tb.Helper()
	return strings.Join(netns.IP(tb, "-6", "route", "show", "default", "proto", "ra"), " ")
}

func expectSysctls(tb testing.TB, want map[string]int) {
	tb.Helper()
	for name, v := range want {
		if got, err := rtnl.ReadSysctl(name); err != nil || got != v {
			tb.Errorf("sysctl %s: %d, %v; want %d", name, got, err, v)
		}
	}
}

// TestKeepsAdvertisedRoutes: a host does not lose its own IPv6 default route because of its workloads.
func TestKeepsAdvertisedRoutes(t *testing.T) {
	netns.Host(t, func() {
		advertise(t)
		var log bytes.Buffer
		h, err := New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()

		v4 := wire(t, 1, netip.MustParseAddr("10.65.0.1"))
		mustApply(t, h, v4.endpoint)
		if byRouter(t) == "" {
			t.Error("an IPv4 workload took the host's IPv6 default route away")
		}
		expectSysctls(t, map[string]int{"ipv6/conf/up0/accept_ra": 1, "ipv6/conf/all/forwarding": 0, "ipv6/conf/cali1/forwarding": 0, "ipv6/conf/cali1/accept_ra": 0})

		v6 := wire(t, 2)
		for range 2 {
			mustApply(t, h, v4.endpoint, v6.endpoint)
		}
		if byRouter(t) == "" {
			t.Error("an IPv6 workload took the host's IPv6 default route away")
		}
		netns.IP(t, "link", "add", "late0", "type", "veth", "peer", "name", "late1")
		expectSysctls(t, map[string]int{
			"ipv6/conf/all/forwarding": 1, "ipv6/conf/cali2/forwarding": 1,
			"ipv6/conf/up0/accept_ra": 2, "ipv6/conf/late0/accept_ra": 2,
			"ipv6/conf/router0/accept_ra": 0, "ipv6/conf/cali2/accept_ra": 0, "ipv6/conf/lo/accept_ra": 1,
		})
		if got := strings.Count(log.String(), "router advertisements"); got != 1 || !strings.Contains(log.String(), "up0") {
			t.Errorf("said %d times:\n%s", got, &log)
		}
	})
}

// TestRepairKeepsAdvertisedRoutes: forwarding that is switched on for one workload's link alone would end those routes as well.
func TestRepairKeepsAdvertisedRoutes(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		mustApply(t, h, a.endpoint)
		netns.SetSysctl(t, "ipv6/conf/default/forwarding", "0")
		netns.SetSysctl(t, "ipv6/conf/default/accept_ra", "1")
		advertise(t)
		expectSysctls(t, map[string]int{"ipv6/conf/up0/accept_ra": 1, "ipv6/conf/up0/forwarding": 0})
		b := wire(t, 2)
		mustApply(t, h, a.endpoint, b.endpoint)
		if byRouter(t) == "" {
			t.Error("another workload took the host's IPv6 default route away")
		}
		expectSysctls(t, map[string]int{"ipv6/conf/up0/accept_ra": 2, "ipv6/conf/up0/forwarding": 0, "ipv6/conf/cali2/forwarding": 1})
	})
}

// TestLeavesRefusedAdvertisements: if another program has switched forwarding on already, links that accept no advertisements stay so.
func TestLeavesRefusedAdvertisements(t *testing.T) {
	netns.Host(t, func() {
		netns.IP(t, "link", "add", "up0", "type", "veth", "peer", "name", "router0")
		netns.SetSysctl(t, "ipv6/conf/up0/accept_ra", "1")
		netns.SetSysctl(t, "ipv6/conf/all/forwarding", "1")
		mustApply(t, newHostPath(t), wire(t, 1).endpoint)
		expectSysctls(t, map[string]int{"ipv6/conf/up0/accept_ra": 1, "ipv6/conf/default/accept_ra": 1})
	})
}
