// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/agent/problems"
	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/model"
)

func TestCoversOwn(t *testing.T) {
	addr := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for _, tt := range []struct {
		name     string
		prefixes []string
		links    []kernel.LinkRole
		want     string // in the reason, "" = it may be
	}{
		{"none", []string{"tap"}, nil, ""},
		{"workloads", []string{"tap"}, []kernel.LinkRole{{Name: "tap1"}, {Name: "tap2"}}, ""},
		{"a link with an address", []string{"cali", "eth"}, []kernel.LinkRole{{Name: "cali1"}, {Name: "eth0", Addrs: addr}}, `"eth": eth0 begins so and is the host's own, as it has the address 192.0.2.1`},
		{"a link that leads to routers", []string{"e"}, []kernel.LinkRole{{Name: "eth0", Uplink: true}}, `"e": eth0 begins so and is the host's own, as it leads to the default route`},
		{"the loopback last", []string{"e", "l"}, []kernel.LinkRole{{Name: "lo", Loopback: true, Addrs: addr}, {Name: "eth0", Uplink: true}}, `"e": eth0 `},
		{"the loopback", []string{"lo"}, []kernel.LinkRole{{Name: "lo", Loopback: true}}, `"lo": lo begins so`},
		{"a tunnel of another name", []string{"ipip"}, []kernel.LinkRole{{Name: "ipip9", Tunnel: true}}, `"ipip": ipip9 begins so`},
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

// TestPrefixJudge: what is refused stays so while it is set, and what isn't is
// looked at again.
func TestPrefixJudge(t *testing.T) {
	var links []kernel.LinkRole
	var broken error
	a := newAdopter(t, Config{})
	a.prefixes.roles = func([]string) ([]kernel.LinkRole, error) { return links, broken }
	own := []kernel.LinkRole{{Name: "eth0", Uplink: true}}
	for _, step := range []struct {
		name, global string
		links        []kernel.LinkRole
		broken       error
		changed      bool // at a review before it is adopted
		want         string
		problems     int
	}{
		{"the default is never refused", "cali", []kernel.LinkRole{{Name: "cali0", Uplink: true}}, nil, false, "cali", 0},
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

// TestPrefixMisfit: prefixes that cover no endpoint are told of once, while there are endpoints.
func TestPrefixMisfit(t *testing.T) {
	a := newAdopter(t, Config{})
	none := []model.Entry{}
	taps := []model.Entry{
		put(testKey("b"), testSpec("tap2", "10.0.0.2"), 1), put(testKey("a"), testSpec("tap1", "10.0.0.1"), 2),
		put(testKey("0"), errors.New("bad"), 3), put(model.WorkloadEndpointKey{Host: "other", Orchestrator: "o", Workload: "w", Endpoint: "e"}, testSpec("cali1"), 4),
	}
	for _, step := range []struct {
		name     string
		prefixes string
		entries  []model.Entry
		told     bool
		logged   string
	}{
		{"no endpoints", "cali", none, false, ""},
		{"others' names", "cali", taps, true, "fits no endpoint"},
		{"still, with one less", "cali", taps[1:], true, ""},
		{"one of several prefixes", "cali,tap", taps, false, "in order again"},
		{"another", "veth", taps, true, "fits no endpoint"},
		{"all went", "veth", none, false, "in order again"},
	} {
		p, _ := a.adopts(append(step.entries[:len(step.entries):len(step.entries)], global("InterfacePrefix", step.prefixes))...)
		a.state.setPrefixes(p.InterfacePrefixes)
		a.log.Reset()
		a.sayMisfit(a.state.misfit())
		want := ""
		if step.told {
			want = "interface prefix " + step.prefixes + ": no endpoint of this host has an interface that begins so, and all are without access; the first, " +
				testKey("a").Path() + ", has tap1: want what the names of workloads' interfaces begin with"
		}
		got := ""
		for _, p := range a.problems.All() {
			got += p.Reason
		}
		if got != want || (a.log.Len() == 0) != (step.logged == "") || !strings.Contains(a.log.String(), step.logged) {
			t.Errorf("%s: %q, want %q\n%s", step.name, got, want, a.log.String())
		}
	}
}

// world is what lies behind a link of the host's own.
func (h *host) world(n int, link string, subnet string) *pod {
	h.Helper()
	w := h.newPod(n)
	net := netip.MustParsePrefix(subnet)
	w.spec.Name, w.spec.IPv4Nets = link, []netip.Prefix{netip.PrefixFrom(net.Addr().Next(), 32)}
	w.wire()
	h.ip("addr", "add", kernel.HostGateway().String()+"/32", "dev", link, "scope", "link")
	h.ip("addr", "add", subnet, "dev", link)
	return w
}

// TestInterfacePrefixLive: a prefix that covers the host's own links cuts off neither
// the host nor its workloads, whether the links were there before or come later.
func TestInterfacePrefixLive(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	ether := h.world(250, "ether0", "198.51.100.1/24")
	h.felix = map[string]string{"INTERFACEPREFIX": "ether"} // from the start
	stop := h.start()
	h.ready()
	first := h.addPod(1)
	invalid := func() string {
		_, body := h.fetch(h.health, "/debug/invalid")
		return body
	}
	well := func(what string, pods ...*pod) {
		t.Helper()
		for _, p := range pods {
			if err := p.ping(); err != nil {
				t.Errorf("%s: %s: %v\n%s", what, p.spec.Name, err, invalid())
			}
		}
	}
	if got := invalid(); !strings.Contains(got, "setting FELIX_INTERFACEPREFIX\n") || !strings.Contains(got, "ether0 begins so") || !strings.Contains(got, `used    "cali", default`) {
		t.Errorf("nothing is said of the environment's prefix:\n%s", got)
	}
	well("from the start", ether, first)
	stop()

	h.felix = nil
	h.start()
	h.ready()
	key := model.GlobalConfigKey{Name: "InterfacePrefix"}
	for _, prefix := range []string{"ether", "e", "cali,ether0", "lo", "l", "vxlan", "tunl"} {
		// Datagrams go on through the change.
		through := ether.flood(2 * time.Second)
		h.put(key, model.Text(prefix))
		h.until("report of "+prefix, func() bool {
			got := invalid()
			return strings.Contains(got, "setting "+key.Path()+"\n") && strings.Contains(got, `used    "cali", default`)
		})
		if _, err := through(); err != nil {
			t.Errorf("%s: the host's own link was closed: %v", prefix, err)
		}
		well(prefix, ether, first)
	}
	h.put(key, model.Text("cali,side"))
	h.until("the end of the report", func() bool { return !strings.Contains(invalid(), "setting /") })
	well("corrected", ether, first)

	// A link that comes later, and had no address at first.
	side := h.world(251, "side0", "203.0.113.1/24")
	h.until("report of it", func() bool { return strings.Contains(invalid(), "side0 begins so") })
	h.until("it passes", func() bool { return side.pingWithin(100*time.Millisecond) == nil })
	well("later", ether, first, side)
	h.ip("addr", "del", "203.0.113.1/24", "dev", "side0")
	h.ip("addr", "add", "203.0.113.1/24", "dev", "side0")
	well("its address gone and back", side)
	h.remove(key)
	h.until("the end of the report", func() bool { return !strings.Contains(invalid(), "setting /") })
	well("in the end", ether, first, side)
}
