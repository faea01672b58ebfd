// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// logged counts the lines of the agent's log about a key.
func (r *rig) logged(what, path string) int {
	r.Helper()
	p, err := r.host.Agent().Process()
	if err != nil {
		r.Fatal(err)
	}
	text, err := os.ReadFile(p.Log)
	if err != nil {
		r.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, what) && strings.Contains(line, "key="+path) {
			n++
		}
	}
	return n
}

// TestBadInput writes what makes no sense. Each takes the safe side, is reported
// once, is over when it is right again, and disturbs nothing else.
func TestBadInput(t *testing.T) {
	long.Test(t)
	r := newHostileRig(t)
	web, client := r.pod("web", [2]string{"role", "web"}), r.pod("client", [2]string{"role", "client"})
	other := r.pod("other")
	rules := func(rule string) string {
		return `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [` + rule + `, {"action": "allow"}]}`
	}
	const good = `{"selector": "role == 'web'", "inbound_rules": [{"action": "allow"}], "outbound_rules": [{"action": "allow"}]}`
	long := strings.Repeat("x", 1<<20)
	const profileName = "calico-lab"
	for _, test := range []struct {
		name, path, value, good string
		reason                  string
		passes                  bool // what comes to web: the object says nothing about it
		still                   bool // what comes to the others
	}{
		{"malformed JSON", policyPath("bad"), `{"selector": "role == 'web'", "inbound_rules": [`, good, "end", true, true},
		{"no JSON at all", policyPath("bad"), "\x00\xff\xfe", good, "", true, true},
		{"rules of a wrong type", policyPath("bad"), `{"selector": "role == 'web'", "inbound_rules": "all"}`, good, "inbound_rules", false, true},
		{"an order of a wrong type", policyPath("bad"), `{"selector": "role == 'web'", "order": [], "inbound_rules": [{"action": "allow"}]}`, good, "order", false, true},
		{"an unknown action", policyPath("bad"), rules(`{"action": "permit"}`), good, "permit", false, true},
		{"ports of a protocol that has none", policyPath("bad"), rules(`{"action": "allow", "protocol": "icmp", "dst_ports": [80]}`), good, "dst_ports", false, true},
		{"ports without a protocol", policyPath("bad"), rules(`{"action": "allow", "dst_ports": [80]}`), good, "dst_ports", false, true},
		{"a port that is no port", policyPath("bad"), rules(`{"action": "allow", "protocol": "tcp", "dst_ports": [70000]}`), good, "dst_ports", false, true},
		{"types of ICMP for TCP", policyPath("bad"), rules(`{"action": "allow", "protocol": "tcp", "icmp_type": 8}`), good, "icmp_type", false, true},
		{"a criterion that nobody knows", policyPath("bad"), rules(`{"action": "allow", "src_tagg": "x"}`), good, "src_tagg", false, true},
		{"a network that is none", policyPath("bad"), rules(`{"action": "allow", "src_net": "10.0.0.300/8"}`), good, "src_net", false, true},
		{"a selector that doesn't parse", policyPath("bad"), `{"selector": "role = 'web'", "inbound_rules": []}`, good, "selector", true, true},
		{"a selector of 1 MB", policyPath("bad"), `{"selector": "role == '` + long + `'", "inbound_rules": []}`, good, "selector", true, true},
		{"a rule's selector of 1 MB", policyPath("bad"), rules(`{"action": "allow", "src_selector": "role == '` + long + `'"}`), good, "src_selector", false, true},
		{"a selector nested too deep", policyPath("bad"), `{"selector": "` + strings.Repeat("(", 100_000) + `", "inbound_rules": []}`, good, "selector", true, true},
		{"a profile of a wrong type", profilePath(profileName), `{"inbound_rules": {}}`, `{"inbound_rules": [{"action": "allow", "src_tag": "calico-lab"}], "outbound_rules": [{"action": "allow"}]}`, "inbound_rules", false, false},
		{"tags of a wrong type", "/calico/v1/policy/profile/" + profileName + "/tags", `{"calico-lab": true}`, `["calico-lab"]`, "list", false, false},
		{"labels of a wrong type", "/calico/v1/policy/profile/" + profileName + "/labels", `{"a": 1}`, `{"a": "1"}`, "a", false, false},
		{"a host endpoint of nothing", hostPath("bad"), `{"profile_ids": []}`, `{"name": "eth9", "profile_ids": []}`, "name", true, true},
		{"a pool of nothing", "/calico/v1/ipam/v4/pool/10.99.0.0-16", `{"cidr": "10.99.0.0/99"}`, `{"cidr": "10.99.0.0/16"}`, "cidr", true, true},
	} {
		before, warned := r.metric("calico_node_invalid_objects"), r.logged("is not acted upon", test.path)
		r.put(test.path, test.value)
		r.enforced()
		r.put(test.path, test.value) // nothing new
		r.enforced()
		r.probe(test.name, expect{client, web, "udp 53", test.passes}, expect{client, other, "udp 53", test.still})
		if n := r.metric("calico_node_invalid_objects") - before; n != 1 {
			t.Errorf("%s: %v objects more are invalid", test.name, n)
		}
		if shown := r.invalid(); !strings.Contains(shown, "object "+test.path+"\n") || !strings.Contains(shown, test.reason) {
			t.Errorf("%s: /debug/invalid does not say so, with %q:\n%.1000s", test.name, test.reason, shown)
		}
		if n := r.logged("is not acted upon", test.path) - warned; n != 1 {
			t.Errorf("%s: logged %d times", test.name, n)
		}
		r.put(test.path, test.good)
		r.enforced()
		r.probe(test.name+", put right", expect{client, web, "udp 53", true}, expect{client, other, "udp 53", true})
		if shown := r.invalid(); strings.Contains(shown, "object "+test.path+"\n") || r.metric("calico_node_invalid_objects") != before {
			t.Errorf("%s: is shown when it is right again:\n%.1000s", test.name, shown)
		}
		if !strings.Contains(test.path, profileName) {
			r.del(test.path)
		}
	}
	r.written = nil

	t.Run("a slip in a policy that closes", func(t *testing.T) {
		r.T = t
		defer r.clear()
		const closes = `{"selector": "role == 'web'", "inbound_rules": [{"action": "deny"}], "outbound_rules": [{"action": "allow"}]}`
		for _, slip := range []string{strings.TrimSuffix(closes, "}"), strings.Replace(closes, "==", "=", 1)} {
			for _, value := range []string{closes, slip, slip + " "} {
				r.policy("closes", value)
				r.enforced()
				r.probe(value, expect{client, web, "udp 53", false}, expect{client, other, "udp 53", true})
			}
			if shown := r.invalid(); !strings.Contains(shown, "; until it is corrected, it denies those that it picked before") {
				t.Errorf("/debug/invalid does not say so:\n%.1000s", shown)
			}
		}
		r.del(policyPath("closes"))
		r.enforced()
		r.probe("it is deleted", expect{client, web, "udp 53", true})
	})

	t.Run("an endpoint that can't be read", func(t *testing.T) {
		r.T = t
		r.unreadable(web, client, other)
	})

	t.Run("a profile that doesn't exist", func(t *testing.T) {
		r.T = t
		undo := r.endpoint(web, func(e *model.WorkloadEndpoint) { e.ProfileIDs = []string{"nowhere"} })
		r.enforced()
		r.probe("a profile that doesn't exist", expect{client, web, "udp 53", false}, expect{web, r.outside, "udp 53", false}, expect{client, other, "udp 53", true})
		if shown := r.invalid(); !strings.Contains(shown, "profile nowhere does not exist") {
			t.Errorf("/debug/invalid:\n%s", shown)
		}
		if n := r.logged("is not acted upon", profilePath("nowhere")); n != 1 {
			t.Errorf("logged %d times", n)
		}
		r.profile("nowhere", `{"inbound_rules": [{"action": "allow"}], "outbound_rules": [{"action": "allow"}]}`)
		r.enforced()
		r.probe("a profile that does", expect{client, web, "udp 53", true}, expect{web, r.outside, "udp 53", true})
		if shown := r.invalid(); strings.Contains(shown, "nowhere") {
			t.Errorf("/debug/invalid:\n%s", shown)
		}
		undo()
		r.clear()
	})

	t.Run("labels of any bytes", func(t *testing.T) {
		r.T = t
		for i, value := range []string{"\x00", "\x01\x1f\x7f", `"'\`, "' || has(role) || x == '", "`$(reboot)`; nft flush ruleset", "ünïcödé ☃ 𝄞", strings.Repeat("v", 60_000), "\n} drop {\n", "%s%n"} {
			undo := r.endpoint(client, func(e *model.WorkloadEndpoint) { e.Labels = map[string]string{"odd": value} })
			selector := "has(odd)"
			if !strings.Contains(value, `'`) && !strings.ContainsAny(value, "\x00\x01\n") && len(value) < 1000 {
				selector = "odd == '" + value + "'"
			}
			p := model.Policy{Selector: "role == 'web'", Types: []model.Direction{model.Inbound}, Inbound: []model.Rule{{Action: model.ActionAllow, Match: model.Match{SrcSelector: selector, HasSrcSelector: true}}}}
			revision, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Puts: []model.Put{{Key: model.PolicyKey{Tier: "default", Policy: "odd \x01\"'\\ " + fmt.Sprint(i)}, Value: p}}})
			if err != nil {
				t.Fatal(err)
			}
			r.revision = revision
			r.enforced()
			r.probe(fmt.Sprintf("label %.40q", value), expect{client, web, "udp 53", true}, expect{other, web, "udp 53", false})
			if _, err = r.lab.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{model.PolicyKey{Tier: "default", Policy: "odd \x01\"'\\ " + fmt.Sprint(i)}}}); err != nil {
				t.Fatal(err)
			}
			undo()
			r.enforced()
		}
	})

	t.Run("a policy of 10,000 rules", func(t *testing.T) {
		r.T = t
		var b strings.Builder
		b.WriteString(`{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [`)
		for i := range 10_000 {
			fmt.Fprintf(&b, `{"action": "deny", "protocol": "tcp", "dst_ports": [%d], "src_net": "10.%d.%d.0/24"},`, 1+i, i>>8, i&0xff)
		}
		b.WriteString(`{"action": "allow", "protocol": "udp", "dst_ports": [53]}]}`)
		r.policy("huge", b.String())
		r.enforced()
		r.probe("10,000 rules", expect{client, web, "udp 53", true}, expect{client, web, "udp 54", false}, expect{client, other, "udp 54", true})
		r.clear()
		r.probe("without them", expect{client, web, "udp 54", true})
	})
}

