// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

func testEndpoint(id, iface, addr string) Endpoint {
	return Endpoint{ID: id, Interface: iface, MAC: model.MAC{0, 0x11, 0x22, 0x33, 0x44, 0x55}, Enabled: true, Addrs: []Addr{{netip.MustParseAddr(addr), netip.MustParseAddr("10.65.0.1")}}}
}

// worldOf is of endpoints by host.
func worldOf(hosts map[string][]Endpoint) World {
	w := World{Endpoints: map[string]map[string]Endpoint{}, Groups: map[string]Group{}}
	for h, list := range hosts {
		w.Endpoints[h] = map[string]Endpoint{}
		for _, e := range list {
			w.Endpoints[h][e.ID] = e
		}
	}
	return w
}

func plugged(w World) *Plugin {
	p := NewPlugin(PluginConfig{Prefix: "tap", Serves: func(h string) bool { return h == "h1" || h == "h2" }})
	p.Start(begin)
	p.Set(begin, w)
	return p
}

const resyncState = `{"type":"RESYNCSTATE","resync_id":"r1","issued":1410276720.54,"hostname":"h1"}`

func TestPluginResync(t *testing.T) {
	a, b := testEndpoint(idA, "tapa935e8e1-00", "10.65.0.2"), testEndpoint(idB, "tapb935e8e1-00", "10.65.0.3")
	p := plugged(worldOf(map[string][]Endpoint{"h1": {a, b}}))
	expect(t, "resynchronisation", p.Request(begin, 1, []byte(resyncState)), `
reply 1 {"type":"RESYNCSTATE","endpoint_count":2,"interface_prefix":"tap","rc":"SUCCESS","message":""}
connect {Host:h1}
log host h1 is told its 2 endpoints
ask h1 {"type":"ENDPOINTCREATED","endpoint_id":"`+idA+`","interface_name":"tapa935e8e1-00","addrs":[{"addr":"10.65.0.2","gateway":"10.65.0.1","properties":{"gr":false}}],`+
		`"mac":"00:11:22:33:44:55","state":"enabled","resync_id":"r1","issued":1410276720.540}`)
	ok := []byte(`{"type":"ENDPOINTCREATED","rc":"SUCCESS","message":""}`)
	b2 := b
	b2.Enabled = false
	c := testEndpoint("c935e8e1-008a-4e05-af4b-4b5701df417e", "tapc", "10.65.0.4")
	expect(t, "what changes meanwhile waits", p.Set(begin, worldOf(map[string][]Endpoint{"h1": {b2, c}})), "")
	expectHas(t, "each after the other's answer", p.HostReply(begin, "h1", ok), `"endpoint_id":"`+idB, `"state":"disabled","resync_id":"r1"`)
	expect(t, "one that is gone meanwhile was told, as it was counted", p.HostReply(begin, "h1", ok), `ask h1 {"type":"ENDPOINTDESTROYED","endpoint_id":"`+idA+`","issued":1410276720.540}`)
	expectHas(t, "a new one, of no resynchronisation", p.HostReply(begin, "h1", []byte(`{"type":"ENDPOINTDESTROYED","rc":"SUCCESS","message":""}`)), `"interface_name":"tapc"`, `"resync_id":null`)
	expect(t, "no more", p.HostReply(begin, "h1", ok), "")
	expect(t, "an update", p.Set(begin, worldOf(map[string][]Endpoint{"h1": {b, c}})), `ask h1 {"type":"ENDPOINTUPDATED","endpoint_id":"`+idB+
		`","addrs":[{"addr":"10.65.0.3","gateway":"10.65.0.1","properties":{"gr":false}}],"mac":"00:11:22:33:44:55","state":"enabled","issued":1410276720.540}`)
	expectHas(t, "the host doesn't know it: it is made", p.HostReply(begin, "h1", []byte(`{"type":"ENDPOINTUPDATED","rc":"NOTEXIST","message":"x"}`)), `"ENDPOINTCREATED","endpoint_id":"`+idB)
	p.HostReply(begin, "h1", ok)
	c.Interface = "tapc2"
	expectHas(t, "another interface", p.Set(begin, worldOf(map[string][]Endpoint{"h1": {b, c}})), "ENDPOINTDESTROYED")
	expectHas(t, "another interface", p.HostReply(begin, "h1", []byte(`{"type":"ENDPOINTDESTROYED","rc":"NOTEXIST","message":"x"}`)), "ENDPOINTCREATED", "tapc2")
	expectHas(t, "a refusal is told", p.HostReply(begin, "h1", []byte(`{"type":"ENDPOINTCREATED","rc":"ENOINTERFACE","message":"no tapc2"}`)), "by ENOINTERFACE no tapc2")
	expectHas(t, "garbage is told", p.HostReply(begin, "h1", nil)) // nothing is outstanding
}

func TestPluginMigration(t *testing.T) {
	a := testEndpoint(idA, "tapa935e8e1-00", "10.65.0.2")
	p := plugged(worldOf(map[string][]Endpoint{"h1": {a}}))
	p.Request(begin, 1, []byte(resyncState))
	p.HostReply(begin, "h1", []byte(`{"type":"ENDPOINTCREATED","rc":"SUCCESS","message":""}`))
	p.Request(begin, 2, []byte(strings.Replace(resyncState, "h1", "h2", 1)))
	expectHas(t, "migration", p.Set(begin, worldOf(map[string][]Endpoint{"h2": {a}})), `ask h1 {"type":"ENDPOINTDESTROYED","endpoint_id":"`+idA, `ask h2 {"type":"ENDPOINTCREATED","endpoint_id":"`+idA)
}

