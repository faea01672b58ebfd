// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

const (
	created = `{"type":"ENDPOINTCREATED","endpoint_id":"` + idA + `","interface_name":"tapa935e8e1-00",` +
		`"addrs":[{"addr":"10.65.0.2","gateway":"10.65.0.1","properties":{"gr":false}}],"mac":"00:11:22:33:44:55","state":"enabled","resync_id":null,"issued":1410276720.54}`
	updated = `{"type":"ENDPOINTUPDATED","endpoint_id":"` + idA + `",` +
		`"addrs":[{"addr":"10.65.0.2","gateway":"10.65.0.1","properties":{"gr":false}}],"mac":"00:11:22:33:44:55","state":"disabled","issued":1410276720.54}`
	destroyed = `{"type":"ENDPOINTDESTROYED","endpoint_id":"` + idA + `","issued":1410276720.54}`
	answer    = `{"type":"RESYNCSTATE","endpoint_count":%v,"interface_prefix":"tap","rc":"SUCCESS","message":""}`
	aclUpdate = `{"type":"ACLUPDATE","acls":{"v4":{"inbound":[{"group":null,"cidr":"10.65.0.0/24","protocol":"tcp","port":80}],"outbound":[],` +
		`"inbound_default":"deny","outbound_default":"deny"},"v6":{"inbound":[],"outbound":[],"inbound_default":"deny","outbound_default":"deny"}},"issued":1410276720.54}`
	aclAnswer = `{"type":"GETACLSTATE","endpoint_id":"` + idA + `","rc":"SUCCESS","message":""}`
)

func newFelix() *Felix { return newFelixWith(FelixConfig{}) }

func newFelixWith(cfg FelixConfig) *Felix {
	n := 0
	cfg.Hostname = "host-1"
	cfg.NewID = func() string { n++; return fmt.Sprintf("resync-%d", n) }
	return NewFelix(cfg)
}

// serving is a Felix that has resynchronised with a plugin that has no endpoints.
func serving(t *testing.T, cfg FelixConfig) *Felix {
	t.Helper()
	f := newFelixWith(cfg)
	f.Start(begin)
	expect(t, "answer", f.PluginReply(begin, fmt.Appendf(nil, answer, 0)), `
save prefix true
apply all true tap
log resynchronisation resync-1 is complete: 0 endpoints`)
	return f
}

