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
	m.plugin.asked, m.due, m.whole = "", time.Time{}, true
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
	asked := begin.Add(settle)
	expect(t, "a group before the answer", m.Published(asked, TopicGroups, groupUpdate("g", `{"cidr":"10.0.0.0/8","protocol":null,"port":null}`, "", `"a":["10.65.0.1"]`)), "")
	expect(t, "an answer without rc", m.PluginReply(asked, []byte(`{"type":"GETGROUPS"}`)), "")
	expect(t, "another group", m.Published(asked.Add(settle/2), TopicGroups, groupUpdate("h", "", "", "")), "")
	expect(t, "once more, after the first publications", run(m, asked, asked.Add(3*settle/2)), `ask plugin {"type":"GETGROUPS","issued":1410276720.790}`)
	expect(t, "it fails", m.PluginReply(asked, []byte(`{"type":"GETGROUPS","rc":"FAILURE","message":"m"}`)), `log the plugin answers GETGROUPS by FAILURE m`)
	expectHas(t, "and is repeated", run(m, asked, asked.Add(retryGroups)), `ask plugin {"type":"GETGROUPS"`)
	expect(t, "once", m.PluginReply(begin, []byte(`{"type":"GETGROUPS"}`)), "")
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
	expect(t, "one to signs of life", m.Subscribed(begin, "aclheartbeat"), `publish aclheartbeat {"type":"HEARTBEAT","issued":1410276720.540}`)
	expect(t, "one to something else", m.Subscribed(begin, "x"), "")
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
		listed := strings.HasPrefix(got, "list {About:group g Err:it stays as it is: ")
		if !listed && !strings.HasPrefix(got, "log a GROUPUPDATE is ignored") || strings.Contains(got, "publish") {
			t.Errorf("%s:\n%s", bad, got)
		}
		if again := lines(m.Published(begin, TopicGroups, []byte(good))); listed != strings.HasPrefix(again, "list {About:group g Err:<nil>}") {
			t.Errorf("in order after %s:\n%s", bad, again)
		}
	}
	expectHas(t, "a rule that is wrong is left out, the rest applies", m.Published(begin, TopicGroups, groupUpdate("g", `{"cidr":"x"},{"cidr":"10.0.0.0/8"},{"cidr":"10.1.0.0/16"}`, "", `"a":["10.65.0.1"]`)),
		"list {About:group g Err:rule 0 of inbound is left out", aclOf(`{"group":null,"cidr":"10.0.0.0/8","protocol":null,"port":null},{"group":null,"cidr":"10.1.0.0/16","protocol":null,"port":null}`, "", "", ""))
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

// TestManagerBegins: Felixes keep what they have until all groups were told, by a sign of life or as no more came.
func TestManagerBegins(t *testing.T) {
	for _, heartbeat := range []bool{true, false} {
		m := NewManager(ManagerTiming{})
		m.Start(begin)
		m.Connected(begin)
		asked := begin.Add(settle)
		run(m, begin, asked)
		for _, id := range []string{"b", "gone"} {
			expect(t, "asked early", m.Request(asked, 1, []byte(`{"type":"GETACLSTATE","endpoint_id":"`+id+`"}`)), `reply 1 {"type":"GETACLSTATE","endpoint_id":"`+id+`","rc":"SUCCESS","message":""}`)
		}
		m.PluginReply(asked, []byte(`{"type":"GETGROUPS","rc":"SUCCESS","message":""}`))
		m.Published(asked, TopicNetworkHeartbeat, nil)
		asked = asked.Add(settle)
		run(m, asked, asked)
		m.PluginReply(asked, []byte(`{"type":"GETGROUPS","rc":"SUCCESS","message":""}`))
		expect(t, "a group that refers to one that is to come", m.Published(asked, TopicGroups, groupUpdate("a", `{"group":"z","cidr":null}`, "", `"b":["10.65.0.1"]`)), "")
		expect(t, "this", m.Published(asked, TopicGroups, groupUpdate("z", "", "", `"c":["10.65.0.2"]`)), "")
		got := run(m, asked, asked.Add(allCame-1))
		if heartbeat {
			got = m.Published(asked, TopicNetworkHeartbeat, nil)
		} else {
			expect(t, "not all came yet", got, "")
			got = run(m, asked, asked.Add(allCame))
		}
		issued := map[bool]string{true: "720.740", false: "721.740"}[heartbeat]
		expect(t, "all came", got, strings.ReplaceAll("publish b "+aclOf(`{"group":null,"cidr":"10.65.0.2/32","protocol":null,"port":null}`, "", "", "")+
			"\npublish c "+aclOf("", "", "", "")+"\npublish gone "+aclOf("", "", "", ""), "720.540", issued))
	}
}

