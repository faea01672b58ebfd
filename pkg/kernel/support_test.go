// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/netns"
)

// wired is a pod with a veth to the host.
type wired struct {
	ns       *Namespace
	endpoint Endpoint
}

// wire makes pod number n, with addresses of both families.
func wire(tb testing.TB, n int) wired {
	tb.Helper()
	return wireAddrs(tb, n, netip.AddrFrom4([4]byte{10, 65, byte(n >> 8), byte(n)}),
		netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(n >> 8), 15: byte(n)}))
}

func wireAddrs(tb testing.TB, n int, addrs ...netip.Addr) wired {
	tb.Helper()
	ns := newPod(tb)
	name := fmt.Sprintf("cali%d", n)
	mac, undo, err := CreateVeth(ns, Veth{HostName: name, PodName: "eth0", MTU: 1450, Alias: "calico " + name})
	if err != nil {
		tb.Fatal(err)
	}
	net := PodNet{IfName: "eth0", Addrs: addrs}
	for _, a := range addrs {
		net.DefaultV4 = net.DefaultV4 || a.Is4()
		net.DefaultV6 = net.DefaultV6 || a.Is6()
	}
	if err := ConfigurePod(ns, net); err != nil {
		tb.Fatal(err)
	}
	_ = undo
	awaitSettled(tb, name)
	netns.Within(tb, ns.File, func() { awaitSettled(tb, "eth0") })
	return wired{ns, Endpoint{Interface: name, MAC: mac, Addrs: addrs, Active: true}}
}

// awaitSettled waits until the kernel has drawn the consequences of a link's going up,
// which it does from a work queue (linkwatch): until then it drops what is sent by it,
// and tells of a change more.
func awaitSettled(tb testing.TB, name string) {
	tb.Helper()
	for deadline := time.Now().Add(netns.Patience); ; time.Sleep(time.Millisecond) {
		l, err := link.Find(name)
		if err != nil {
			tb.Fatal(err)
		}
		if l.Running == l.Up {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s is up and has no carrier", name)
		}
	}
}

// newHostPath makes one in the current namespace, whose log goes to the test's.
func newHostPath(tb testing.TB) *HostPath {
	tb.Helper()
	h, err := NewHostPath(HostPathConfig{Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(h.Close)
	return h
}

// errorsOf is what of a report a test compares: interface: error text.
func errorsOf(r Report) map[string]string {
	m := make(map[string]string)
	for _, s := range r.Endpoints {
		m[s.Interface] = ""
		if s.Err != nil {
			m[s.Interface] = s.Err.Error()
		}
	}
	return m
}

// mustApply applies and expects everything to be programmed.
func mustApply(tb testing.TB, h *HostPath, desired ...Endpoint) Report {
	tb.Helper()
	r, err := h.Apply(context.Background(), desired)
	if err != nil {
		tb.Fatal(err)
	}
	mustBeProgrammed(tb, r)
	return r
}

func mustBeProgrammed(tb testing.TB, r Report) {
	tb.Helper()
	for _, s := range r.Endpoints {
		if s.Err != nil {
			tb.Errorf("%s: %v", s.Interface, s.Err)
		}
	}
	for _, p := range r.Problems {
		tb.Error(p)
	}
}

func mac(s string) model.MAC {
	m, err := model.ParseMAC(s)
	if err != nil {
		panic(err) // a test's own literal
	}
	return m
}