func TestFelixStart(t *testing.T) {
	f := newFelix()
	expect(t, "start", f.Start(begin), `
subscribe {Topic:aclheartbeat}
ask plugin {"type":"RESYNCSTATE","resync_id":"resync-1","issued":1410276720.540,"hostname":"host-1"}`)
	expect(t, "a request before the answer waits", f.Request(begin, 1, []byte(created)), "")
	expect(t, "so does a heartbeat", f.Request(begin, 2, []byte(`{"type":"HEARTBEAT"}`)), "")
	expect(t, "answer", f.PluginReply(begin, fmt.Appendf(nil, answer, `"1"`)), `
save prefix true
apply all true tap
subscribe {Topic:`+idA+`}
save `+idA+`.json true
apply rules:0+0 tapa935e8e1-00=active[10.65.0.2/32][]
reply 1 {"type":"ENDPOINTCREATED","rc":"SUCCESS","message":""}
reply 2 {"type":"HEARTBEAT"}
ask acl {"type":"GETACLSTATE","endpoint_id":"`+idA+`","issued":1410276720.540}`)
	expect(t, "one of the resynchronisation", f.Request(begin, 3, with(t, created, map[string]any{"resync_id": "resync-1"})), `
log resynchronisation resync-1 is complete: 1 endpoints
reply 3 {"type":"ENDPOINTCREATED","rc":"SUCCESS","message":""}`)
	expect(t, "its ACLs", f.Published(begin, idA, []byte(aclUpdate)), `
save `+idA+`.json true
apply rules:1+0 -/calico/v1/policy/profile/classic-none/rules tapa935e8e1-00=active[10.65.0.2/32][]`)
	expect(t, "the same again", f.Published(begin, idA, []byte(aclUpdate)), "")
	expect(t, "the ACL manager's answer", f.ACLReply(begin, []byte(aclAnswer)), "")
	expect(t, "disabled", f.Request(begin, 4, []byte(updated)), `
save `+idA+`.json true
apply tapa935e8e1-00=inactive[10.65.0.2/32][]
reply 4 {"type":"ENDPOINTUPDATED","rc":"SUCCESS","message":""}`)
	expect(t, "enabled, without new ACLs", f.Request(begin, 5, with(t, updated, map[string]any{"state": "enabled"})), `
save `+idA+`.json true
apply tapa935e8e1-00=active[10.65.0.2/32][]
reply 5 {"type":"ENDPOINTUPDATED","rc":"SUCCESS","message":""}`)
	expect(t, "a duplicate", f.Request(begin, 6, []byte(created)), `reply 6 {"type":"ENDPOINTCREATED","rc":"SUCCESS","message":""}`)
	expect(t, "destroyed", f.Request(begin, 7, []byte(destroyed)), `
unsubscribe {Topic:`+idA+`}
save `+idA+`.json false
apply -/calico/v1/host/host-1/workload/classic/`+idA+`/endpoint/`+idA+` -/calico/v1/policy/profile/classic-1b0d79b9d9c95f7a1ffa609de69c29d7/rules
reply 7 {"type":"ENDPOINTDESTROYED","rc":"SUCCESS","message":""}`)
	for kind, body := range map[string]string{"ENDPOINTDESTROYED": destroyed, "ENDPOINTUPDATED": updated} {
		expect(t, kind+" of one that isn't there", f.Request(begin, 8, []byte(body)), `
log "`+kind+`" of the plugin is refused: NOTEXIST endpoint `+idA+` is not known
reply 8 {"type":"`+kind+`","rc":"NOTEXIST","message":"endpoint `+idA+` is not known"}`)
	}
}

// refusal is the rc and message of the one reply.
func refusal(t *testing.T, what string, actions []Action) (rc, message string) {
	t.Helper()
	for _, a := range actions {
		if r, ok := a.(Reply); ok {
			var got response
			if err := json.Unmarshal(r.Body, &got); err != nil {
				t.Errorf("%.40q: %s: %v", what, r.Body, err)
			}
			return got.RC, got.Message
		}
	}
	t.Errorf("%.40q: no reply among\n%s", what, lines(actions))
	return "", ""
}

