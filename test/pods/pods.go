// SPDX-License-Identifier: Apache-2.0

// Package pods gives tests of the kernel's packages pods that have a veth to the host, and has these talk.
package pods

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/netns"
)

// A Pod has a veth to the host.
type Pod struct {
	Namespace *pod.Namespace
	Interface string    // of the host
	MAC       model.MAC // of its own end
	Addrs     []netip.Addr
}

// New makes a pod without anything.
func New(tb testing.TB) *pod.Namespace {
	tb.Helper()
	ns, err := pod.OpenNamespace("/proc/self/fd/" + strconv.Itoa(int(netns.New(tb).Fd())))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(ns.Close)
	return ns
}

// Path is one by which a pod's namespace can be opened again.
func Path(ns *pod.Namespace) string { return "/proc/self/fd/" + strconv.Itoa(int(ns.Fd())) }

// Wire makes pod number n, with these addresses; without any, it has one of each family.
func Wire(tb testing.TB, n int, addrs ...netip.Addr) Pod {
	tb.Helper()
	if len(addrs) == 0 {
		addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 65, byte(n >> 8), byte(n)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(n >> 8), 15: byte(n)})}
	}
	ns := New(tb)
	name := fmt.Sprintf("cali%d", n)
	mac, _, err := pod.CreateVeth(ns, pod.Veth{HostName: name, PodName: "eth0", MTU: 1450, Alias: "calico " + name})
	if err != nil {
		tb.Fatal(err)
	}
	net := pod.Net{IfName: "eth0", Addrs: addrs}
	for _, a := range addrs {
		net.DefaultV4 = net.DefaultV4 || a.Is4()
		net.DefaultV6 = net.DefaultV6 || a.Is6()
	}
	if err := pod.Configure(ns, net); err != nil {
		tb.Fatal(err)
	}
	AwaitSettled(tb, name)
	netns.Within(tb, ns, func() { AwaitSettled(tb, "eth0") })
	return Pod{ns, name, mac, addrs}
}

// AwaitSettled waits until the kernel has drawn the consequences of a link's going up,
// which it does from a work queue (linkwatch): until then it drops what is sent by it,
// and tells of a change more.
func AwaitSettled(tb testing.TB, name string) {
	tb.Helper()
	eventually.True(tb, name+" has a carrier where it is up", func() bool {
		l, err := link.Find(name)
		if err != nil {
			tb.Fatal(err)
		}
		return l.Running == l.Up
	})
}

func Uplink(tb testing.TB) {
	tb.Helper()
	netns.IP(tb, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	netns.IP(tb, "link", "set", "up0", "up")
	netns.IP(tb, "link", "set", "up1", "up")
	AwaitSettled(tb, "up0")
	netns.IP(tb, "addr", "add", "192.0.2.1/24", "dev", "up0")
	netns.IP(tb, "addr", "add", "2001:db8::1/64", "dev", "up0", "nodad")
	AwaitAddr(tb, netip.MustParseAddr("2001:db8::1"))
}

// AwaitAddr waits until an address that was just added can be named.
func AwaitAddr(tb testing.TB, a netip.Addr) {
	tb.Helper()
	c, err := rtnl.Dial()
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	eventually.True(tb, a.String()+" is local", func() bool {
		r, ok := c.Lookup(a, 0)
		return ok && r.Local
	})
}
