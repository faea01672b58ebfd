// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"golang.org/x/sys/unix"
)

func mustBeUnchanged(tb testing.TB, h *Path, want bool, after string) {
	tb.Helper()
	switch got, err := h.Unchanged(context.Background()); {
	case err != nil:
		tb.Errorf("after %s: %v", after, err)
	case got != want:
		tb.Errorf("after %s: unchanged is %t", after, got)
	}
}

func TestUnchanged(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		mustBeUnchanged(t, h, false, "nothing was applied")
		all := []Endpoint{a.endpoint, b.endpoint}
		mustApply(t, h, all...)
		mustBeUnchanged(t, h, false, "an Apply that wrote")
		mustApply(t, h, all...)
		mustBeUnchanged(t, h, true, "an Apply that found nothing to do")
		for _, broken := range append(slices.Concat(breakages(), settingsBroken(), behindTheBack(a.endpoint)),
			breakage{"other end down", func(tb testing.TB) {
				err := a.ns.Enter(func() error { netns.IP(tb, "link", "set", "eth0", "down"); return nil })
				if err != nil {
					tb.Fatal(err)
				}
				// The flag of the host's end changes at once, its state up to a second later (linkwatch).
				for deadline := time.Now().Add(netns.Patience); ; time.Sleep(time.Millisecond) {
					l, err := link.Find("cali1")
					if err != nil {
						tb.Fatal(err)
					}
					if !l.Running {
						return
					}
					if time.Now().After(deadline) {
						tb.Fatal("cali1 still runs")
					}
				}
			}},
			breakage{"link deleted", func(tb testing.TB) { netns.IP(tb, "link", "del", "cali2") }},
		) {
			broken.breakIt(t)
			mustBeUnchanged(t, h, false, broken.name)
			for range 2 {
				if _, err := h.Apply(context.Background(), all); err != nil {
					t.Fatal(err)
				}
			}
			mustBeUnchanged(t, h, true, broken.name+" and repair")
			// What the repair did to links is heard of by now: from here on an audit
			// believes what the kernel tells.
			if mustBeUnchanged(t, h, true, broken.name+", repair and audit"); h.told.Doubt {
				t.Errorf("after %s, repair and audit there is doubt", broken.name)
			}
		}
	})
}

func TestUnchangedByOthers(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		for range 2 {
			mustApply(t, h, a.endpoint)
		}
		netns.IP(t, "route", "add", "10.9.9.9", "dev", "cali1")
		netns.IP(t, "neigh", "add", "10.9.9.9", "dev", "cali1", "lladdr", "02:00:00:00:00:09", "nud", "stale")
		mustBeUnchanged(t, h, true, "a route and a neighbour that are not ours")
		some := func(e Endpoint) {
			if _, err := h.ApplySome(context.Background(), []Endpoint{e}, nil); err != nil {
				t.Fatal(err)
			}
		}
		some(a.endpoint)
		mustBeUnchanged(t, h, true, "an ApplySome that found nothing to do")
		some(b.endpoint)
		mustBeUnchanged(t, h, false, "an ApplySome that wrote")
	})
}

// settingsBroken changes each sysctl that is looked at, one at a time.
func settingsBroken() []breakage {
	var ways []breakage
	eachSetting(func(name string, to int32) {
		ways = append(ways, breakage{name, func(tb testing.TB) { netns.SetSysctl(tb, name, fmt.Sprint(to)) }})
	})
	return ways
}

// eachSetting names each sysctl that is looked at, with a value that it should not have.
func eachSetting(change func(name string, to int32)) {
	for _, s := range settings4() {
		change("ipv4/conf/cali1/"+s.name, 1-s.value)
	}
	for _, s := range settings6() {
		change("ipv6/conf/cali1/"+s.name, 1-s.value)
	}
	change("ipv4/neigh/cali1/proxy_delay", 70)
	change("ipv6/neigh/cali1/proxy_delay", 70)
	change("ipv4/conf/all/forwarding", 0)
	change("ipv6/conf/all/forwarding", 0)
}

