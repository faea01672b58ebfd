// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// frames sends Ethernet frames from a space's end of the link.
type frames struct {
	tb      testing.TB
	fd      int
	to      *unix.SockaddrLinklayer
	mac     model.MAC
	hostMAC [6]byte
}

func newFrames(tb testing.TB, s space, hostMAC [6]byte) *frames {
	tb.Helper()
	f := &frames{tb: tb, mac: s.ep.MAC, hostMAC: hostMAC}
	s.do(func() {
		var err error
		if f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err != nil {
			tb.Fatal(err)
		}
		index := 0
		if _, err := fmt.Sscanf(run(tb, "ip", "-o", "link", "show", "dev", "eth0"), "%d:", &index); err != nil {
			tb.Fatal(err)
		}
		f.to = &unix.SockaddrLinklayer{Protocol: 0, Ifindex: index, Halen: 6}
	})
	tb.Cleanup(func() { _ = unix.Close(f.fd) })
	return f
}

func (f *frames) send(kind uint16, payload []byte) {
	f.tb.Helper()
	frame := append(append(f.hostMAC[:], f.mac[:]...), byte(kind>>8), byte(kind))
	if err := unix.Sendto(f.fd, append(frame, payload...), 0, f.to); err != nil {
		f.tb.Fatal(err)
	}
}

// icmpv6 sends a message of neighbour discovery: its type, the target, and an option with the MAC address.
func (f *frames) icmpv6(kind byte, from, to netip.Addr, target netip.Addr, withMAC bool) {
	body := []byte{kind, 0, 0, 0, 0, 0, 0, 0}
	option := byte(1) // source link-layer address
	if kind == 136 {
		body[4], option = 0x20, 2 // override; target link-layer address
	}
	if kind != 133 {
		body = append(body, target.AsSlice()...)
	}
	if withMAC {
		body = append(append(body, option, 1), f.mac[:]...)
	}
	f.ipv6(58, 2, from, to, body)
}

// ipv6 sends a packet, with the checksum at its place.
func (f *frames) ipv6(protocol byte, checksum int, from, to netip.Addr, body []byte) {
	f.tb.Helper()
	sum := uint32(len(body)) + uint32(protocol)
	for _, part := range [...][]byte{from.AsSlice(), to.AsSlice(), body} {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(body[checksum:], ^uint16(sum))
	head := []byte{0x60, 0, 0, 0, byte(len(body) >> 8), byte(len(body)), protocol, 255}
	f.send(unix.ETH_P_IPV6, append(append(append(head, from.AsSlice()...), to.AsSlice()...), body...))
}

// arp asks for an address, in another's name.
func (f *frames) arp(from, target netip.Addr) {
	body := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, f.mac[:]...)
	body = append(append(body, from.AsSlice()...), 0, 0, 0, 0, 0, 0)
	f.send(unix.ETH_P_ARP, append(body, target.AsSlice()...))
}

func random6(prefix string) netip.Addr {
	a := netip.MustParsePrefix(prefix).Addr().As16()
	binary.BigEndian.PutUint64(a[8:], rand.Uint64())
	return netip.AddrFrom16(a)
}

func random4() netip.Addr {
	return netip.AddrFrom4([4]byte{172, byte(16 + rand.IntN(16)), byte(rand.UintN(256)), byte(1 + rand.UintN(254))})
}