// unreadable writes a pod's endpoint in ways that can't be read: it keeps no access, whatever it had.
func (r *rig) unreadable(web, client, other *place) {
	r.Helper()
	path := web.key.Path()
	good := r.value(path)
	for name, value := range map[string]string{
		"malformed JSON":             strings.TrimSuffix(good, "}"),
		"no UTF-8":                   strings.Replace(good, `"role"`, "\"\xff\"", 1),
		"a state of no sense":        strings.Replace(good, `"active"`, `"asleep"`, 1),
		"nets of a wrong type":       strings.Replace(good, `"ipv4_nets":[`, `"ipv4_nets":[7,`, 1),
		"labels of a wrong type":     strings.Replace(good, `"labels":{`, `"labels":{"a":[],`, 1),
		"a MAC address that is none": strings.Replace(good, `"mac":"`, `"mac":"zz:`, 1),
	} {
		if value == good {
			r.Fatalf("%s: nothing to change in %s", name, good)
		}
		warned := r.logged("is not acted upon", path)
		for range 2 {
			r.put(path, value)
			r.enforced()
		}
		r.probe(name, expect{client, web, "udp 53", false}, expect{web, r.outside, "udp 53", false}, expect{client, other, "udp 53", true})
		if shown := r.invalid(); !strings.Contains(shown, "object "+path+"\n") {
			r.Errorf("%s: /debug/invalid does not say so:\n%.1000s", name, shown)
		}
		if n := r.logged("is not acted upon", path) - warned; n != 1 {
			r.Errorf("%s: logged %d times", name, n)
		}
		r.put(path, good)
		r.witness = web
		r.enforced()
		r.witness = other
		r.probe(name+", put right", expect{client, web, "udp 53", true}, expect{web, r.outside, "udp 53", true})
		if shown := r.invalid(); strings.Contains(shown, path) {
			r.Errorf("%s: is shown when it is right again:\n%.1000s", name, shown)
		}
	}
	r.written = nil
}
