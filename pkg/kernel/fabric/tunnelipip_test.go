// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func ipipTunnel() plan.Tunnel {
	return plan.Tunnel{Kind: plan.IPIP, Device: "tunl0", Local: netip.MustParseAddr("192.0.2.1"), Addr: netip.MustParseAddr("10.65.1.0"), MTU: 1480}
}

// The request for a tunl0 is, attribute by attribute, that of
// `ip link add tunl0 mtu 1480 type ipip`; numbers as in linux/if_link.h and
// linux/if_tunnel.h.
func TestIPIPEncoding(t *testing.T) {
	m := *newTunnel(ipipTunnel(), 0)
	got := hex.EncodeToString(m[unix.SizeofNlMsghdr+unix.SizeofIfInfomsg:])
	want := "0a000300" + "74756e6c30000000" + // IFLA_IFNAME "tunl0"
		"08000400" + "c8050000" + // IFLA_MTU 1480
		"24001280" + // IFLA_LINKINFO, nested
		"09000100" + "6970697000000000" + // IFLA_INFO_KIND "ipip"
		"14000280" + // IFLA_INFO_DATA, nested
		"05000900" + "04000000" + // IFLA_IPTUN_PROTO IPPROTO_IPIP
		"05000a00" + "01000000" // IFLA_IPTUN_PMTUDISC
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// ipipLink is the kernel's message about a tunl0.
func ipipLink(fill func(m *rtnl.Message)) []byte {
	m := rtnl.NewMessage(unix.RTM_NEWLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, 7, unix.IFF_UP, 0))
	m.AttrString(unix.IFLA_IFNAME, "tunl0")
	m.Attr32(unix.IFLA_MTU, 1480)
	fill(m)
	m.Nest(unix.IFLA_LINKINFO, func() {
		m.AttrString(unix.IFLA_INFO_KIND, "ipip")
		m.Nest(unix.IFLA_INFO_DATA, func() {
			m.Attr32(iptunLink, 0)
			m.AttrAddr(iptunLocal, netip.IPv4Unspecified())
			m.Attr8(iptunProto, 0)
		})
	})
	return (*m)[unix.SizeofNlMsghdr:]
}

func TestIPIPSteps(t *testing.T) {
	alias := func(m *rtnl.Message) { m.AttrString(unix.IFLA_IFALIAS, link.TunnelAlias) }
	whats := func(body []byte, want plan.Tunnel) []string {
		l, ok := parseTunnel(body)
		if !ok || l.Kind != "ipip" || l.local.IsValid() {
			t.Fatalf("parsed %v, %v", l, ok)
		}
		var all []string
		for _, s := range l.steps(want, 0) {
			all = append(all, s.what)
		}
		return all
	}
	other := ipipTunnel()
	other.MTU = 1400
	for _, c := range []struct {
		name string
		body []byte
		want plan.Tunnel
		need []string
	}{
		{"as desired", ipipLink(alias), ipipTunnel(), nil},
		{"the kernel's own", ipipLink(func(*rtnl.Message) {}), ipipTunnel(), []string{"mark by its alias"}},
		{"another MTU", ipipLink(alias), other, []string{"set MTU 1400"}},
	} {
		if got := whats(c.body, c.want); !slices.Equal(got, c.need) {
			t.Errorf("%s: %q, want %q", c.name, got, c.need)
		}
	}
}

// A kernel without IPIP says so, and the routes of other pools are not hindered.
// One that has it holds the tunnel.
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
