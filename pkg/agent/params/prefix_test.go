// SPDX-License-Identifier: Apache-2.0

package params

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
)

func TestCoversOwn(t *testing.T) {
	addr := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for _, tt := range []struct {
		name     string
		prefixes []string
		links    []hostnet.Role
		want     string // in the reason, "" = it may be
	}{
		{"none", []string{"tap"}, nil, ""},
		{"workloads", []string{"tap"}, []hostnet.Role{{Name: "tap1"}, {Name: "tap2"}}, ""},
		{"a link with an address", []string{"cali", "eth"}, []hostnet.Role{{Name: "cali1"}, {Name: "eth0", Addrs: addr}}, `"eth": eth0 begins so and is the host's own, as it has the address 192.0.2.1`},
		{"a link that leads to routers", []string{"e"}, []hostnet.Role{{Name: "eth0", Uplink: true}}, `"e": eth0 begins so and is the host's own, as it leads to the default route`},
		{"the loopback last", []string{"e", "l"}, []hostnet.Role{{Name: "lo", Loopback: true, Addrs: addr}, {Name: "eth0", Uplink: true}}, `"e": eth0 `},
		{"the loopback", []string{"lo"}, []hostnet.Role{{Name: "lo", Loopback: true}}, `"lo": lo begins so`},
		{"a tunnel of another name", []string{"ipip"}, []hostnet.Role{{Name: "ipip9", Tunnel: true}}, `"ipip": ipip9 begins so`},
		{"a tunnel that may come", []string{"tun"}, nil, `"tun": tunl0 begins so`},
		{"another", []string{"vxlan"}, nil, `"vxlan": vxlan-v6.calico begins so`},
		{"no tunnel", []string{"tunl1", "vxlan.calico2"}, nil, ""},
	} {
		err := coversOwn(tt.prefixes, tt.links)
		if got := problems.Reason(err); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestPrefixJudge: a prefix that is refused stays refused while it is set; one that isn't is checked again.
func TestPrefixJudge(t *testing.T) {
	var links []hostnet.Role
	var broken error
	a := newAdopter(t, Sources{})
	a.prefixes.roles = func([]string) ([]hostnet.Role, error) { return links, broken }
	own := []hostnet.Role{{Name: "eth0", Uplink: true}}
	for _, step := range []struct {
		name, global string
		links        []hostnet.Role
		broken       error
		changed      bool // at a review before it is adopted
		want         string
		problems     int
	}{
		{"the default is never refused", "cali", []hostnet.Role{{Name: "cali0", Uplink: true}}, nil, false, "cali", 0},
		{"nothing against it", "eth", nil, nil, false, "eth", 0},
		{"nothing new", "eth", nil, nil, false, "eth", 0},
		{"a link of the host's own came", "eth", own, nil, true, "cali", 1},
		{"it went", "eth", nil, nil, false, "cali", 1},
		{"the setting is another", "tap", own[:0], nil, false, "tap", 0},
		{"links can't be read any more", "tap", nil, errors.New("broken"), false, "tap", 0},
		{"and another is set", "veth", nil, errors.New("broken"), false, "cali", 1},
		{"they can again", "veth", nil, nil, true, "veth", 0},
		{"again the first", "eth", nil, nil, false, "eth", 0},
	} {
		links, broken = step.links, step.broken
		if changed := a.prefixes.review(); changed != step.changed {
			t.Errorf("%s: a verdict changed: %v", step.name, changed)
		}
		p, log := a.adopts(global("InterfacePrefix", step.global))
		if got := strings.Join(p.InterfacePrefixes, ","); got != step.want || a.problems.Count() != step.problems {
			t.Errorf("%s: %s, %d problems: want %s, %d\n%s", step.name, got, a.problems.Count(), step.want, step.problems, log)
		}
	}
}
