// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/google/go-cmp/cmp"
)

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

// TestLinkLocalRoutes: each host end reaches its own workload's link-local address.
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
		a, b := wire(t, 1, netip.MustParseAddr("10.65.0.1")), wire(t, 2, netip.MustParseAddr("10.65.0.2"))
		mustApply(t, h, a.endpoint, b.endpoint)
		pods.Echo(t, a.ns, b.ns, b.endpoint.Addrs[0])

		ns := pods.New(t)
		if _, _, err := pod.CreateVeth(ns, pod.Veth{HostName: "cali3", PodName: "eth0"}); err != nil {
			t.Fatal(err)
		}
		err := pod.Configure(ns, pod.Net{IfName: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("fd00::3")}, DefaultV6: true})
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

// TestPodWithoutIPv6: runtimes turn IPv6 off in a new namespace; a workload with an IPv6 address needs it.
func TestPodWithoutIPv6(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		ns := pods.New(t)
		err := ns.Enter(func() error {
			return errors.Join(rtnl.WriteSysctl("ipv6/conf/all/disable_ipv6", "1"), rtnl.WriteSysctl("ipv6/conf/default/disable_ipv6", "1"))
		})
		if err != nil {
			t.Fatal(err)
		}
		podMAC, _, err := pod.CreateVeth(ns, pod.Veth{HostName: "cali2", PodName: "eth0"})
		if err != nil {
			t.Fatal(err)
		}
		addr := netip.MustParseAddr("fd00::2")
		if err := pod.Configure(ns, pod.Net{IfName: "eth0", Addrs: []netip.Addr{addr}, DefaultV6: true}); err != nil {
			t.Fatal(err)
		}
		mustApply(t, h, a.endpoint, Endpoint{Interface: "cali2", MAC: podMAC, Addrs: []netip.Addr{addr}, Active: true})
		pods.Echo(t, a.ns, ns, addr)
		pods.Echo(t, ns, a.ns, netip.MustParseAddr("fd00::1"))
		state, err := pod.Read(ns, "eth0")
		if err != nil || len(state.LinkLocal) != 1 || state.LinkLocal[0].Addr() != rtnl.LinkLocal(podMAC) {
			t.Errorf("%+v, %v", state, err)
		}
	})
}