func TestFelixRefuses(t *testing.T) {
	f := serving(t, FelixConfig{})
	f.Request(begin, 0, with(t, created, map[string]any{"endpoint_id": idB, "interface_name": "tapb"}))
	for _, field := range []string{"endpoint_id", "interface_name", "addrs", "mac", "state", "resync_id"} {
		rc, message := refusal(t, field, f.Request(begin, 1, with(t, created, map[string]any{field: nil})))
		if want := fmt.Sprintf("Missing %q field", field); rc != Invalid || message != want {
			t.Errorf("without %s: %s %q, want INVALID %q", field, rc, message, want)
		}
		for _, wrong := range []any{7, true, []any{7}, map[string]any{"a": 7}} {
			rc, message := refusal(t, field, f.Request(begin, 1, with(t, created, map[string]any{field: wrong})))
			if want := fmt.Sprintf("Invalid %q field: ", field); rc != Invalid || !strings.HasPrefix(message, want) {
				t.Errorf("%s %v: %s %q, want INVALID %q", field, wrong, rc, message, want)
			}
		}
	}
	for _, field := range []string{"endpoint_id", "addrs", "mac", "state"} {
		rc, message := refusal(t, field, f.Request(begin, 1, with(t, updated, map[string]any{field: nil})))
		if want := fmt.Sprintf("Missing %q field", field); rc != Invalid || message != want {
			t.Errorf("ENDPOINTUPDATED without %s: %s %q, want INVALID %q", field, rc, message, want)
		}
		null := strings.Replace(string(with(t, updated, map[string]any{field: "§"})), `"§"`, "null", 1)
		if rc, message := refusal(t, field, f.Request(begin, 1, []byte(null))); rc != Invalid || message != fmt.Sprintf("Missing %q field", field) {
			t.Errorf("ENDPOINTUPDATED with %s null: %s %q", field, rc, message)
		}
	}
	addr := func(fields ...any) any {
		m := map[string]any{}
		for i := 0; i < len(fields); i += 2 {
			m[fields[i].(string)] = fields[i+1]
		}
		return m
	}
	for _, c := range []struct {
		name, field, says string
		value             any
	}{
		{"prefix", "interface_name", `does not begin with the interface_prefix "tap"`, "eth0"},
		{"long name", "interface_name", "at most 15 bytes", "tap0123456789abcd"},
		{"a path for an ID", "endpoint_id", "want a UUID", "../x"},
		{"MAC", "mac", "want six bytes", "00:11:22"},
		{"state", "state", `want "enabled" or "disabled"`, "on"},
		{"address", "addrs", "want an IP address", []any{addr("addr", "10.65.0")}},
		{"zone", "addrs", "want an IP address", []any{addr("addr", "fe80::1%eth0")}},
		{"no address", "addrs", `Missing "addr" field`, []any{addr("gateway", "10.65.0.1")}},
		{"repeated", "addrs", "address 10.65.0.2 is repeated", []any{addr("addr", "10.65.0.2"), addr("addr", "10.65.0.2")}},
		{"families", "addrs", "not of the family", []any{addr("addr", "10.65.0.2", "gateway", "fd00::1")}},
		{"gateway", "addrs", `Invalid "gateway" field`, []any{addr("addr", "10.65.0.2", "gateway", "x")}},
		{"multicast", "addrs", "no endpoint has this address", []any{addr("addr", "224.0.0.1")}},
	} {
		rc, message := refusal(t, c.name, f.Request(begin, 1, with(t, created, map[string]any{c.field: c.value})))
		if rc != Invalid || !strings.Contains(message, c.says) {
			t.Errorf("%s: %s %q, want INVALID with %q", c.name, rc, message, c.says)
		}
	}
	for _, garbage := range []string{"", "null", "7", "[]", "{", "\x00\xff", `{"type":7}`, `{"type":"HELLO"}`, `{}`, strings.Repeat("[", 1<<20)} {
		if rc, message := refusal(t, garbage, f.Request(begin, 1, []byte(garbage))); rc != Invalid || message == "" {
			t.Errorf("%.20q: %s %q, want INVALID", garbage, rc, message)
		}
	}
	for name, addrs := range map[string][]any{"no addresses": {}, "no gateway": {addr("addr", "10.65.0.9")}, "gateway null": {addr("addr", "fd00::9", "gateway", nil)}} {
		if rc, message := refusal(t, name, f.Request(begin, 1, with(t, created, map[string]any{"addrs": addrs}))); rc != Success {
			t.Errorf("%s: %s %q, want SUCCESS", name, rc, message)
		}
	}
	if len(f.endpoints) != 2 {
		t.Errorf("%d endpoints, want 2", len(f.endpoints))
	}
}

func TestFelixStrict(t *testing.T) {
	present := false
	f := serving(t, FelixConfig{Present: func(string) bool { return present }})
	if rc, _ := refusal(t, "absent", f.Request(begin, 1, []byte(created))); rc != NoInterface {
		t.Errorf("rc %s, want ENOINTERFACE", rc)
	}
	present = true
	if rc, _ := refusal(t, "present", f.Request(begin, 1, []byte(created))); rc != Success {
		t.Errorf("rc %s, want SUCCESS", rc)
	}
}

