// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/test/netns"
	"github.com/google/go-cmp/cmp"
)

func TestCreateVeth(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		before := netns.OfThread(t)
		want := mac("02:00:00:00:00:01")
		got, undo, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0", MTU: 1400, PodMAC: want, Alias: "calico net.box.eth0"})
		if err != nil || got != want {
			t.Fatal(got, err)
		}
		var l link.Link
		// That both ends are up is told a moment later (linkwatch).
		for deadline := time.Now().Add(netns.Patience); !l.Running && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if l, err = link.Find("cali1"); err != nil {
				t.Fatal(err)
			}
		}
		type facts struct {
			Alias, Kind, MAC string
			MTU              int
			Up, Running      bool
		}
		if diff := cmp.Diff(facts{"calico net.box.eth0", "veth", "ee:ee:ee:ee:ee:ee", 1400, true, true},
			facts{l.Alias, l.Kind, l.MAC.String(), l.MTU, l.Up, l.Running}); diff != "" {
			t.Errorf("host end (-want +got):\n%s", diff)
		}
		pod, err := ReadPod(ns, "eth0")
		if err != nil || pod.MAC != want || pod.MTU != 1400 || !pod.Up || pod.HostIndex != l.Index || l.Parent != pod.Index {
			t.Errorf("workload's end: %+v, %v", pod, err)
		}
		if diff := cmp.Diff([]string{"fe80::ff:fe00:1/64"}, texts(pod.LinkLocal)); diff != "" {
			t.Errorf("link-local of the workload's end (-want +got):\n%s", diff)
		}
		if got := strings.Join(netns.IP(t, "-6", "-o", "addr", "show", "dev", "cali1"), "\n"); !strings.Contains(got, "inet6 fe80::ecee:eeff:feee:eeee/128 scope link nodad") || strings.Contains(got, "tentative") {
			t.Errorf("addresses of the host end: %s", got)
		}
		if after := netns.OfThread(t); after != before {
			t.Errorf("the thread went from %s to %s", before, after)
		}
		if err := undo(); err != nil {
			t.Error(err)
		}
		if err := undo(); err != nil {
			t.Errorf("undone twice: %v", err)
		}
		if _, err := link.Find("cali1"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("host end after undo: %v", err)
		}
		if _, err := ReadPod(ns, "eth0"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("workload's end after undo: %v", err)
		}
	})
}

func texts[T fmt.Stringer](values []T) []string {
	var s []string
	for _, v := range values {
		s = append(s, v.String())
	}
	return s
}

func TestNamesTaken(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		if _, _, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0", Alias: "calico mine"}); err != nil {
			t.Fatal(err)
		}
		_, _, err := CreateVeth(newPod(t), Veth{HostName: "cali1", PodName: "eth0"})
		var exists *LinkExistsError
		if !errors.As(err, &exists) || exists.Link.Alias != "calico mine" || exists.Link.Kind != "veth" || !errors.Is(err, os.ErrExist) {
			t.Errorf("host end's name taken: %v", err)
		}
		_, _, err = CreateVeth(ns, Veth{HostName: "cali2", PodName: "eth0"})
		if errors.As(err, &exists) && exists.Link.Name == "cali2" || !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), "has an interface eth0 already") {
			t.Errorf("workload's end's name taken: %v", err)
		}
		if _, err := link.Find("cali2"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("half a veth was left: %v", err)
		}
	})
}

func TestBadVeth(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		before, err := link.List("") // a kernel with tunnels makes some itself
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []Veth{
			{HostName: "", PodName: "eth0"},
			{HostName: "cali1", PodName: ""},
			{HostName: "cali0123456789ab", PodName: "eth0"},
			{HostName: "cali/1", PodName: "eth0"},
			{HostName: "cali1", PodName: "eth 0"},
			{HostName: "cali1", PodName: "eth0", MTU: -1},
			{HostName: "cali1", PodName: "eth0", MTU: 1 << 20},
			{HostName: "cali1", PodName: "eth0", Alias: strings.Repeat("x", 256)},
			{HostName: "cali1", PodName: "eth0", PodMAC: mac("01:00:00:00:00:01")},
			{HostName: "cali1", PodName: "lo"},
			{HostName: "lo", PodName: "eth0"},
			{HostName: "cali1", PodName: "eth%d"},
			{HostName: "cali1", PodName: "100%"},
			{HostName: "cali1", PodName: "all"},
			{HostName: "cali1", PodName: "default"},
		} {
			_, undo, err := CreateVeth(ns, v)
			if err == nil || undo != nil {
				t.Errorf("CreateVeth(%+v): %v", v, err)
			}
		}
		after, err := link.List("")
		if err != nil || len(after) != len(before) {
			t.Errorf("links left: %+v, %v", after, err)
		}
	})
}

