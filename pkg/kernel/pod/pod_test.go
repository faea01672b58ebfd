// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/test/netns"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestConfigurePod(t *testing.T) {
	tests := []struct {
		name                   string
		net                    Net
		addrs, routes, sysctls []string
	}{
		{
			name:    "IPv4",
			net:     Net{Addrs: addrs("10.0.0.1"), DefaultV4: true},
			addrs:   []string{"10.0.0.1/32"},
			routes:  []string{"0.0.0.0/0 169.254.1.1", "169.254.1.1/32 invalid IP"},
			sysctls: []string{"ipv4/ip_forward=0"},
		},
		{
			name:    "IPv6, forwarding",
			net:     Net{Addrs: addrs("fd00::1"), DefaultV6: true, IPForward: true},
			addrs:   []string{"fd00::1/128"},
			routes:  []string{"::/0 fe80::ecee:eeff:feee:eeee"},
			sysctls: []string{"ipv6/conf/all/forwarding=1"},
		},
		{
			name: "both, forwarding, routes instead of the default",
			net: Net{Addrs: addrs("10.0.0.1", "10.0.0.2", "fd00::1"), IPForward: true, Routes: []Route{
				{Dst: netip.MustParsePrefix("10.9.0.0/16")},
				{Dst: netip.MustParsePrefix("10.8.0.7/16"), Gateway: netip.MustParseAddr("169.254.1.1")},
				{Dst: netip.MustParsePrefix("fd09::/64")},
			}},
			addrs: []string{"10.0.0.1/32", "10.0.0.2/32", "fd00::1/128"},
			routes: []string{"10.8.0.0/16 169.254.1.1", "10.9.0.0/16 169.254.1.1", "169.254.1.1/32 invalid IP",
				"fd09::/64 fe80::ecee:eeff:feee:eeee"},
			sysctls: []string{"ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1"},
		},
		{name: "nothing"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			netns.Host(t, func() {
				ns := newPod(t)
				// As a host's namespace, whose settings a new one may inherit.
				if err := ns.Enter(func() error { return setForwarding(!test.net.IPForward, true, true) }); err != nil {
					t.Fatal(err)
				}
				if _, _, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "net0"}); err != nil {
					t.Fatal(err)
				}
				test.net.IfName = "net0"
				for range 2 { // repeated
					if err := Configure(ns, test.net); err != nil {
						t.Fatal(err)
					}
				}
				state, err := Read(ns, "net0")
				if err != nil {
					t.Fatal(err)
				}
				var routes []string
				for _, r := range state.Routes {
					routes = append(routes, r.Dst.String()+" "+r.Gateway.String())
				}
				if diff := cmp.Diff(test.addrs, texts(state.Addrs)); diff != "" {
					t.Errorf("addresses (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.routes, routes); diff != "" {
					t.Errorf("routes (-want +got):\n%s", diff)
				}
				err = ns.Enter(func() error {
					for _, want := range test.sysctls {
						name, value, _ := strings.Cut(want, "=")
						got, err := os.ReadFile("/proc/sys/net/" + name)
						if err != nil || strings.TrimSpace(string(got)) != value {
							t.Errorf("sysctl %s: got %s, %v", want, got, err)
						}
					}
					l, err := link.Find("lo")
					if err != nil || !l.Up {
						t.Errorf("lo: %+v, %v", l, err)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				// Another handle, as CHECK or a second process has.
				other, err := OpenNamespace("/proc/self/fd/" + fdOf(ns))
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				if err := Configure(other, test.net); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestConfigurePodBeside adds a second link to a workload. The first one's routes stay, with the second or without.
func TestConfigurePodBeside(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		nets := make([]Net, 2)
		undo := make([]func() error, 2)
		for i := range nets {
			name := fmt.Sprintf("net%d", i)
			var err error
			if _, undo[i], err = CreateVeth(ns, Veth{HostName: "cali" + name, PodName: name}); err != nil {
				t.Fatal(err)
			}
			nets[i] = Net{
				IfName: name, Addrs: addrs(fmt.Sprintf("10.0.0.%d", i+1), fmt.Sprintf("fd00::%d", i+1)), DefaultV4: true, DefaultV6: true,
				Routes: []Route{{Dst: netip.MustParsePrefix("10.9.0.0/16")}, {Dst: netip.MustParsePrefix("fd09::/64")}},
			}
		}
		// metrics are those of the default routes and of another, IPv4's and IPv6's.
		metrics := func(name string) (out []uint32) {
			t.Helper()
			state, err := Read(ns, name)
			if err != nil {
				t.Fatal(err)
			}
			if len(state.Routes) != 5 {
				t.Errorf("%s: routes %v", name, state.Routes)
			}
			for _, family := range families() {
				err := ns.eachRoute(family, 0, func(r rtnl.Route) {
					if r.Index == state.Index && r.Gateway.IsValid() {
						out = append(out, r.Metric)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			return out
		}
		first := []uint32{0, 0, 1024, 1024}
		for _, which := range []int{0, 1, 1, 0} { // made, and made again
			if err := Configure(ns, nets[which]); err != nil {
				t.Fatal(err)
			}
			if got := metrics("net0"); !slices.Equal(got, first) {
				t.Errorf("net0's metrics %v", got)
			}
		}
		if got := metrics("net1"); slices.Min(got) <= 1024 {
			t.Errorf("net1's metrics %v", got)
		}
		if err := undo[1](); err != nil {
			t.Fatal(err)
		}
		if got := metrics("net0"); !slices.Equal(got, first) {
			t.Errorf("net0's metrics %v when net1 is gone", got)
		}
	})
}

// TestConfigurePodThatIsDown: setting the link down removes its IPv6 addresses. They must be usable at once when it is up again.
func TestConfigurePodThatIsDown(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		if _, _, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "net0"}); err != nil {
			t.Fatal(err)
		}
		p := Net{IfName: "net0", Addrs: addrs("10.0.0.1", "fd00::1"), DefaultV4: true, DefaultV6: true}
		if err := Configure(ns, p); err != nil {
			t.Fatal(err)
		}
		want, err := Read(ns, "net0")
		if err != nil {
			t.Fatal(err)
		}
		if err := ns.conn.LinkSetDown(rtnl.Device(want.Index)); err != nil {
			t.Fatal(err)
		}
		later, err := OpenNamespace("/proc/self/fd/" + fdOf(ns))
		if err != nil {
			t.Fatal(err)
		}
		defer later.Close()
		if err := Configure(later, p); err != nil {
			t.Fatal(err)
		}
		got, err := Read(later, "net0")
		if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); err != nil || diff != "" {
			t.Errorf("%v, (-before +after):\n%s", err, diff)
		}
		all, err := later.conn.AddrList(rtnl.Device(want.Index), unix.AF_INET6)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if a.Flags&unix.IFA_F_NODAD == 0 || a.Flags&unix.IFA_F_TENTATIVE != 0 {
				t.Errorf("%s has flags %#x: it is not of use yet", a, a.Flags)
			}
		}
	})
}

func addrs(texts ...string) []netip.Addr {
	var as []netip.Addr
	for _, s := range texts {
		as = append(as, netip.MustParseAddr(s))
	}
	return as
}

func TestConfigurePodErrors(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		if _, _, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0", MTU: 1000}); err != nil {
			t.Fatal(err)
		}
		tests := []struct {
			net  Net
			want string
		}{
			{Net{IfName: "eth1"}, "file does not exist"},
			{Net{IfName: ""}, "not a name"},
			{Net{IfName: "eth0", Addrs: []netip.Addr{{}}}, "not an address"},
			{Net{IfName: "eth0", Addrs: addrs("::ffff:10.0.0.1")}, "not an address"},
			{Net{IfName: "eth0", Routes: []Route{{}}}, "not of one family"},
			{Net{IfName: "eth0", Routes: []Route{{Dst: netip.MustParsePrefix("10.0.0.0/8"), Gateway: netip.MustParseAddr("fe80::1")}}}, "not of one family"},
			{Net{IfName: "eth0", Routes: []Route{{Dst: netip.MustParsePrefix("10.0.0.0/8"), Gateway: netip.MustParseAddr("10.0.0.9")}}}, "add route to 10.0.0.0/8 by 10.0.0.9: network is unreachable"},
			{Net{IfName: "eth0", Addrs: addrs("fd00::1")}, "MTU"},
		}
		for _, test := range tests {
			err := Configure(ns, test.net)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ConfigurePod(%+v): %v; want %q", test.net, err, test.want)
			}
		}
		if _, err := Read(ns, "eth9"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("ReadPod: %v", err)
		}
	})
}
