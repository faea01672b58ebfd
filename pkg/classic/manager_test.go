// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const none = `{"inbound":[],"outbound":[],"inbound_default":"deny","outbound_default":"deny"}`

func groupUpdate(id, inbound, outbound, members string) []byte {
	return fmt.Appendf(nil, `{"type":"GROUPUPDATE","group":%q,"rules":{"inbound":[%s],"outbound":[%s],"inbound_default":"deny","outbound_default":"deny"},"members":{%s},"issued":1410276720.54}`,
		id, inbound, outbound, members)
}

func aclOf(v4in, v4out, v6in, v6out string) string {
	return fmt.Sprintf(`{"type":"ACLUPDATE","acls":{"v4":{"inbound":[%s],"outbound":[%s],"inbound_default":"deny","outbound_default":"deny"},`+
		`"v6":{"inbound":[%s],"outbound":[%s],"inbound_default":"deny","outbound_default":"deny"}},"issued":1410276720.540}`, v4in, v4out, v6in, v6out)
}

func managing(t *testing.T) *Manager {
	t.Helper()
	m := NewManager(ManagerTiming{})
	m.Start(begin)
	m.plugin.asked, m.due = "", time.Time{}
	return m
}

func TestManagerStart(t *testing.T) {
	m := NewManager(ManagerTiming{})
	expect(t, "start", m.Start(begin), `
subscribe {Topic:groups}
subscribe {Topic:networkheartbeat}
publish aclheartbeat {"type":"HEARTBEAT","issued":1410276720.540}`)
	expect(t, "subscribed", m.Connected(begin), "")
	expect(t, "all groups are asked for", run(m, begin, begin.Add(settle)), `ask plugin {"type":"GETGROUPS","issued":1410276720.640}`)
	expectHas(t, "a group before the answer", m.Published(begin, TopicGroups, groupUpdate("g", `{"cidr":"10.0.0.0/8","protocol":null,"port":null}`, "", `"a":["10.65.0.1"]`)), "publish a ")
	expect(t, "an answer without rc", m.PluginReply(begin, []byte(`{"type":"GETGROUPS"}`)), "")
	expect(t, "a heartbeat", m.Request(begin, 1, []byte(`{"type":"HEARTBEAT"}`)), `reply 1 {"type":"HEARTBEAT"}`)
	expectHas(t, "heartbeats", run(m, begin, begin.Add(30*time.Second)), `publish aclheartbeat {"type":"HEARTBEAT","issued":1410276750.540}`)
}

