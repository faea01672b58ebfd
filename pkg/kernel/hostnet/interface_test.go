// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

func TestHostInterfaces(t *testing.T) {
	netns.Host(t, func() {
		netns.IP(t, "link", "add", "eth0", "type", "veth", "peer", "name", "far0")
		netns.IP(t, "addr", "add", "192.0.2.1/24", "dev", "eth0")
		netns.IP(t, "addr", "add", "10.0.0.9/32", "dev", "eth0")
		netns.IP(t, "addr", "add", "fd00::9/64", "dev", "eth0", "nodad")
		netns.IP(t, "link", "add", "cali9", "type", "veth", "peer", "name", "tap9")
		netns.IP(t, "addr", "flush", "dev", "lo")
		netns.IP(t, "addr", "add", "192.0.2.2/32", "dev", "lo")
		got, err := Interfaces([]string{"cali", "tap"})
		if err != nil {
			t.Fatal(err)
		}
		got = slices.DeleteFunc(got, func(i Interface) bool {
			return i.Name != "eth0" && i.Name != "far0" && i.Name != "lo" && i.Name[:3] != "cal" && i.Name[:3] != "tap"
		})
		want := []Interface{
			{Name: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::9")}},
			{Name: "far0"},
			{Name: "lo", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}, Loopback: true},
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestSubscribeHost: changes of the host's own links and addresses are signalled, those of workloads' addresses aren't.
func TestSubscribeHost(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		netns.IP(t, "link", "add", "eth0", "type", "veth", "peer", "name", "far0")
		pods.Wire(t, 1)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		events, err := h.Subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"addr", "add", "192.0.2.1/24", "dev", "eth0"},
			{"addr", "del", "192.0.2.1/24", "dev", "eth0"},
			{"addr", "add", "fd00::9/64", "dev", "eth0"},
			{"link", "set", "eth0", "mtu", "1400"},
			{"link", "del", "eth0"},
		} {
			netns.IP(t, args...)
			eventually.Find(t, fmt.Sprintf("an event of ip %v", args), events, func(e hostpath.Event) bool { return e.Host })
		}
	})
}