// behindTheBack takes away what the endpoint has in ways of which the kernel tells
// little: the state between two audits is as it was, or who changed it isn't told.
func behindTheBack(e Endpoint) []breakage {
	return []breakage{
		{"arp -d", func(tb testing.TB) { arp(tb, unix.SIOCDARP, e) }},
		{"arp -s temp", func(tb testing.TB) { arp(tb, unix.SIOCSARP, e) }},
		{"link down and up", func(tb testing.TB) {
			netns.IP(tb, "link", "set", "cali1", "down")
			netns.IP(tb, "link", "set", "cali1", "up")
			pods.AwaitSettled(tb, "cali1")
		}},
		{"IPv6 off and on", func(tb testing.TB) {
			netns.SetSysctl(tb, "ipv6/conf/cali1/disable_ipv6", "1")
			netns.SetSysctl(tb, "ipv6/conf/cali1/disable_ipv6", "0")
		}},
		{"another MAC address and back", func(tb testing.TB) {
			l, err := link.Find("cali1")
			if err != nil {
				tb.Fatal(err)
			}
			netns.IP(tb, "link", "set", "cali1", "address", "02:00:00:00:00:77")
			netns.IP(tb, "link", "set", "cali1", "address", l.MAC.String())
		}},
	}
}

// arp changes a permanent neighbour as arp(8) does, to one that is not.
func arp(tb testing.TB, request uintptr, e Endpoint) {
	tb.Helper()
	var r struct { // struct arpreq
		addr, mac [16]byte
		flags     int32
		mask      [16]byte
		link      [16]byte
	}
	const family, complete = 0, 2 // in struct sockaddr; ATF_COM
	r.addr[family], r.mac[family], r.flags = unix.AF_INET, unix.ARPHRD_ETHER, complete
	copy(r.addr[4:], e.Addrs[0].AsSlice())
	copy(r.mac[2:], e.MAC[:])
	copy(r.link[:], e.Interface)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&r))); errno != 0 {
		tb.Fatal(errno)
	}
}

// settledHost is a host with one endpoint whose audits believe what the kernel tells.
func settledHost(tb testing.TB) (*Path, Endpoint) {
	h := newHostPath(tb)
	a := wire(tb, 1)
	for range 2 {
		mustApply(tb, h, a.endpoint)
	}
	for range 2 {
		mustBeUnchanged(tb, h, true, "an Apply that found nothing to do")
	}
	if h.told.Doubt {
		tb.Error("there is doubt where nothing happened")
	}
	return h, a.endpoint
}

// A foreign route takes the place of ours: the kernel tells of that one alone.
func TestUnchangedReplaced(t *testing.T) {
	netns.Host(t, func() {
		h, _ := settledHost(t)
		netns.IP(t, "route", "replace", "10.65.0.1", "dev", "lo", "scope", "link")
		mustBeUnchanged(t, h, false, "a foreign route took the place of ours")
	})
}

// Where the kernel is told not to tell of IPv6 routes that go with a link, it tells of
// the addresses and neighbours that do.
func TestUnchangedUntold(t *testing.T) {
	netns.Host(t, func() {
		netns.SetSysctl(t, "ipv6/route/skip_notify_on_dev_down", "1")
		h, _ := settledHost(t)
		netns.SetSysctl(t, "ipv6/conf/cali1/disable_ipv6", "1")
		netns.SetSysctl(t, "ipv6/conf/cali1/disable_ipv6", "0")
		mustBeUnchanged(t, h, false, "IPv6 was off for a moment")
	})
}

// What the kernel drops because nobody reads is not taken for nothing.
func TestUnchangedLost(t *testing.T) {
	netns.Host(t, func() {
		h, e := settledHost(t)
		other, err := rtnl.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		l, err := link.Get(other, 0, e.Interface)
		if err != nil {
			t.Fatal(err)
		}
		stranger := netip.MustParseAddr("10.9.9.9")
		var requests []*rtnl.Message
		for range 4 * rtnl.JournalBuffer / 1000 { // a notice takes most of 1,000 bytes
			add := rtnl.NewMessage(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, rtnl.NeighBody(unix.AF_INET, l.Index, unix.NUD_STALE, 0))
			add.AttrAddr(unix.NDA_DST, stranger)
			mac := model.MAC{2}
			add.Attr(unix.NDA_LLADDR, mac[:])
			requests = append(requests, add, rtnl.DeleteNeigh(l.Index, stranger))
		}
		flood := func() {
			t.Helper()
			if _, err := other.Do(requests...); err != nil {
				t.Fatal(err)
			}
		}
		flood()
		netns.IP(t, "route", "del", "10.65.0.1") // the notice of this is lost
		mustBeUnchanged(t, h, false, "a notice was lost")
		for range 2 {
			mustApply(t, h, e)
		}
		mustBeUnchanged(t, h, true, "a lost notice and repair")
		flood()
		if mustBeUnchanged(t, h, true, "notices were lost of what doesn't matter"); h.told.Doubt {
			t.Error("there is doubt after all was read")
		}
	})
}