func TestManagerACLs(t *testing.T) {
	m := managing(t)
	const any = `{"group":"g","cidr":null,"protocol":"tcp","port":"80"}`
	expect(t, "a rule of its own group", m.Published(begin, TopicGroups, groupUpdate("g", any+`,{"group":null,"cidr":"10.0.0.0/8","protocol":null,"port":"*"},{"group":null,"cidr":null}`,
		`{"group":"unknown","cidr":null}`, `"a":["10.65.0.1","fd00::1"],"b":["10.65.0.2"]`)), strings.Join([]string{
		"publish a " + aclOf(`{"group":null,"cidr":"10.65.0.1/32","protocol":"tcp","port":80},{"group":null,"cidr":"10.65.0.2/32","protocol":"tcp","port":80},{"group":null,"cidr":"10.0.0.0/8","protocol":null,"port":null}`,
			"", `{"group":null,"cidr":"fd00::1/128","protocol":"tcp","port":80}`, ""),
		"publish b " + aclOf(`{"group":null,"cidr":"10.65.0.1/32","protocol":"tcp","port":80},{"group":null,"cidr":"10.65.0.2/32","protocol":"tcp","port":80},{"group":null,"cidr":"10.0.0.0/8","protocol":null,"port":null}`,
			"", `{"group":null,"cidr":"fd00::1/128","protocol":"tcp","port":80}`, ""),
	}, "\n"))
	expect(t, "the same again", m.Published(begin, TopicGroups, groupUpdate("g", any+`,{"group":null,"cidr":"10.0.0.0/8"}`, ``, `"b":["10.65.0.2"],"a":["fd00::1","10.65.0.1"]`)), "")
	expect(t, "another group of one member, whose rules refer to g", m.Published(begin, TopicGroups, groupUpdate("h", "", `{"group":"g","cidr":null,"protocol":"icmp","port":null,"icmp_type":8,"icmp_code":0}`, `"c":["10.65.0.3"]`)),
		"publish c "+aclOf("", `{"group":null,"cidr":"10.65.0.1/32","protocol":"icmp","port":null,"icmp_type":8,"icmp_code":0},{"group":null,"cidr":"10.65.0.2/32","protocol":"icmp","port":null,"icmp_type":8,"icmp_code":0}`,
			"", `{"group":null,"cidr":"fd00::1/128","protocol":"icmp","port":null,"icmp_type":8,"icmp_code":0}`))
	got := m.Published(begin, TopicGroups, groupUpdate("g", any, ``, `"b":["10.65.0.2"]`))
	expectHas(t, "a leaves: it is told, and c of its address", got, "publish a "+aclOf("", "", "", ""),
		"publish b "+aclOf(`{"group":null,"cidr":"10.65.0.2/32","protocol":"tcp","port":80}`, "", "", ""),
		"publish c "+aclOf("", `{"group":null,"cidr":"10.65.0.2/32","protocol":"icmp","port":null,"icmp_type":8,"icmp_code":0}`, "", ""))
	expect(t, "g is deleted", m.Published(begin, TopicGroups, groupUpdate("g", "", "", "")), "publish b "+aclOf("", "", "", "")+"\npublish c "+aclOf("", "", "", ""))
	if len(m.groups) != 1 || len(m.endpoints) != 1 {
		t.Errorf("%d groups and %d endpoints are kept, want one of each", len(m.groups), len(m.endpoints))
	}
}

func TestManagerRequests(t *testing.T) {
	m := managing(t)
	m.Published(begin, TopicGroups, groupUpdate("g", `{"cidr":"10.0.0.0/8"}`, "", `"`+idA+`":["10.65.0.1"]`))
	acl := aclOf(`{"group":null,"cidr":"10.0.0.0/8","protocol":null,"port":null}`, "", "", "")
	expect(t, "known", m.Request(begin, 1, []byte(`{"type":"GETACLSTATE","endpoint_id":"`+idA+`","issued":7}`)), `
reply 1 {"type":"GETACLSTATE","endpoint_id":"`+idA+`","rc":"SUCCESS","message":""}
publish `+idA+" "+acl)
	expect(t, "unknown", m.Request(begin, 1, []byte(`{"type":"GETACLSTATE","endpoint_id":"`+idB+`"}`)), `
reply 1 {"type":"GETACLSTATE","endpoint_id":"`+idB+`","rc":"SUCCESS","message":""}
publish `+idB+" "+aclOf("", "", "", ""))
	expect(t, "a subscription", m.Subscribed(begin, idA), "publish "+idA+" "+acl)
	expect(t, "one to something else", m.Subscribed(begin, "aclheartbeat"), "")
	for _, garbage := range []string{"", "{", "7", `{}`, `{"type":"GETACLSTATE"}`, `{"type":"GETACLSTATE","endpoint_id":7}`, `{"type":"GETACLSTATE","endpoint_id":null}`, `{"type":"X"}`} {
		if rc, message := refusal(t, garbage, m.Request(begin, 1, []byte(garbage))); rc != Invalid || message == "" {
			t.Errorf("%s: %s %q, want INVALID", garbage, rc, message)
		}
	}
}

