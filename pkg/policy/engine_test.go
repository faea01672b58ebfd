// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// describe puts changes into lines that a test can state.
func describe(c Changes) []string {
	var out []string
	for path, ep := range c.Endpoints {
		short := strings.TrimSuffix(path, "/endpoint/eth0")
		short = short[strings.LastIndex(short, "/")+1:]
		if ep == nil {
			out = append(out, short+" gone")
			continue
		}
		line := fmt.Sprintf("%s on %q", short, ep.Interface)
		if ep.Dropped != "" {
			line += " dropped: " + ep.Dropped
		}
		for i, n := range ep.NAT {
			if i == 0 {
				line += ", NAT"
			}
			line += " " + n.ExtIP.String()
		}
		for _, l := range []struct {
			what string
			ids  []RulesID
		}{{"in", ep.Inbound.Policies}, {"out", ep.Outbound.Policies}, {"raw in", ep.UntrackedInbound}, {"raw out", ep.UntrackedOutbound}, {"pre-DNAT", ep.PreDNAT}, {"forward in", ep.ForwardInbound.Policies}, {"forward out", ep.ForwardOutbound.Policies}, {"profiles", ep.Inbound.Profiles}} {
			if len(l.ids) > 0 {
				line += ", " + l.what
			}
			for _, id := range l.ids {
				line += " " + strings.SplitN(id.String(), " ", 2)[1]
			}
			if l.what == "in" && len(ep.Inbound.Passing) > 0 {
				line += ", passing " + strings.Join(ep.Inbound.Passing, " ")
			}
		}
		out = append(out, line)
	}
	for id, r := range c.Rules {
		switch {
		case r == nil:
			out = append(out, fmt.Sprintf("%s %s gone", id.Kind, id.Name))
		case r.Invalid != "":
			out = append(out, fmt.Sprintf("%s %s invalid: %s", id.Kind, id.Name, r.Invalid))
		default:
			out = append(out, fmt.Sprintf("%s %s: %d+%d rules", id.Kind, id.Name, len(r.Inbound), len(r.Outbound)))
		}
	}
	for _, s := range c.Sets {
		line := s.Text
		switch {
		case s.Gone:
			line += " gone"
		case s.New:
			line += " new"
		}
		for _, m := range s.Added {
			line += " +" + m.String()
		}
		for _, m := range s.Removed {
			line += " -" + m.String()
		}
		if len(s.Nets) > 0 {
			line += fmt.Sprintf(" nets %v", s.Nets)
		}
		out = append(out, line)
	}
	if c.Pools != nil {
		out = append(out, fmt.Sprintf("pools %v masquerade %v", c.Pools.All, c.Pools.Masquerade))
	}
	slices.Sort(out)
	return out
}

// A step of a story: objects that change ("" = gone) and what Flush tells then.
type step struct {
	objects map[string]string
	want    []string
}