// One of many that make the same link at once makes it; the others are told.
func TestCreateVethRace(t *testing.T) {
	netns.Host(t, func() {
		// Goroutines leave this thread: they enter the namespace themselves.
		here, err := rtnl.OpenNetns(rtnl.OwnNetns)
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		var wg sync.WaitGroup
		var mu sync.Mutex
		made := 0
		for range 8 {
			ns := newPod(t)
			wg.Go(func() {
				err := here.Enter(func() error {
					_, _, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0", Alias: "x"})
					return err
				})
				mu.Lock()
				defer mu.Unlock()
				var exists *LinkExistsError
				switch {
				case err == nil:
					made++
				case !errors.As(err, &exists):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if made != 1 {
			t.Errorf("%d made the link", made)
		}
	})
}

func TestDeleteLink(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		if _, _, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0"}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := link.Delete("cali1"); err != nil {
				t.Error(err)
			}
		}
		if _, err := ReadPod(ns, "eth0"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("workload's end: %v", err)
		}
		if err := link.Delete("lo"); err == nil {
			t.Error("lo was deleted")
		}
		if err := link.Delete("a/b"); err == nil {
			t.Error("no error for a bad name")
		}
	})
}

func TestHostLinks(t *testing.T) {
	netns.Host(t, func() {
		for i := range 3 {
			wire(t, i)
		}
		netns.IP(t, "link", "add", "other0", "type", "veth", "peer", "name", "other1")
		links, err := link.List("cali")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range links {
			got = append(got, l.Name+" "+l.Alias)
		}
		if diff := cmp.Diff([]string{"cali0 calico cali0", "cali1 calico cali1", "cali2 calico cali2"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Each host end reaches its own workload's link-local address.
func TestLinkLocalRoutes(t *testing.T) {
	netns.Host(t, func() {
		for i := range 3 {
			wire(t, i)
		}
		var got []string
		for _, line := range netns.IP(t, "-6", "route", "show", "fe80::/64") {
			fields := strings.Fields(line)
			got = append(got, strings.Join(fields[:min(3, len(fields))], " "))
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"fe80::/64 dev cali0", "fe80::/64 dev cali1", "fe80::/64 dev cali2"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestHostWithoutIPv6(t *testing.T) {
	netns.Host(t, func() {
		netns.SetSysctl(t, "ipv6/conf/all/disable_ipv6", "1")
		netns.SetSysctl(t, "ipv6/conf/default/disable_ipv6", "1")
		h := newHostPath(t)
		a, b := wireAddrs(t, 1, netip.MustParseAddr("10.65.0.1")), wireAddrs(t, 2, netip.MustParseAddr("10.65.0.2"))
		mustApply(t, h, a.endpoint, b.endpoint)
		echo(t, a.ns, b.ns, b.endpoint.Addrs[0])

		ns := newPod(t)
		if _, _, err := CreateVeth(ns, Veth{HostName: "cali3", PodName: "eth0"}); err != nil {
			t.Fatal(err)
		}
		err := ConfigurePod(ns, PodNet{IfName: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("fd00::3")}, DefaultV6: true})
		if err == nil || !strings.Contains(err.Error(), "IPv6 is disabled on the host") {
			t.Errorf("ConfigurePod: %v", err)
		}
		a.endpoint.Addrs = append(a.endpoint.Addrs, netip.MustParseAddr("fd00::1"))
		r, err := h.ApplySome(t.Context(), []Endpoint{a.endpoint}, nil)
		if err != nil || r.Endpoints[0].Err == nil || !strings.Contains(r.Endpoints[0].Err.Error(), "IPv6 is disabled on cali1") {
			t.Errorf("ApplySome: %+v, %v", r, err)
		}
	})
}

// Runtimes turn IPv6 off in a new namespace; a workload that is given an IPv6
// address needs it.
func TestPodWithoutIPv6(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		ns := newPod(t)
		err := ns.Enter(func() error {
			return errors.Join(rtnl.WriteSysctl("ipv6/conf/all/disable_ipv6", "1"), rtnl.WriteSysctl("ipv6/conf/default/disable_ipv6", "1"))
		})
		if err != nil {
			t.Fatal(err)
		}
		podMAC, _, err := CreateVeth(ns, Veth{HostName: "cali2", PodName: "eth0"})
		if err != nil {
			t.Fatal(err)
		}
		addr := netip.MustParseAddr("fd00::2")
		if err := ConfigurePod(ns, PodNet{IfName: "eth0", Addrs: []netip.Addr{addr}, DefaultV6: true}); err != nil {
			t.Fatal(err)
		}
		mustApply(t, h, a.endpoint, Endpoint{Interface: "cali2", MAC: podMAC, Addrs: []netip.Addr{addr}, Active: true})
		echo(t, a.ns, ns, addr)
		echo(t, ns, a.ns, netip.MustParseAddr("fd00::1"))
		state, err := ReadPod(ns, "eth0")
		if err != nil || len(state.LinkLocal) != 1 || state.LinkLocal[0].Addr() != rtnl.LinkLocal(podMAC) {
			t.Errorf("%+v, %v", state, err)
		}
	})
}