func TestManagerIgnores(t *testing.T) {
	m := managing(t)
	good := string(groupUpdate("g", `{"cidr":"10.0.0.0/8"}`, "", `"a":["10.65.0.1"]`))
	m.Published(begin, TopicGroups, []byte(good))
	for _, bad := range []string{"", "{", "[]", `{"type":"GROUPUPDATE"}`,
		string(with(t, good, map[string]any{"group": nil})), string(with(t, good, map[string]any{"group": 7})), string(with(t, good, map[string]any{"rules": nil})),
		string(with(t, good, map[string]any{"rules": 7})), string(with(t, good, map[string]any{"members": nil})), string(with(t, good, map[string]any{"members": []int{1}})),
		string(with(t, good, map[string]any{"members": map[string]any{"a": 7}})), string(with(t, good, map[string]any{"members": map[string]any{"a": []string{"x"}}})),
		string(with(t, good, map[string]any{"members": map[string]any{"a/b": []string{}}})), string(with(t, good, map[string]any{"rules": map[string]any{"inbound": 7}})),
	} {
		got := lines(m.Published(begin, TopicGroups, []byte(bad)))
		if !strings.HasPrefix(got, "log a GROUPUPDATE is ignored") || strings.Contains(got, "publish") {
			t.Errorf("%s:\n%s", bad, got)
		}
	}
	expectHas(t, "a rule that is wrong is left out, the rest applies", m.Published(begin, TopicGroups, groupUpdate("g", `{"cidr":"x"},{"cidr":"10.0.0.0/8"},{"cidr":"10.1.0.0/16"}`, "", `"a":["10.65.0.1"]`)),
		"log group g: rule 0 of inbound is left out", aclOf(`{"group":null,"cidr":"10.0.0.0/8","protocol":null,"port":null},{"group":null,"cidr":"10.1.0.0/16","protocol":null,"port":null}`, "", "", ""))
}

func TestManagerSilence(t *testing.T) {
	for name, c := range map[string]struct{ answers, publishes bool }{"no answer": {false, true}, "no publications": {true, false}} {
		m := NewManager(ManagerTiming{})
		m.Start(begin)
		m.Connected(begin)
		asked := begin.Add(settle)
		run(m, begin, asked)
		if c.answers {
			m.PluginReply(asked, []byte(`{"type":"GETGROUPS","rc":"SUCCESS","message":""}`))
		}
		lost := begin.Add(65 * time.Second)
		if c.publishes {
			m.Published(begin.Add(30*time.Second), TopicNetworkHeartbeat, nil)
			lost = asked.Add(65 * time.Second)
		}
		if got := lines(run(m, asked, lost.Add(-1))); strings.Contains(got, "reconnect") {
			t.Errorf("%s: lost too early:\n%s", name, got)
		}
		expectHas(t, name, run(m, lost.Add(-1), lost), "reconnect {Peer:plugin}", "GETGROUPS")
	}
}

// TestManagerSweep has a group deleted while nobody heard it.
func TestManagerSweep(t *testing.T) {
	m := managing(t)
	m.Published(begin, TopicGroups, groupUpdate("g", `{"cidr":"10.0.0.0/8"}`, "", `"a":["10.65.0.1"]`))
	m.Published(begin, TopicGroups, groupUpdate("h", `{"cidr":"10.0.0.0/8"}`, "", `"b":["10.65.0.2"]`))
	m.Connected(begin)
	run(m, begin, begin.Add(settle))
	m.PluginReply(begin.Add(settle), []byte(`{"type":"GETGROUPS","rc":"SUCCESS","message":""}`))
	m.Published(begin.Add(settle), TopicGroups, groupUpdate("h", `{"cidr":"10.0.0.0/8"}`, "", `"b":["10.65.0.2"]`))
	m.Published(begin.Add(60*time.Second), TopicNetworkHeartbeat, nil)
	expectHas(t, "later", run(m, begin.Add(60*time.Second), begin.Add(66*time.Second)), "group g is not there any more", "publish a ")
	if m.groups["g"] != nil || m.groups["h"] == nil {
		t.Errorf("groups %v, want h alone", m.groups)
	}
}
