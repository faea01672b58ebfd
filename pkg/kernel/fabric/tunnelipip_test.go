// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/vishvananda/netlink"
)

func ipipTunnel() plan.Tunnel {
	return plan.Tunnel{Kind: plan.IPIP, Device: "tunl0", Local: netip.MustParseAddr("192.0.2.1"), Addr: netip.MustParseAddr("10.65.1.0"), MTU: 1480}
}

// TestIPIPSteps: the steps that a tunl0 needs. The test's kernel may have none.
func TestIPIPSteps(t *testing.T) {
	whats := func(want plan.Tunnel, have netlink.Iptun, alias string) (all []string) {
		p := &pass{Fabric: &Fabric{}}
		l := link.Link{Name: "tunl0", Kind: "ipip", MTU: 1480, Up: true, Alias: alias, Device: &have}
		for _, s := range p.steps(l, want, 0) {
			all = append(all, s.what)
		}
		return all
	}
	unspecified := netlink.Iptun{Local: net.IPv4zero, Remote: net.IPv4zero}
	other := ipipTunnel()
	other.MTU = 1400
	for _, c := range []struct {
		name  string
		have  netlink.Iptun
		alias string
		want  plan.Tunnel
		need  []string
	}{
		{"as desired", unspecified, link.TunnelAlias, ipipTunnel(), nil},
		{"the kernel's own", netlink.Iptun{}, "", ipipTunnel(), []string{"mark by its alias"}},
		{"another MTU", unspecified, link.TunnelAlias, other, []string{"set MTU 1400"}},
		{"bound", netlink.Iptun{Remote: net.IPv4(192, 0, 2, 9)}, link.TunnelAlias, ipipTunnel(), []string{"make it anew without local and remote address"}},
	} {
		if got := whats(c.want, c.have, c.alias); !slices.Equal(got, c.need) {
			t.Errorf("%s: %q, want %q", c.name, got, c.need)
		}
	}
}

// TestIPIPWhereThereIsNone: a kernel without IPIP is a problem, and the routes of other pools are programmed. A kernel with it holds the
// tunnel.
func TestIPIPWhereThereIsNone(t *testing.T) {
	netns.Host(t, func() {
		pods.Uplink(t)
		f := newFabric(t)
		dst := netip.MustParsePrefix("10.65.7.0/26")
		st := plan.State{Tunnels: []plan.Tunnel{ipipTunnel()}, Routes: map[netip.Prefix]plan.Route{dst: shapes(dst)["one hop"]}}
		r, err := f.Apply(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := link.Find("tunl0"); err == nil {
			noProblems(t, r)
		} else if len(r.Problems) != 1 || r.Problems[0].Subject != "tunl0" {
			t.Errorf("problems: %v", r.Problems)
		}
		if held := heldByFabric(t); len(held) != 1 {
			t.Errorf("routes: %q", held)
		}
	})
}