func TestFelixResyncRemoves(t *testing.T) {
	f := serving(t, FelixConfig{})
	f.Request(begin, 1, []byte(created))
	f.Request(begin, 2, with(t, created, map[string]any{"endpoint_id": idB, "interface_name": "tapb"}))
	now := begin.Add(1800 * time.Second)
	f.heard, f.plugin.heard = now, now // the plugin lives
	expectHas(t, "the next resynchronisation", f.Tick(now), `"resync_id":"resync-2"`)
	expectHas(t, "answer of a string", f.PluginReply(now, fmt.Appendf(nil, answer, `"2"`)))
	c := "cccccccc-008a-4e05-af4b-4b5701df417e"
	f.Request(now, 3, with(t, created, map[string]any{"endpoint_id": c, "interface_name": "tapc"})) // of another cause: stays, and doesn't count
	f.Request(now, 4, with(t, created, map[string]any{"endpoint_id": idB, "interface_name": "tapb", "resync_id": "resync-1"}))
	f.Request(now, 5, with(t, created, map[string]any{"endpoint_id": idB, "interface_name": "tapb", "resync_id": "resync-2"}))
	f.Request(now, 5, with(t, created, map[string]any{"endpoint_id": idB, "interface_name": "tapb", "resync_id": "resync-2"})) // twice
	if len(f.endpoints) != 3 {
		t.Fatalf("%d endpoints before all have come, want 3", len(f.endpoints))
	}
	d := "dddddddd-008a-4e05-af4b-4b5701df417e"
	expectHas(t, "the last", f.Request(now, 6, with(t, created, map[string]any{"endpoint_id": d, "interface_name": "tapd", "resync_id": "resync-2"})),
		"endpoint "+idA+" was not refreshed", "is complete: 2 endpoints")
	if f.endpoints[idA] != nil || f.endpoints[idB] == nil || f.endpoints[c] == nil || f.endpoints[d] == nil {
		t.Errorf("endpoints %v", f.endpoints)
	}
}

func expectHas(t *testing.T, what string, got []Action, wants ...string) {
	t.Helper()
	text := lines(got)
	for _, w := range wants {
		if !strings.Contains(text, w) {
			t.Errorf("%s: %q is not in\n%s", what, w, text)
		}
	}
}

// TestFelixBadAnswer: each invalid answer makes a resynchronisation be abandoned without removing anything, and
// retried.
func TestFelixBadAnswer(t *testing.T) {
	good := fmt.Sprintf(answer, 0)
	bad := map[string][]byte{
		"FAILURE": with(t, good, map[string]any{"rc": "FAILURE"}), "garbage": []byte("{"), "another's": []byte(`{"type":"HEARTBEAT"}`),
		"negative": with(t, good, map[string]any{"endpoint_count": -1}), "words": with(t, good, map[string]any{"endpoint_count": "many"}),
		"long": with(t, good, map[string]any{"interface_prefix": "taptaptaptaptap"}),
	}
	for _, field := range []string{"endpoint_count", "interface_prefix", "rc", "message"} {
		bad["without "+field] = with(t, good, map[string]any{field: nil})
	}
	for name, body := range bad {
		f := serving(t, FelixConfig{})
		f.Request(begin, 1, []byte(created))
		now := begin.Add(1800 * time.Second)
		f.heard, f.plugin.heard = now, now
		f.Tick(now)
		expectHas(t, name, f.PluginReply(now, body), "is abandoned, nothing is removed")
		if len(f.endpoints) != 1 {
			t.Errorf("%s: the endpoint was removed", name)
		}
		if text := lines(f.Tick(now.Add(4999 * time.Millisecond))); strings.Contains(text, "RESYNCSTATE") {
			t.Errorf("%s: tried again too early:\n%s", name, text)
		}
		expectHas(t, name+", later", f.Tick(now.Add(5*time.Second)), `"resync_id":"resync-3"`)
	}
}

// run calls Tick when Next says so, up to a time.
func run(f interface {
	Tick(time.Time) []Action
	Next() time.Time
}, from, to time.Time) []Action {
	var all []Action
	for n := 0; ; n++ {
		next := f.Next()
		if next.After(to) || n > 10_000 {
			return all
		}
		if next.Before(from) {
			next = from
		}
		from = next
		all = append(all, f.Tick(next)...)
	}
}