// TestDiscovery: a workload sends neighbour discovery, DHCPv6 and ARP in the names of thousands: the host, which has one neighbour table
// for all its interfaces, adds few entries. What workloads need of these protocols still works, and the host finds its own neighbours.
func TestDiscovery(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		pod, out := newSpace(t, 1, "cali1"), newSpace(t, 2, "eth0")
		own := ownAddrs(t)
		run(t, "ip", "route", "add", "default", "via", out.ep.Addrs[0].String(), "dev", "eth0", "onlink")
		run(t, "ip", "addr", "add", "fe80::1/64", "dev", "cali1", "nodad")
		for name, value := range map[string]string{
			"ipv4/conf/cali1/proxy_arp": "1", "ipv4/conf/cali1/rp_filter": "1", "ipv6/conf/cali1/proxy_ndp": "1", "ipv4/neigh/cali1/proxy_delay": "0",
			"ipv4/conf/all/rp_filter": "2", // as some distributions have it, which is less strict
		} {
			netns.SetSysctl(t, name, value)
		}
		if raw, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/forwarding"); err != nil || strings.TrimSpace(string(raw)) != "1" {
			t.Fatalf("the host doesn't forward: %q, %v", raw, err)
		}
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(pod.ep)})
		mustApply(t, f)
		entries := func(family string) int {
			return strings.Count(run(t, "ip", family, "neigh", "show", "dev", "cali1"), "\n")
		}
		const each = 150 // other tests of this machine have the table as well
		gateway, node, all := ip("fe80::1"), ip("ff02::1:ff00:1"), ip("ff02::2")
		frames := newFrames(t, pod, [6]byte{2, 1, 0, 0, 0, 1})
		for range each {
			for _, prefix := range [...]string{"fe80::/64", "2001:db8:1::/64", "fd00::/64"} {
				frames.icmpv6(135, random6(prefix), node, gateway, true)
				frames.icmpv6(135, random6(prefix), gateway, gateway, false)
				frames.icmpv6(133, random6(prefix), all, gateway, true)
				from := random6(prefix)
				frames.icmpv6(136, from, gateway, from, true)
			}
			frames.icmpv6(135, netip.IPv6Unspecified(), node, gateway, false)
			frames.ipv6(17, 6, random6("fe80::/64"), gateway, []byte{546 >> 8, 546 & 0xff, 547 >> 8, 547 & 0xff, 0, 9, 0, 0, 1})
			frames.arp(random4(), ip("169.254.1.1"))
			frames.arp(random4(), own[0])
		}
		// What is sent later by the same link arrives later: DAD is answered.
		answered(t, pod, frames, netip.IPv6Unspecified(), node, gateway)
		for _, family := range [...]string{"-4", "-6"} {
			if n := entries(family); n > 16 {
				t.Errorf("%d neighbours of the workload's interface in the host's table, of family %s", n, family)
			}
		}
		answered(t, pod, frames, pod.ep.Addrs[1], gateway, gateway)
		if n := count(t, spoofSource, "spoofed source"); n < each*6 {
			t.Errorf("%d packets counted as spoofed", n)
		}
		if n := count(t, "workload-link-local", "too many link-local addresses"); n < each*4-8 {
			t.Errorf("%d packets counted as from too many link-local addresses", n)
		}
		wantWrites(t, f, 0, 0)
		f.Audit()
		wantWrites(t, f, 0, 0)
		// A minute of solicitations, while the host asks for neighbours that it hasn't had yet, and the pod for its own needs.
		run(t, "ip", "addr", "add", "fd10::9/64", "dev", "eth0", "nodad")
		peer := func(i int) netip.Addr { return ip(fmt.Sprintf("fd10::1:%x", i)) }
		out.do(func() {
			run(t, "nft", "delete table inet quiet")
			for i := range 60 {
				run(t, "ip", "addr", "add", peer(i).String()+"/64", "dev", "eth0", "nodad")
			}
		})
		pod.do(func() {
			run(t, "nft", "delete table inet quiet")
			run(t, "ip", "neigh", "del", gateway.String(), "dev", "eth0")
			run(t, "ip", "addr", "add", "fd00::77/128", "dev", "eth0") // with DAD
		})
		for i := range 60 {
			for range 25 {
				frames.icmpv6(135, random6("fe80::/64"), gateway, gateway, true)
			}
			if pods.Ping(t, nil, peer(i)); t.Failed() {
				t.Fatalf("%d of 60 new neighbours answered the host before", i)
			}
		}
		if n := entries("-6"); n > 16 {
			t.Errorf("%d neighbours of the workload's interface in the host's table, after 1,500 solicitations", n)
		}
		pod.do(func() {
			eventually.True(t, "the pod to find its gateway", func() bool {
				sendUDP(t, netip.AddrPortFrom(pod.ep.Addrs[1], 99), netip.MustParseAddrPort("[fd10::9]:99"))
				return strings.Contains(run(t, "ip", "-6", "neigh", "show", "to", gateway.String(), "dev", "eth0"), " lladdr 02:01:00:00:00:01 ")
			})
			eventually.True(t, "the end of the pod's DAD", func() bool {
				return !strings.Contains(run(t, "ip", "-6", "addr", "show", "dev", "eth0"), "tentative")
			})
			if all := run(t, "ip", "-6", "addr", "show", "dev", "eth0"); strings.Contains(all, "dadfailed") {
				t.Errorf("the pod's DAD: %s", all)
			}
		})
	})
}

// answered sends a solicitation and waits for the advertisement.
func answered(tb testing.TB, s space, f *frames, from, to, target netip.Addr) {
	tb.Helper()
	fd := 0
	s.do(func() {
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, int(unix.ETH_P_IPV6>>8|unix.ETH_P_IPV6&0xff<<8)); err != nil {
			tb.Fatal(err)
		}
	})
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 1500)
	eventually.True(tb, "an advertisement to "+from.String(), func() bool {
		f.icmpv6(135, from, to, target, !from.IsUnspecified()) // what was sent before may have filled a queue
		for {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				return false
			}
			if n >= 78 && b[20] == 58 && b[54] == 136 && netip.AddrFrom16([16]byte(b[62:78])) == target {
				return true
			}
		}
	})
}

// TestDiscoveryAnew recreates a workload repeatedly with the same interface name, each time with another link-local address: it finds its
// gateway, and still adds few neighbours.
func TestDiscoveryAnew(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		f, gateway := open(t), ip("fe80::1")
		for i := range 12 {
			if i > 0 {
				run(t, "ip", "link", "del", "cali1")
			}
			pod := newSpace(t, 10+i, "cali1")
			pod.ep.Path, pod.ep.Interface = "/pod", "cali1"
			run(t, "ip", "addr", "add", "fe80::1/64", "dev", "cali1", "nodad")
			f.Update(policy.Changes{Endpoints: endpoints(pod.ep)})
			mustApply(t, f)
			frames := newFrames(t, pod, [6]byte{2, 1, 0, 0, 0, byte(10 + i)})
			own := random6("fe80::/64")
			answered(t, pod, frames, own, gateway, gateway)
			for range 30 {
				frames.icmpv6(135, random6("fe80::/64"), gateway, gateway, true)
			}
			answered(t, pod, frames, own, gateway, gateway)
			if n := strings.Count(run(t, "ip", "-6", "neigh", "show", "dev", "cali1"), "\n"); n > 16 {
				t.Errorf("%d neighbours of the workload's interface in the host's table", n)
			}
		}
	})
}