// TestManagerTooLarge: what no Felix takes is denied, not left as it was.
func TestManagerTooLarge(t *testing.T) {
	m := managing(t)
	var members []string
	for i := range 30_000 {
		members = append(members, fmt.Sprintf(`"m%d":["10.%d.%d.%d"]`, i, i>>16, i>>8&255, i&255))
	}
	m.Published(begin, TopicGroups, groupUpdate("large", "", "", strings.Join(members, ",")))
	got := m.Published(begin, TopicGroups, groupUpdate("g", `{"group":"large","cidr":null}`, "", `"a":["10.65.0.1"]`))
	expectHas(t, "too large", got, "list {About:ACLs of endpoint a Err:nothing is allowed: ", "publish a "+aclOf("", "", "", ""))
	got = m.Published(begin, TopicGroups, groupUpdate("large", "", "", members[0]))
	m.Published(begin, TopicGroups, groupUpdate("large", "", "", strings.Join(members, ",")))
	expectHas(t, "it leaves", m.Published(begin, TopicGroups, groupUpdate("g", "", "", "")), "list {About:ACLs of endpoint a Err:<nil>}")
	expectHas(t, "smaller", got, "list {About:ACLs of endpoint a Err:<nil>}", `publish a {"type":"ACLUPDATE","acls":{"v4":{"inbound":[{"group":null,"cidr":"10.0.0.0/32"`)
}

// TestManagerSweep: a group that was deleted unnoticed is removed with the sign of life that follows the last group, or
// after a while if the plugin gives none.
func TestManagerSweep(t *testing.T) {
	answer := []byte(`{"type":"GETGROUPS","rc":"SUCCESS","message":""}`)
	h := groupUpdate("h", `{"cidr":"10.0.0.0/8"}`, "", `"b":["10.65.0.2"]`)
	for _, heartbeat := range []bool{true, false} {
		m := managing(t)
		m.Published(begin, TopicGroups, groupUpdate("g", `{"cidr":"10.0.0.0/8"}`, "", `"a":["10.65.0.1"]`))
		m.Published(begin, TopicGroups, h)
		m.Connected(begin)
		asked := begin.Add(settle)
		run(m, begin, asked)
		m.Published(asked, TopicGroups, h) // it may be of before
		m.PluginReply(asked, answer)
		m.Published(asked, TopicNetworkHeartbeat, nil) // of those of before
		asked = asked.Add(settle)
		run(m, asked, asked) // all are asked for again
		m.PluginReply(asked, answer)
		m.Published(asked, TopicNetworkHeartbeat, nil) // it came between the answer and the groups
		m.Published(asked, TopicGroups, h)
		if m.groups["g"] == nil {
			t.Error("group g is gone before the groups were told")
		}
		var got []Action
		if heartbeat {
			got = m.Published(asked, TopicNetworkHeartbeat, nil)
		} else {
			m.Published(asked.Add(60*time.Second), "other", nil) // it lives
			got = run(m, asked.Add(60*time.Second), asked.Add(65*time.Second))
		}
		expectHas(t, "later", got, "group g is not there any more", "publish a ")
		if m.groups["g"] != nil || m.groups["h"] == nil {
			t.Errorf("groups %v, want h alone", m.groups)
		}
	}
}
