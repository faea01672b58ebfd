// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netns"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// A fabric is one Ethernet; a host is a namespace on it.
type fabric struct {
	ns netns.NsHandle
}

type host struct {
	name   string
	v4, v6 netip.Addr
	ns     netns.NsHandle
}

// newNamespace makes a namespace that is removed with the test.
func newNamespace(tb testing.TB) netns.NsHandle {
	tb.Helper()
	var ns netns.NsHandle
	in(tb, netns.None(), func() error {
		var err error
		if ns, err = netns.New(); err != nil {
			return err
		}
		return exec.Command("ip", "link", "set", "lo", "up").Run()
	})
	tb.Cleanup(func() {
		if err := ns.Close(); err != nil {
			tb.Error(err)
		}
	})
	return ns
}

// in calls fn on a thread that is in ns; None is the test's own namespace.
func in(tb testing.TB, ns netns.NsHandle, fn func() error) {
	tb.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := error(nil)
		if ns.IsOpen() {
			err = netns.Set(ns)
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
}

// ip runs iproute2 in a namespace.
func ip(tb testing.TB, ns netns.NsHandle, args string) {
	tb.Helper()
	in(tb, ns, func() error {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	})
}

// counter reads one of the kernel's counters of a namespace, such as TcpActiveOpens.
func counter(tb testing.TB, ns netns.NsHandle, name string) (n int) {
	tb.Helper()
	in(tb, ns, func() error {
		out, err := exec.Command("nstat", "-asz", name).Output()
		if err != nil {
			return fmt.Errorf("nstat: %w", err)
		}
		_, err = fmt.Sscanf(string(out), "#kernel\n"+name+"%d", &n)
		return err
	})
	return n
}

func newFabric(tb testing.TB) *fabric {
	tb.Helper()
	f := &fabric{ns: newNamespace(tb)}
	ip(tb, f.ns, "link add br0 type bridge")
	ip(tb, f.ns, "link set br0 up")
	return f
}

// twoHosts returns two hosts and their desired states: they are each other's neighbours.
func twoHosts(tb testing.TB) (a, b *host, da, db Desired) {
	tb.Helper()
	f := newFabric(tb)
	a, b = f.host(tb, 1), f.host(tb, 2)
	da, db = a.desired(), b.desired()
	a.meets(da, b)
	b.meets(db, a)
	return a, b, da, db
}

// host makes host n, with the addresses 10.0.0.n and fd00::n.
func (f *fabric) host(tb testing.TB, n int) *host {
	tb.Helper()
	h := &host{
		name: fmt.Sprintf("host-%d", n), ns: newNamespace(tb),
		v4: netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}),
		v6: netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(n >> 8), 15: byte(n)}),
	}
	ip(tb, h.ns, fmt.Sprintf("link add eth0 type veth peer name port%d", n))
	in(tb, h.ns, func() error {
		out, err := exec.Command("ip", "link", "set", fmt.Sprintf("port%d", n), "netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(f.ns))).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	ip(tb, f.ns, fmt.Sprintf("link set port%d master br0 up", n))
	ip(tb, h.ns, "link set eth0 up")
	ip(tb, h.ns, fmt.Sprintf("addr add %s/16 dev eth0", h.v4))
	ip(tb, h.ns, fmt.Sprintf("addr add %s/64 dev eth0 nodad", h.v6))
	return h
}

// becomes waits until got returns want.
func becomes[T any](tb testing.TB, what string, want T, got func() T) {
	tb.Helper()
	eventually.Nil(tb, what, func() error {
		if diff := cmp.Diff(want, got(), comparers()); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

func comparers() cmp.Option {
	return cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty()}
}

// learns returns what is learned as text: "10.1.0.0/26 via 10.0.0.2 from 10.0.0.2".
func (s *speaker) learns() []string {
	s.tb.Helper()
	var list []string
	for _, l := range s.look().Learned {
		text := l.Prefix.String()
		for _, p := range l.Paths {
			text += " via " + p.NextHop.String()
			if p.Peer != p.NextHop {
				text += " from " + p.Peer.String()
			}
			if p.Rank > 0 {
				text += fmt.Sprint(" rank ", p.Rank)
			}
		}
		list = append(list, text)
	}
	return list
}

// mustLearn waits until the speaker has learned exactly this.
func (s *speaker) mustLearn(want ...string) {
	s.tb.Helper()
	becomes(s.tb, s.name+" learns", want, s.learns)
}

// states returns the neighbours' states: "10.0.0.2 established".
func (s *speaker) states() []string {
	s.tb.Helper()
	var list []string
	for _, p := range s.look().Status {
		list = append(list, p.Address.String()+" "+p.State)
	}
	return list
}

func (s *speaker) mustBe(want ...string) {
	s.tb.Helper()
	becomes(s.tb, s.name+"'s sessions", want, s.states)
}

// peer returns the status of a neighbour.
func (s *speaker) peer(a netip.Addr) PeerStatus {
	s.tb.Helper()
	for _, p := range s.look().Status {
		if p.Address == a {
			return p
		}
	}
	s.tb.Fatalf("%s has no neighbour %s", s.name, a)
	return PeerStatus{}
}

// desired returns a host's state in AS 64512, with pools 10.1.0.0/16 and fd01::/48.
func (h *host) desired() Desired {
	return Desired{
		Speaker: plan.Speaker{
			AS: 64512, RouterID: h.v4, ListenPort: 179,
			// So long that no session ends because a process waits for the CPU.
			HoldTime: 90 * time.Second, KeepaliveTime: 30 * time.Second, RestartTime: 60 * time.Second,
			Import: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd01::/48")},
		},
		Neighbours:     make(map[netip.Addr]plan.Neighbour),
		Advertisements: make(map[netip.Prefix]plan.Advertisement),
	}
}

// meets adds the other host as a neighbour of the mesh, over IPv4.
func (h *host) meets(d Desired, other *host) plan.Neighbour {
	n := plan.Neighbour{Address: other.v4, AS: d.Speaker.AS, Local: h.v4, Kind: plan.FromMesh, Host: other.name, MaxPrefixes: 50000}
	d.Neighbours[n.Address] = n
	return n
}

// meets6 does the same over IPv6.
func (h *host) meets6(d Desired, other *host) plan.Neighbour {
	n := plan.Neighbour{Address: other.v6, AS: d.Speaker.AS, Local: h.v6, Kind: plan.FromMesh, Host: other.name, MaxPrefixes: 50000}
	d.Neighbours[n.Address] = n
	return n
}

// has adds advertisements.
func (h *host) has(d Desired, prefixes ...string) {
	for _, s := range prefixes {
		p := netip.MustParsePrefix(s)
		a := plan.Advertisement{Prefix: p, NextHop: h.v4}
		if p.Addr().Is6() {
			a.NextHop = h.v6
		}
		d.Advertisements[p] = a
	}
}

// filterList parses texts like "accept 10.0.0.0/8".
func filterList(list ...string) (filters []model.RouteFilter) {
	for _, s := range list {
		action, cidr, _ := strings.Cut(s, " ")
		filters = append(filters, model.RouteFilter{CIDR: netip.MustParsePrefix(cidr), Action: action})
	}
	return filters
}

// passwordFile writes a password for a neighbour.
func passwordFile(tb testing.TB, password string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "password")
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}