func TestFelixHeartbeats(t *testing.T) {
	f := serving(t, FelixConfig{})
	expect(t, "for 5 s", run(f, begin, begin.Add(5*time.Second-1)), "")
	expect(t, "after 5 s", run(f, begin, begin.Add(5*time.Second)), `
ask plugin {"type":"HEARTBEAT"}
ask acl {"type":"HEARTBEAT"}`)
	expect(t, "while one is outstanding", run(f, begin.Add(5*time.Second), begin.Add(39*time.Second)), "")
	f.PluginReply(begin.Add(39*time.Second), []byte(`{"type":"HEARTBEAT"}`))
	f.ACLReply(begin.Add(39*time.Second), []byte(`{"type":"HEARTBEAT"}`))
	f.Published(begin.Add(39*time.Second), TopicACLHeartbeat, []byte(`{"type":"HEARTBEAT","issued":1}`))
	f.Request(begin.Add(39*time.Second), 1, []byte(`{"type":"HEARTBEAT"}`))
	expect(t, "5 s after the answer", run(f, begin.Add(39*time.Second), begin.Add(44*time.Second)), `
ask plugin {"type":"HEARTBEAT"}
ask acl {"type":"HEARTBEAT"}`)
}

// TestFelixSilence has each connection fall silent for 40 s.
func TestFelixSilence(t *testing.T) {
	lost := begin.Add(40 * time.Second)
	others := func(f *Felix, but string) {
		if but != "9901" {
			f.PluginReply(lost.Add(-time.Second), []byte(`{"type":"HEARTBEAT"}`))
		}
		if but != "9902" {
			f.Request(lost.Add(-time.Second), 1, []byte(`{"type":"HEARTBEAT"}`))
		}
		if but != "9905" {
			f.ACLReply(lost.Add(-time.Second), []byte(`{"type":"HEARTBEAT"}`))
		}
		if but != "9906" {
			f.Published(lost.Add(-time.Second), TopicACLHeartbeat, nil)
		}
	}
	for port, want := range map[string]string{
		"9901": "reconnect {Peer:plugin}", "9902": `"resync_id":"resync-2"`, "9905": "reconnect {Peer:acl}", "9906": "reconnect {Peer:acl}",
	} {
		f := serving(t, FelixConfig{})
		f.Request(begin, 1, []byte(created))
		f.Published(begin, idA, []byte(aclUpdate))
		f.ACLReply(begin, []byte(aclAnswer))
		run(f, begin, begin.Add(30*time.Second))
		others(f, port)
		if text := lines(run(f, begin.Add(30*time.Second), lost.Add(-1))); strings.Contains(text, want) {
			t.Errorf("%s: lost before 40 s:\n%s", port, text)
		}
		got := run(f, lost.Add(-1), lost)
		expectHas(t, port, got, want)
		if strings.Contains(lines(got), "apply") || len(f.endpoints) != 1 {
			t.Errorf("%s: what is programmed changed:\n%s", port, lines(got))
		}
		if want == "reconnect {Peer:acl}" {
			expectHas(t, port, got, `ask acl {"type":"GETACLSTATE","endpoint_id":"`+idA)
		}
	}
}

func TestFelixResyncLost(t *testing.T) {
	f := newFelix()
	f.Start(begin)
	expectHas(t, "no answer for 40 s", run(f, begin, begin.Add(40*time.Second)), "reconnect {Peer:plugin}", "is abandoned", `"resync_id":"resync-2"`)
	f.PluginReply(begin.Add(41*time.Second), fmt.Appendf(nil, answer, 2))
	f.Request(begin.Add(41*time.Second), 1, with(t, created, map[string]any{"resync_id": "resync-2"}))
	for at := begin.Add(41 * time.Second); at.Before(begin.Add(81 * time.Second)); at = at.Add(time.Second) {
		f.Request(at, 1, []byte(`{"type":"HEARTBEAT"}`))
		f.PluginReply(at, []byte(`{"type":"HEARTBEAT"}`))
	}
	expectHas(t, "one of two came", f.Tick(begin.Add(81*time.Second)), "is abandoned, nothing is removed: 1 of 2 endpoints came")
}