// TestStories goes on from base, changing objects one after the other.
func TestStories(t *testing.T) {
	pod := func(name, ip, more string) map[string]string {
		return map[string]string{"/calico/v1/host/h2/workload/k8s/" + name + "/endpoint/eth0": `{"state": "active", "name": "cali7", "ipv4_nets": ["` + ip + `/32"]` + more + `}`}
	}
	fromWeb := `{"selector": "role == 'db'", "types": ["inbound"], "inbound_rules": [{"src_selector": "role == 'web'"}]}`
	for name, story := range map[string][]step{
		"a set lives as long as a rule in use refers to it": {
			{map[string]string{pol + "a": strings.Replace(fromWeb, "'db'", "'elsewhere'", 1)}, nil},
			{map[string]string{pol + "a": fromWeb}, []string{
				`db on "cali2", in a, profiles send`, "policy a: 1+0 rules", `selector role == "web" new +10.0.0.1 +fd00::1`}},
			{pod("x", "10.0.1.9", `, "labels": {"role": "web"}`), []string{`selector role == "web" +10.0.1.9`}},
			{map[string]string{pol + "b": strings.Replace(fromWeb, "role == 'web'", "role=='web'", 1)}, []string{`db on "cali2", in a b, profiles send`, "policy b: 1+0 rules"}},
			{map[string]string{pol + "a": ""}, []string{`db on "cali2", in b, profiles send`, "policy a gone"}},
			{map[string]string{db: ""}, []string{"db gone", "policy b gone", "profile send gone", `selector role == "web" gone`}},
			{pod("x", "10.0.1.10", `, "labels": {"role": "web"}`), nil},
		},
		"members are counted": {
			{map[string]string{pol + "a": fromWeb}, []string{`db on "cali2", in a, profiles send`, "policy a: 1+0 rules", `selector role == "web" new +10.0.0.1 +fd00::1`}},
			{pod("x", "10.0.0.1", `, "labels": {"role": "web"}`), nil},
			{pod("x", "10.0.0.1", `, "labels": {"role": "was web"}`), nil},
			{pod("x", "10.0.0.1", `, "labels": {"role": "web"}`), nil},
			{map[string]string{web: ""}, []string{`selector role == "web" -fd00::1`, "web gone", "profile open gone"}},
			{pod("x", "", ""), []string{`selector role == "web" -10.0.0.1`}}, // invalid
		},
		"an endpoint that is inactive is still who it is": {
			{map[string]string{pol + "a": fromWeb}, []string{`db on "cali2", in a, profiles send`, "policy a: 1+0 rules", `selector role == "web" new +10.0.0.1 +fd00::1`}},
			{map[string]string{web: strings.Replace(base()[web], "active", "inactive", 1)}, []string{`web on "cali1" dropped: inactive`, "profile open gone"}},
		},
		"labels: its own over a later profile's over an earlier one's over tags": {
			{map[string]string{pol + "a": `{"selector": "role == 'db'", "types": ["inbound"], "inbound_rules": [{"src_selector": "x == '1'"}, {"src_selector": "x == '2'"}, {"src_selector": "x == ''"}, {"src_tag": "x"}]}`}, []string{
				`db on "cali2", in a, profiles send`, "policy a: 4+0 rules", `selector x == "" new`, `selector x == "1" new`, `selector x == "2" new`, "tag x new"}},
			{pod("x", "10.0.1.9", `, "profile_ids": ["p", "q"]`), nil},
			{map[string]string{prof + "p/tags": `["x"]`}, []string{`selector x == "" +10.0.1.9`, "tag x +10.0.1.9"}},
			{map[string]string{prof + "p/labels": `{"x": "1"}`}, []string{`selector x == "" -10.0.1.9`, `selector x == "1" +10.0.1.9`}},
			{map[string]string{prof + "q/labels": `{"x": "2"}`}, []string{`selector x == "1" -10.0.1.9`, `selector x == "2" +10.0.1.9`}},
			{pod("x", "10.0.1.9", `, "profile_ids": ["q", "p"]`), []string{`selector x == "1" +10.0.1.9`, `selector x == "2" -10.0.1.9`}},
			{pod("x", "10.0.1.9", `, "profile_ids": ["q", "p"], "labels": {"x": "3"}`), []string{`selector x == "1" -10.0.1.9`}},
			{map[string]string{prof + "p/tags": ""}, []string{"tag x -10.0.1.9"}},
		},
		"named ports": {
			{map[string]string{pol + "a": `{"selector": "role == 'db'", "types": ["outbound"], "outbound_rules": [{"protocol": "tcp", "dst_ports": ["http", 80]}]}`}, []string{
				`db on "cali2", out a, profiles send`, "policy a: 0+1 rules", "port http new +10.0.0.1,tcp:8080 +fd00::1,tcp:8080"}},
			{pod("x", "10.0.0.1", `, "ports": [{"name": "http", "protocol": "tcp", "port": 8080}, {"name": "http", "protocol": "udp", "port": 80}]`), []string{"port http +10.0.0.1,udp:80"}},
			{map[string]string{web: strings.Replace(base()[web], "8080", "8081", 1)}, []string{"port http +10.0.0.1,tcp:8081 +fd00::1,tcp:8081 -fd00::1,tcp:8080"}},
		},
		"network sets": {
			{map[string]string{pol + "a": fromWeb}, []string{`db on "cali2", in a, profiles send`, "policy a: 1+0 rules", `selector role == "web" new +10.0.0.1 +fd00::1`}},
			{map[string]string{netset + "one": `{"nets": ["192.0.2.0/24", "10.0.0.0/8"], "labels": {"role": "web"}}`}, []string{`selector role == "web" nets [10.0.0.0/8 192.0.2.0/24]`}},
			{map[string]string{netset + "two": `{"nets": ["10.1.0.0/16", "192.0.2.0/24", "::/0", "2001:db8::/32"], "labels": {"role": "web"}}`}, []string{`selector role == "web" nets [10.0.0.0/8 192.0.2.0/24 ::/0]`}},
			{map[string]string{netset + "three": `{"nets": ["10.0.0.0/8"], "labels": {"role": "db"}}`}, nil},
			{map[string]string{netset + "one": `{"nets": ["10.0.0.0/8"], "labels": {"role": "db"}}`}, []string{`selector role == "web" nets [10.1.0.0/16 192.0.2.0/24 ::/0]`}},
			{pod("x", "10.0.1.9", `, "labels": {"role": "web"}`), []string{`selector role == "web" +10.0.1.9 nets [10.1.0.0/16 192.0.2.0/24 ::/0]`}},
			{map[string]string{netset + "two": `{"nets": ["10.1.0.0/16"], "labels": {"role": "web"}}`}, []string{`selector role == "web" nets [10.1.0.0/16]`}},
			{map[string]string{netset + "two": `{"nets": ["x"], "labels": {"role": "web"}}`}, []string{`selector role == "web"`}}, // the former value isn't known here
			{map[string]string{netset + "two": `{"labels": {"role": "web"}}`}, nil},
		},
		"a namespace's network set has its namespace's labels, and no more of its own than it may": {
			{map[string]string{pol + "a": `{"selector": "role == 'db'", "types": ["inbound"], "inbound_rules": [{"src_selector": "calico/k8s_ns == 'shop' && k8s_ns/label/team == 'a'"},
				{"src_selector": "projectcalico.org/name == 'n' && projectcalico.org/kind == 'GlobalNetworkSet'"}, {"src_selector": "!has(role)"}, {"src_tag": "t"}]}`,
				prof + "k8s_ns.shop/tags": `["t"]`}, []string{`db on "cali2", in a, profiles send`, "policy a: 4+0 rules", `selector !has(role) new`, "tag t new",
				`selector calico/k8s_ns == "shop" && k8s_ns/label/team == "a" new`, `selector projectcalico.org/name == "n" && projectcalico.org/kind == "GlobalNetworkSet" new`}},
			{map[string]string{netset + "shop%2Fn": `{"nets": ["10.1.0.0/16"], "labels": {"role": "x"}}`}, nil},
			{map[string]string{prof + "k8s_ns.shop/labels": `{"k8s_ns/label/team": "a"}`}, []string{`selector calico/k8s_ns == "shop" && k8s_ns/label/team == "a" nets [10.1.0.0/16]`}},
			{map[string]string{netset + "n": `{"nets": ["10.2.0.0/16"], "labels": {"calico/k8s_ns": "shop", "k8s_ns/label/team": "a", "role": "x"}}`}, []string{
				`selector projectcalico.org/name == "n" && projectcalico.org/kind == "GlobalNetworkSet" nets [10.2.0.0/16]`}},
			{map[string]string{netset + "other%2Fn": `{"nets": ["10.3.0.0/16"], "labels": {"calico/k8s_ns": "shop", "k8s_ns/label/team": "a", "projectcalico.org/kind": "GlobalNetworkSet"}}`}, []string{
				`selector !has(role) nets [10.3.0.0/16]`}},
			{map[string]string{prof + "k8s_ns.shop/labels": ""}, []string{`selector calico/k8s_ns == "shop" && k8s_ns/label/team == "a"`}},
		},
		"policies pick no network set": {
			{map[string]string{pol + "a": `{"selector": "has(projectcalico.org/kind)", "inbound_rules": [{}]}`, netset + "n": `{"nets": ["10.0.0.1/32"]}`}, nil},
		},
		"host endpoints: by name, else address, lowest id first": {
			{map[string]string{"/calico/v1/host/h1/endpoint/b": `{"expected_ipv4_addrs": ["192.0.2.10"]}`}, []string{`b on "eth0"`}},
			{map[string]string{"/calico/v1/host/h1/endpoint/a": `{"name": "eth0"}`}, []string{`a on "eth0"`, `b on ""`}},
			{map[string]string{"/calico/v1/host/h1/endpoint/a": `{"name": "eth7"}`}, []string{`a on "eth7"`, `b on "eth0"`}},
			{map[string]string{"/calico/v1/host/h1/endpoint/c": `{"name": "cali7"}`}, []string{`c on ""`}},
			{map[string]string{"/calico/v1/host/h1/endpoint/a": "{}"}, []string{`a on "" dropped: invalid: want name, or at least one of expected_ipv4_addrs and expected_ipv6_addrs`}},
			{map[string]string{"/calico/v1/host/h1/endpoint/a": ""}, []string{"a gone"}},
		},
		"untracked policies are host endpoints'": {
			{map[string]string{pol + "raw": `{"selector": "", "untracked": true, "inbound_rules": [{}]}`}, nil},
			{map[string]string{uplink: `{"name": "eth0"}`}, []string{"policy raw: 1+0 rules", `uplink on "eth0", raw in raw, raw out raw`}},
			{map[string]string{uplink: `{"name": "*"}`}, []string{`uplink on "", raw in raw, raw out raw`}},
			{map[string]string{uplink: ""}, []string{"policy raw gone", "uplink gone"}},
		},
		"what two endpoints claim is the older one's": {
			{map[string]string{"/calico/v1/host/h1/workload/k8s/x/endpoint/eth0": `{"state": "active", "name": "cali1", "ipv4_nets": ["10.0.0.77/32"]}`}, []string{
				`x on "" dropped: interface cali1 belongs to an older endpoint, ` + web}},
			{map[string]string{web: ""}, []string{"profile open gone", "web gone", `x on "cali1"`}},
			{map[string]string{"/calico/v1/host/h1/workload/k8s/y/endpoint/eth0": `{"state": "active", "name": "eth3"}`}, []string{
				`y on "eth3" dropped: interface eth3: the name of a workload's interface begins with cali here`}},
		},
		"an ext_ip that two endpoints have is the older one's, and the newer is without": {
			{map[string]string{web: natted}, []string{`web on "cali1", NAT 192.0.2.77 192.0.2.66, profiles open`}},
			{map[string]string{"/calico/v1/host/h1/workload/k8s/x/endpoint/eth0": `{"state": "active", "name": "cali7", "ipv4_nets": ["10.0.0.77/32"], "ipv4_nat": [
				{"int_ip": "10.0.0.77", "ext_ip": "192.0.2.77"}, {"int_ip": "10.0.0.77", "ext_ip": "192.0.2.55"}]}`}, []string{`x on "cali7", NAT 192.0.2.55`}},
			{map[string]string{web: ""}, []string{"profile open gone", "web gone", `x on "cali7", NAT 192.0.2.77 192.0.2.55`}},
		},
		"an ext_ip that is a newer endpoint's own address is that one's": {
			{map[string]string{web: natted}, []string{`web on "cali1", NAT 192.0.2.77 192.0.2.66, profiles open`}},
			{map[string]string{"/calico/v1/host/h1/workload/k8s/x/endpoint/eth0": `{"state": "active", "name": "cali7", "ipv4_nets": ["192.0.2.77/32"]}`}, []string{`web on "cali1", NAT 192.0.2.66, profiles open`, `x on "cali7"`}},
			{map[string]string{"/calico/v1/host/h1/workload/k8s/x/endpoint/eth0": `{"state": "active", "name": "cali7", "ipv4_nets": ["192.0.2.88/32"]}`}, []string{`web on "cali1", NAT 192.0.2.77 192.0.2.66, profiles open`, `x on "cali7"`}},
		},
		"pools": {
			{map[string]string{"/calico/v1/ipam/v4/pool/10.3.0.0-16": `{"cidr": "10.3.0.0/16", "masquerade": true}`}, nil},
			{map[string]string{"/calico/v1/ipam/v4/pool/10.0.0.0-8": ""}, []string{"pools [10.3.0.0/16 172.16.0.0/12] masquerade [10.3.0.0/16]"}},
			{map[string]string{"/calico/v1/ipam/v4/pool/10.3.0.0-16": "7"}, []string{"pools [10.3.0.0/16 172.16.0.0/12] masquerade []"}},
		},
		"only what differs is told": {
			{base(), nil},
			{map[string]string{pol + "none": `{"selector": "role == 'nobody'"}`, "/calico/v1/config/x": "y", prof + "unused/rules": "{}"}, nil},
			{map[string]string{web: strings.Replace(base()[web], `"role": "web"`, `"role": "web", "new": "label"`, 1)}, nil},
			{map[string]string{prof + "open/rules": `{"inbound_rules": [{}, {}]}`}, []string{"profile open: 2+0 rules"}},
			{map[string]string{prof + "open/rules": "", prof + "open/tags": ""}, []string{"profile open invalid: it does not exist"}},
			{map[string]string{prof + "open/tags": `[]`}, []string{"profile open: 0+0 rules"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := stateOf(t, nil)
			for i, s := range story {
				created := int64(2 + i)
				for _, path := range slices.Sorted(maps.Keys(s.objects)) {
					entry := entryOf(t, path, s.objects[path])
					if _, old := base()[path]; entry.Exists() && !old {
						entry.Created = created
					}
					e.Update(entry)
				}
				slices.Sort(s.want)
				if diff := cmp.Diff(s.want, describe(e.Flush())); diff != "" {
					t.Fatalf("step %d, %v:\n%s", i, s.objects, diff)
				}
			}
		})
	}
}

func TestInvalid(t *testing.T) {
	e, _ := stateOf(t, map[string]string{
		web:                                 strings.Replace(base()[web], `["open"]`, `["open", "lost"]`, 1),
		remote:                              strings.Replace(base()[remote], `["open"]`, `["not ours"]`, 1),
		pol + "bad":                         `{"selector": "a ="}`,
		pol + "worse":                       `{"selector": "", "inbound_rules": [{"action": "fly"}]}`,
		pol + "a%2Fb":                       `{"selector": ""}`,
		pol + "a%2fb":                       `{"selector": ""}`,
		"/calico/v1/policy/tier/x/policy/y": `{"selector": ""}`,
		"/calico/v1/policy/tier/x/metadata": `{"order": "x"}`,
		"/calico/v1/host/h2/endpoint/z":     `7`,
	})
	e.Update(model.Entry{Path: "/calico/v1/strange", Err: model.ErrUnknownKey, Revision: 5})
	want := []string{
		"/calico/v1/host/h2/endpoint/z", pol + "a%2fb", pol + "bad", pol + "worse", "/calico/v1/policy/tier/x/metadata", prof + "lost/rules", "/calico/v1/strange",
	}
	slices.Sort(want)
	got := e.Invalid()
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Error(diff)
	}
	if text := got[prof+"lost/rules"].Error(); text != "profile lost does not exist, so it denies: create it, or take it out of "+web+"; those of Kubernetes, k8s_ns.* and ksa.*, are made by calico-controllers" {
		t.Error(text)
	}
	// What is put right is no longer told.
	for _, path := range want {
		e.Update(model.Entry{Path: path})
	}
	e.Update(entryOf(t, web, base()[web]))
	if got := e.Invalid(); len(got) > 0 {
		t.Error(got)
	}
}

func TestSetIDs(t *testing.T) {
	seen := map[SetID]bool{}
	for _, what := range []string{"selector", "tag", "port"} {
		for _, of := range []string{"a", "b", `a == "b"`, ""} {
			id := setID(what, of)
			if seen[id] || len(id) > 24 || strings.Trim(string(id), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
				t.Errorf("%s %s: %s", what, of, id)
			}
			seen[id] = true
		}
	}
}

func TestApplyErrors(t *testing.T) {
	a := []Member{{Addr: netip.MustParseAddr("10.0.0.1")}}
	for want, c := range map[string]*SetChange{
		"is gone, but was not there":          {Gone: true},
		"changes, but was not there":          {Added: a},
		"10.0.0.1 removed, but was not there": {New: true, Removed: a},
	} {
		if err := new(State).Apply(Changes{Sets: map[SetID]*SetChange{"s": c}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
	var st State
	if err := st.Apply(Changes{Sets: map[SetID]*SetChange{"s": {New: true, Added: a}}}); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]*SetChange{"is new, but was there": {New: true}, "10.0.0.1 added, but was there": {Added: a}} {
		if err := st.Apply(Changes{Sets: map[SetID]*SetChange{"s": c}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
}
