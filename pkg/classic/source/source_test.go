// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/classic"
	"github.com/calico-go/calico/pkg/model"
)

func entries(t *testing.T, all map[string]string) []model.Entry {
	t.Helper()
	var out []model.Entry
	for path, text := range all {
		e := model.Entry{Path: path, Revision: 1, Created: 1}
		var err error
		if e.Key, err = model.ParseKey(path); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			e.Revision, e.Created = 0, 0
		} else {
			e.Value, e.Err = model.ParseValue(e.Key, []byte(text))
		}
		out = append(out, e)
	}
	return out
}

const (
	id      = "a935e8e1-008a-4e05-af4b-4b5701df417e"
	old     = "/calico/v1/host/old/workload/openstack/vm/endpoint/" + id
	pod     = "/calico/v1/host/new/workload/k8s/ns.pod/endpoint/eth0"
	rulesOf = "/calico/v1/policy/profile/%/rules"
	tagsOf  = "/calico/v1/policy/profile/%/tags"
)

func at(format, name string) string { return strings.Replace(format, "%", name, 1) }

var podID = EndpointID(model.WorkloadEndpointKey{Host: "new", Orchestrator: "k8s", Workload: "ns.pod", Endpoint: "eth0"})

func world(t *testing.T, more map[string]string) (classic.World, map[string]error) {
	t.Helper()
	s := New([]string{"old"}, "tap")
	all := map[string]string{
		old:                `{"state":"active","name":"tapa935e8e1-00","mac":"00:11:22:33:44:55","profile_ids":["web","db"],"ipv4_nets":["10.65.0.2/32"],"ipv4_gateway":"10.65.0.1","ipv6_nets":["fd00::2/128"]}`,
		pod:                `{"state":"active","name":"cali1","mac":"00:11:22:33:44:66","profile_ids":["db"],"ipv4_nets":["10.65.0.3/32"]}`,
		at(rulesOf, "web"): `{"inbound_rules":[{"action":"allow","protocol":"tcp","src_tag":"db","dst_ports":[80,"8000:8099"]}],"outbound_rules":[{"action":"allow"}]}`,
		at(rulesOf, "db"):  `{"inbound_rules":[],"outbound_rules":[]}`,
		at(tagsOf, "db"):   `["db"]`,
	}
	for path, text := range more {
		all[path] = text
	}
	s.Take(model.Update{Revision: 1, Resync: true, Entries: entries(t, all)})
	return s.World()
}