func TestPluginLate(t *testing.T) {
	a, b := testEndpoint(idA, "tapa", "10.65.0.2"), testEndpoint(idB, "tapb", "10.65.0.3")
	p := plugged(worldOf(map[string][]Endpoint{"h1": {a}, "h2": {b}}))
	p.Request(begin, 1, []byte(resyncState))
	p.Request(begin, 2, []byte(strings.Replace(resyncState, "h1", "h2", 1)))
	p.HostReply(begin.Add(time.Second), "h2", []byte(`{"type":"ENDPOINTCREATED","rc":"SUCCESS","message":""}`)) // h1's silence stops it not
	expect(t, "before 10 s", run(p, begin, begin.Add(10*time.Second-1)), "")
	expect(t, "after 10 s", run(p, begin, begin.Add(10*time.Second)), `
log host h1 does not answer ENDPOINTCREATED within 10s: it is told nothing until it asks
disconnect {Host:h1}`)
	expect(t, "nothing is told", p.Set(begin.Add(11*time.Second), worldOf(map[string][]Endpoint{"h2": {b}})), "")
	expectHas(t, "the other one's heartbeat", run(p, begin.Add(11*time.Second), begin.Add(31*time.Second)), `ask h2 {"type":"HEARTBEAT"}`, `publish networkheartbeat {"type":"HEARTBEAT","issued":1410276750.540}`)
	expect(t, "its answer", p.HostReply(begin.Add(31*time.Second), "h2", []byte(`{"type":"HEARTBEAT"}`)), "")
	expectHas(t, "until it asks", p.Request(begin.Add(32*time.Second), 3, []byte(resyncState)), `"endpoint_count":0`, "connect {Host:h1}")
}

func TestPluginGroups(t *testing.T) {
	w := worldOf(nil)
	w.Groups["g"] = Group{Rules{Inbound: []Rule{{Group: "g"}}}, map[string][]netip.Addr{idA: {netip.MustParseAddr("10.65.0.2")}}}
	p := plugged(worldOf(nil))
	const g = `publish groups {"type":"GROUPUPDATE","group":"g","rules":{"inbound":[{"group":"g","cidr":null,"protocol":null,"port":null}],"outbound":[],"inbound_default":"deny","outbound_default":"deny"},` +
		`"members":{"` + idA + `":["10.65.0.2"]},"issued":1410276720.540}`
	const last = "\npublish networkheartbeat " + `{"type":"HEARTBEAT","issued":1410276720.540}`
	expect(t, "a group", p.Set(begin, w), g)
	expect(t, "the same", p.Set(begin, w), "")
	expect(t, "asked for", p.NetworkRequest(begin, 1, []byte(`{"type":"GETGROUPS","issued":1}`)), `reply 1 {"type":"GETGROUPS","rc":"SUCCESS","message":""}
`+g+last)
	expect(t, "subscribed to", p.Subscribed(begin, TopicGroups), g+last)
	expect(t, "deleted", p.Set(begin, worldOf(nil)), `publish groups {"type":"GROUPUPDATE","group":"g","rules":`+none+`,"members":{},"issued":1410276720.540}`)
	expect(t, "is told no more", p.NetworkRequest(begin, 1, []byte(`{"type":"GETGROUPS"}`)), `reply 1 {"type":"GETGROUPS","rc":"SUCCESS","message":""}`+last)
}

// TestPluginTooLarge: of what no ACL manager takes nothing is allowed, and it is listed until it is smaller or gone.
func TestPluginTooLarge(t *testing.T) {
	w := worldOf(nil)
	members := map[string][]netip.Addr{}
	for a := netip.MustParseAddr("10.0.0.1"); len(members) < 40_000; a = a.Next() {
		members["endpoint "+a.String()] = []netip.Addr{a}
	}
	w.Groups["large"] = Group{Members: members}
	p := plugged(worldOf(nil))
	expectHas(t, "too large", p.Set(begin, w), "list {About:group large Err:it is told without rules and members: they have ", `"group":"large","rules":`+none+`,"members":{}`)
	w = worldOf(nil)
	w.Groups["other"] = Group{}
	expectHas(t, "gone", p.Set(begin, w), "list {About:group large Err:<nil>}")
	if got := p.Subscribed(begin, TopicGroups); strings.Contains(fmt.Sprint(got), "list") {
		t.Error(got)
	}
}

func TestPluginRefuses(t *testing.T) {
	p := NewPlugin(PluginConfig{Prefix: "tap", Serves: func(h string) bool { return h == "h1" }})
	p.Start(begin)
	check := func(name, want string, got []Action) {
		t.Helper()
		if rc, message := refusal(t, name, got); rc != want || message == "" {
			t.Errorf("%s: %s %q, want %s", name, rc, message, want)
		}
	}
	check("before anything is known", Failure, p.Request(begin, 1, []byte(resyncState)))
	check("groups before anything is known", Failure, p.NetworkRequest(begin, 1, []byte(`{"type":"GETGROUPS"}`)))
	p.Set(begin, worldOf(nil))
	check("another's host", NotExist, p.Request(begin, 1, []byte(strings.Replace(resyncState, "h1", "h9", 1))))
	for _, field := range []string{"resync_id", "hostname"} {
		check("without "+field, Invalid, p.Request(begin, 1, with(t, resyncState, map[string]any{field: nil})))
		check("wrong "+field, Invalid, p.Request(begin, 1, with(t, resyncState, map[string]any{field: 7})))
	}
	for _, garbage := range []string{"", "{", "7", "{}", `{"type":"X"}`} {
		check(garbage, Invalid, p.Request(begin, 1, []byte(garbage)))
		check(garbage, Invalid, p.NetworkRequest(begin, 1, []byte(garbage)))
	}
	expect(t, "heartbeat", p.Request(begin, 1, []byte(`{"type":"HEARTBEAT"}`)), `reply 1 {"type":"HEARTBEAT"}`)
}