func TestFelixAsksAgain(t *testing.T) {
	f := serving(t, FelixConfig{})
	f.Request(begin, 1, []byte(created))
	f.Request(begin, 2, with(t, created, map[string]any{"endpoint_id": idB, "interface_name": "tapb"}))
	expectHas(t, "one at a time", f.ACLReply(begin, []byte(aclAnswer)), `"GETACLSTATE","endpoint_id":"`+idB)
	f.ACLReply(begin, []byte(`{"type":"GETACLSTATE","endpoint_id":"`+idB+`","rc":"SUCCESS","message":""}`))
	f.Published(begin, idB, []byte(aclUpdate))
	expect(t, "for 2 s", run(f, begin, begin.Add(2*time.Second-1)), "")
	expect(t, "after 2 s", run(f, begin, begin.Add(2*time.Second)), `ask acl {"type":"GETACLSTATE","endpoint_id":"`+idA+`","issued":1410276722.540}`)
	f.ACLReply(begin.Add(2*time.Second), []byte(aclAnswer))
	expectHas(t, "publications come anew", f.Subscribed(begin.Add(3*time.Second)), `"GETACLSTATE","endpoint_id":"`+idA)
	expectHas(t, "all are asked about", f.ACLReply(begin.Add(3*time.Second), []byte(aclAnswer)), `"GETACLSTATE","endpoint_id":"`+idB)
}

// TestFelixRestart: another Felix continues with what the former one saved.
func TestFelixRestart(t *testing.T) {
	saved := map[string][]byte{}
	keep := func(actions []Action) {
		for _, a := range actions {
			if s, ok := a.(Save); ok && s.Data == nil {
				delete(saved, s.Name)
			} else if ok {
				saved[s.Name] = s.Data
			}
		}
	}
	f := newFelix()
	keep(f.Start(begin))
	keep(f.PluginReply(begin, fmt.Appendf(nil, answer, 0)))
	keep(f.Request(begin, 1, []byte(created)))
	keep(f.Published(begin, idA, []byte(aclUpdate)))
	keep(f.Request(begin, 1, with(t, created, map[string]any{"endpoint_id": idB, "interface_name": "tapb"})))

	saved["torn.json"] = []byte(`{"type":"ENDPOINTCR`)
	f = newFelixWith(FelixConfig{Saved: saved})
	expectHas(t, "start", f.Start(begin), "apply all true tap rules:1+0 rules:0+0 tapa935e8e1-00=active[10.65.0.2/32][] tapb=active[10.65.0.2/32][]",
		`"RESYNCSTATE"`, `"GETACLSTATE","endpoint_id":"`+idA)
	expectHas(t, "what isn't refreshed", f.PluginReply(begin, fmt.Appendf(nil, answer, 1)))
	expectHas(t, "goes at the end", f.Request(begin, 1, with(t, created, map[string]any{"resync_id": "resync-1"})), "endpoint "+idB+" was not refreshed")
}

func TestFelixInterfaceOfAnother(t *testing.T) {
	f := serving(t, FelixConfig{})
	f.Request(begin, 1, []byte(created))
	expectHas(t, "the tap of another", f.Request(begin, 2, with(t, created, map[string]any{"endpoint_id": idB})), "unsubscribe {Topic:"+idA, "which "+idA+" had")
	if f.endpoints[idA] != nil || f.endpoints[idB] == nil {
		t.Error("both endpoints have the interface")
	}
}