func TestWorld(t *testing.T) {
	w, problems := world(t, nil)
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	a := netip.MustParseAddr
	want := classic.World{
		Endpoints: map[string]map[string]classic.Endpoint{"old": {id: {
			ID: id, Interface: "tapa935e8e1-00", MAC: model.MAC{0, 0x11, 0x22, 0x33, 0x44, 0x55}, Enabled: true,
			Addrs: []classic.Addr{{Addr: a("10.65.0.2"), Gateway: a("10.65.0.1")}, {Addr: a("fd00::2")}},
		}}},
		Groups: map[string]classic.Group{
			GroupID("web"): {
				Rules: classic.Rules{
					Inbound: []classic.Rule{
						{Group: GroupID("db"), Protocol: model.ProtocolTCP, Port: model.Port{Min: 80, Max: 80}},
						{Group: GroupID("db"), Protocol: model.ProtocolTCP, Port: model.Port{Min: 8000, Max: 8099}},
					},
					Outbound: []classic.Rule{{CIDR: netip.MustParsePrefix("0.0.0.0/0")}, {CIDR: netip.MustParsePrefix("::/0")}},
				},
				Members: map[string][]netip.Addr{id: {a("10.65.0.2"), a("fd00::2")}},
			},
			GroupID("db"): {Members: map[string][]netip.Addr{id: {a("10.65.0.2"), a("fd00::2")}, podID: {a("10.65.0.3")}}},
		},
	}
	if diff := cmp.Diff(want, w, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestClosed has what these APIs can't express closed, and told.
func TestClosed(t *testing.T) {
	for name, c := range map[string]struct {
		more map[string]string
		says string
		in   []string // groups that the endpoint is in all the same
		n    int      // rules of web that are told, inbound
	}{
		"policy":       {map[string]string{"/calico/v1/policy/tier/default/policy/p": `{"selector":"all()","inbound_rules":[],"outbound_rules":[]}`}, "policy p selects it", nil, 2},
		"deny first":   {map[string]string{at(rulesOf, "web"): `{"inbound_rules":[{"action":"deny","src_net":"10.0.0.0/8"},{"action":"allow"}],"outbound_rules":[]}`}, "rule 0 of inbound denies", []string{"web"}, 0},
		"selector":     {map[string]string{at(rulesOf, "web"): `{"inbound_rules":[{"action":"allow","src_selector":"a=='b'"}],"outbound_rules":[]}`}, "it has a selector", []string{"web", "db"}, 0},
		"negated":      {map[string]string{at(rulesOf, "web"): `{"inbound_rules":[{"action":"allow","!src_net":"10.0.0.0/8"}],"outbound_rules":[]}`}, "it negates", []string{"web", "db"}, 0},
		"source port":  {map[string]string{at(rulesOf, "web"): `{"inbound_rules":[{"action":"allow","protocol":"tcp","src_ports":[80]}],"outbound_rules":[]}`}, "the port of who connects", []string{"web", "db"}, 0},
		"own address":  {map[string]string{at(rulesOf, "web"): `{"inbound_rules":[{"action":"allow","dst_net":"10.0.0.0/8"}],"outbound_rules":[]}`}, "the endpoint's own address", []string{"web", "db"}, 0},
		"tag and net":  {map[string]string{at(rulesOf, "web"): `{"inbound_rules":[{"action":"allow","src_tag":"db","src_net":"10.0.0.0/8"}],"outbound_rules":[]}`}, "a tag and networks", []string{"web", "db"}, 0},
		"icmp and tag": {map[string]string{at(rulesOf, "web"): `{"inbound_rules":[{"action":"allow","protocol":"icmp","src_tag":"db"}],"outbound_rules":[]}`}, "of one address family", []string{"web", "db"}, 0},
		"named port":   {map[string]string{at(rulesOf, "web"): `{"inbound_rules":[{"action":"allow","protocol":"tcp","dst_ports":["http"]}],"outbound_rules":[]}`}, "the named port http", []string{"web", "db"}, 0},
		"next tier":    {map[string]string{at(rulesOf, "web"): `{"inbound_rules":[{"action":"log"},{"action":"allow","src_net":"10.0.0.0/8"},{"action":"next-tier"},{"action":"allow"}],"outbound_rules":[]}`}, "", []string{"web", "db"}, 1},
		"one family":   {map[string]string{at(rulesOf, "web"): `{"inbound_rules":[{"action":"allow","protocol":"icmp"}],"outbound_rules":[]}`}, "", []string{"web", "db"}, 1},
		"unreadable":   {map[string]string{at(rulesOf, "web"): `{`}, "", []string{"web"}, 0},
		"other prefix": {map[string]string{old: `{"state":"active","name":"cali1","mac":"00:11:22:33:44:55","profile_ids":["web"],"ipv4_nets":["10.65.0.2/32"]}`}, "does not begin with tap", nil, 2},
		"no MAC":       {map[string]string{old: `{"state":"active","name":"tap1","profile_ids":["web"],"ipv4_nets":["10.65.0.2/32"]}`}, "it has no MAC address", nil, 2},
	} {
		w, problems := world(t, c.more)
		if got := fmt.Sprint(problems); c.says == "" && len(problems) > 0 || !strings.Contains(got, c.says) {
			t.Errorf("%s: problems %q, want %q", name, got, c.says)
		}
		for _, g := range []string{"web", "db"} {
			_, in := w.Groups[GroupID(g)].Members[id]
			want := false
			for _, s := range c.in {
				want = want || s == g
			}
			if in != want {
				t.Errorf("%s: in group %s: %t, want %t", name, g, in, want)
			}
		}
		if n := len(w.Groups[GroupID("web")].Rules.Inbound); len(c.in) > 0 && n != c.n {
			t.Errorf("%s: %d rules, want %d", name, n, c.n)
		}
	}
}

func TestIDs(t *testing.T) {
	k := model.WorkloadEndpointKey{Host: "a", Orchestrator: "k8s", Workload: "ns.pod", Endpoint: "eth0"}
	first := EndpointID(k)
	if !isUUID(first) || first[14] != '5' {
		t.Errorf("%s is no UUID of version 5", first)
	}
	if k.Host = "b"; EndpointID(k) != first {
		t.Error("an endpoint that moves has another ID")
	}
	if k.Workload = "ns.other"; EndpointID(k) == first {
		t.Error("two endpoints have one ID")
	}
	if GroupID(id) != id || GroupID("web") == GroupID("db") {
		t.Error("groups are called wrong")
	}
}