func TestACL(t *testing.T) {
	f := serving(t, FelixConfig{})
	f.Request(begin, 1, []byte(created))
	f.Published(begin, idA, []byte(aclUpdate))
	for _, garbage := range []string{"", "{", `{"type":"ACLUPDATE"}`, `{"type":"ACLUPDATE","acls":null}`, `{"type":"ACLUPDATE","acls":7}`,
		`{"type":"ACLUPDATE","acls":{"v4":7}}`, `{"type":"ACLUPDATE","acls":{"v4":{"inbound":{}}}}`} {
		expectHas(t, garbage, f.Published(begin, idA, []byte(garbage)), "list {About:ACLs of endpoint "+idA+" Err:they stay as they are")
	}
	expect(t, "of no one here", f.Published(begin, idB, []byte(aclUpdate)), "")
	expect(t, "another message", f.Published(begin, idA, []byte(`{"type":"HEARTBEAT"}`)), "")
	got := f.Published(begin, idA, []byte(`{"type":"ACLUPDATE","acls":{
		"v4":{"inbound":[
			{"cidr":"10.1.2.3","protocol":null,"port":null},
			{"cidr":"10.1.2.3/24","protocol":"TCP","port":"80"},
			{"cidr":"10.9.0.0/16","protocol":"tcp","port":80},
			{"cidr":"10.9.0.0/16","protocol":6,"port":[1000,"2000"]},
			{"cidr":"10.9.0.0/16","protocol":"icmp","port":"*","icmp_type":8,"icmp_code":0},
			{"cidr":"0.0.0.0/0","protocol":"udp","port":53},
			{"group":null,"cidr":null,"protocol":null,"port":null},
			7, null, {"cidr":"fd00::/8"}, {"cidr":"10.1.0.0/33"}, {"cidr":"x"}, {"cidr":7}, {"group":"g"}, {"group":"g","cidr":"10.0.0.0/8"},
			{"cidr":"10.1.0.0/16","protocol":"x"}, {"cidr":"10.1.0.0/16","protocol":"icmp","port":80}, {"cidr":"10.1.0.0/16","port":80},
			{"cidr":"10.1.0.0/16","protocol":"tcp","port":0}, {"cidr":"10.1.0.0/16","protocol":"tcp","port":65536}, {"cidr":"10.1.0.0/16","protocol":"tcp","port":[2,1]},
			{"cidr":"10.1.0.0/16","protocol":"tcp","port":[1]}, {"cidr":"10.1.0.0/16","protocol":"tcp","port":{}}, {"cidr":"10.1.0.0/16","protocol":"tcp","icmp_type":8},
			{"cidr":"10.1.0.0/16","protocol":"icmp","icmp_code":8}, {"cidr":"10.1.0.0/16","protocol":"icmp","icmp_type":255}],
		"inbound_default":"allow"},
		"v6":{"outbound":[{"cidr":"fd00::1","protocol":"icmp"},{"cidr":"fd00::2/128","protocol":"icmpv6"}]}}}`))
	want := `apply {"inbound_rules":[` +
		`{"action":"allow","ip_version":4,"src_net":"10.1.2.3/32"},` +
		`{"action":"allow","ip_version":4,"protocol":"tcp","src_nets":["10.1.2.0/24","10.9.0.0/16"],"dst_ports":[80]},` +
		`{"action":"allow","ip_version":4,"protocol":"tcp","src_net":"10.9.0.0/16","dst_ports":["1000:2000"]},` +
		`{"action":"allow","ip_version":4,"protocol":"icmp","src_net":"10.9.0.0/16","icmp_type":8,"icmp_code":0},` +
		`{"action":"allow","ip_version":4,"protocol":"udp","dst_ports":[53]}],` +
		`"outbound_rules":[{"action":"allow","ip_version":6,"protocol":"icmpv6","dst_nets":["fd00::1/128","fd00::2/128"]}]}`
	problems := 0
	for _, a := range got {
		switch a := a.(type) {
		case Apply:
			text, err := model.FormatValue(a.Update.Entries[0].Value)
			if "apply "+string(text) != want || err != nil {
				t.Errorf("got  apply %s %v\nwant %s", text, err, want)
			}
		case List:
			problems += len(strings.Split(a.Err.Error(), "\n"))
		}
	}
	if problems != 20 {
		t.Errorf("%d problems are told, want one for each of 19 rules and the default:\n%s", problems, lines(got))
	}
}
