// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/calico-go/calico/test/long"
	"github.com/calico-go/calico/test/zmqpeer"
)

const managerHealth = 9096

// manager is an ACL manager between a plugin and Felixes of libzmq.
type manager struct {
	*roleRig
	plugin server
	pub    *zmqpeer.Socket // XPUB of groups: it receives subscriptions
	felix  client          // who asks for ACLs
	acls   *zmqpeer.Socket // SUB

	mu     sync.Mutex
	groups []message    // that the plugin has
	asked  atomic.Int32 // for them
	silent atomic.Bool  // the plugin answers nothing
}

func newManager(t *testing.T, args ...string) *manager {
	t.Helper()
	m := &manager{roleRig: newRoleRig(t, "acl-manager", append([]string{"-plugin=127.0.0.1", "-acl-heartbeat-interval=200ms"}, args...)...)}
	m.bind()
	m.start()
	m.connect()
	return m
}

func (m *manager) bind() {
	m.plugin = server{m.peers.Bind("ROUTER", "127.0.0.1:9903", nil), m}
	m.pub = m.peers.Bind("XPUB", "127.0.0.1:9904", map[string]int{"XPUB_VERBOSE": 1})
	m.plugin.Echo(anyHeartbeat)
	m.pub.Beat("networkheartbeat", heartbeat)
	m.beside(func() { m.serve(m.plugin, m.pub) })
}

func (m *manager) connect() {
	m.felix = client{m.peers.Connect("REQ", "127.0.0.1:9905", nil), m}
	m.acls = m.peers.Connect("SUB", "127.0.0.1:9906", nil)
}

// serve answers GETGROUPS until the test ends.
func (m *manager) serve(requests server, pub *zmqpeer.Socket) {
	for {
		var parts []string
		select {
		case <-m.Context().Done():
			return
		case parts = <-requests.Received():
		}
		var request message
		if err := json.Unmarshal([]byte(parts[len(parts)-1]), &request); err != nil || request["type"] != "GETGROUPS" || request["issued"] == nil {
			m.Errorf("%q came, want GETGROUPS", parts)
			return
		}
		m.asked.Add(1)
		if m.silent.Load() {
			continue
		}
		requests.Send(parts[0], "", message{"type": "GETGROUPS", "rc": "SUCCESS", "message": ""}.String())
		m.mu.Lock()
		groups := m.groups
		m.mu.Unlock()
		for _, g := range groups {
			pub.Send("groups", g.String())
		}
		pub.Send("networkheartbeat", heartbeat)
	}
}

// has has the plugin know these groups, which it publishes where the ACL manager is connected.
func (m *manager) has(groups ...message) {
	m.Helper()
	m.mu.Lock()
	m.groups = groups
	m.mu.Unlock()
	m.publish(groups...)
}

func (m *manager) publish(groups ...message) {
	m.Helper()
	for _, g := range groups {
		m.pub.Send("groups", g.String())
	}
}

func group(id string, in []any, members message) message {
	return message{"type": "GROUPUPDATE", "group": id, "members": members, "issued": 1, "rules": message{"inbound": in, "outbound": []any{}, "inbound_default": "deny", "outbound_default": "deny"}}
}

func from(group, cidr any) message {
	return message{"group": group, "cidr": cidr, "protocol": "tcp", "port": 80}
}

// allows waits for a publication of an endpoint by which these networks may connect to it.
func (m *manager) allows(id string, cidrs ...string) {
	m.Helper()
	for {
		parts := m.acls.Receive()
		if parts[0] != id {
			continue
		}
		var got []string
		acl := read(m, parts[1])
		for _, family := range []string{"v4", "v6"} {
			for _, r := range acl["acls"].(map[string]any)[family].(map[string]any)["inbound"].([]any) {
				got = append(got, fmt.Sprint(r.(map[string]any)["cidr"]))
			}
		}
		slices.Sort(got)
		if slices.Equal(got, cidrs) && acl["type"] == "ACLUPDATE" {
			return
		}
	}
}

// TestManager walks through the ACL manager: groups become ACLs of endpoints, over each connection and each life anew.
func TestManager(t *testing.T) {
	long.Test(t)
	m := newManager(t)
	web, db := group("web", []any{from("db", nil), from(nil, "192.0.2.0/24")}, message{idA: []any{"10.65.0.2", "fd00::2"}}), group("db", nil, message{idB: []any{"10.65.0.3", "fd00::3"}})
	m.has(web, db)
	m.says(managerHealth, "/readiness", "200 ok")
	m.acls.Subscribe("aclheartbeat")
	if got := m.acls.Receive(); got[0] != "aclheartbeat" || read(t, got[1])["type"] != "HEARTBEAT" || read(t, got[1])["issued"] == nil {
		t.Errorf("%q came, want a sign of life", got)
	}
	m.acls.Unsubscribe("aclheartbeat")

	m.acls.Subscribe(idA) // is told what is so
	m.allows(idA, "10.65.0.3/32", "192.0.2.0/24", "fd00::3/128")
	second := m.acls
	m.acls = m.peers.Connect("SUB", "127.0.0.1:9906", nil)
	m.acls.Subscribe(idA) // as a second subscriber is
	m.allows(idA, "10.65.0.3/32", "192.0.2.0/24", "fd00::3/128")
	second.Close()

	ask := message{"type": "GETACLSTATE", "endpoint_id": idA, "issued": 1410276720.54}
	for _, id := range []string{idA, "unknown"} {
		m.acls.Subscribe(id)
		if got := m.felix.ask(ask.with(message{"endpoint_id": id}).String()); got["rc"] != "SUCCESS" || got["endpoint_id"] != id || got["message"] != "" {
			t.Errorf("GETACLSTATE of %s is answered by %v", id, got)
		}
	}
	m.allows("unknown")
	if got := m.felix.ask(heartbeat); got["type"] != "HEARTBEAT" {
		t.Errorf("a sign of life is answered by %v", got)
	}

	m.publish(group("db", nil, message{idB: []any{"10.65.0.4"}}))
	m.allows(idA, "10.65.0.4/32", "192.0.2.0/24")
	m.publish(group("db", nil, message{}))
	m.allows(idA, "192.0.2.0/24")
	m.publish(group("web", nil, message{}))
	m.allows(idA) // it is in no group, and denies
	m.publish(web, db)
	m.allows(idA, "10.65.0.3/32", "192.0.2.0/24", "fd00::3/128")

	// The plugin is another one, and a group was deleted meanwhile.
	m.peers.Kill()
	m.says(managerHealth, "/readiness", "at 127.0.0.1:9903: ")
	m.peers = m.process()
	m.mu.Lock()
	m.groups = []message{web}
	m.mu.Unlock()
	m.silent.Store(true)
	m.bind()
	m.connect()
	m.acls.Subscribe(idA)
	m.allows(idA, "10.65.0.3/32", "192.0.2.0/24", "fd00::3/128")
	m.silent.Store(false)
	m.kill()
	m.start()
	m.allows(idA, "192.0.2.0/24")
	m.has(web, db)
	m.allows(idA, "10.65.0.3/32", "192.0.2.0/24", "fd00::3/128")
}

// TestManagerInvalid: a GROUPUPDATE that can't be used leaves the group as it was and is listed until one can; a request is
// answered by INVALID.
func TestManagerInvalid(t *testing.T) {
	long.Test(t)
	m := newManager(t)
	good := group("web", []any{from(nil, "192.0.2.0/24")}, message{idA: []any{"10.65.0.2"}})
	m.has(good)
	m.acls.Subscribe(idA)
	m.allows(idA, "192.0.2.0/24")
	for _, w := range []message{
		{"rules": absent}, {"rules": nil}, {"rules": 7}, {"rules": message{"inbound": 7}}, {"members": absent}, {"members": nil}, {"members": 7}, {"members": message{idA: 7}},
		{"members": message{idA: []any{"x"}}}, {"members": message{"a/b": []any{}}}, {"members": message{idA: nil}},
	} {
		m.has(good.with(w))
		m.says(managerHealth, "/debug/invalid", "group web")
		m.has(good)
		m.says(managerHealth, "/debug/invalid", "every object and setting is in order")
	}
	for _, garbage := range []string{"", "{", "[]", "null"} {
		m.pub.Send("groups", garbage)
	}
	m.pub.Send("groups", good.with(message{"group": absent}).String())
	m.pub.Send("groups") // one part: the plugin's connection is made anew
	m.has(group("web", []any{from(nil, "x"), from("g", "10.0.0.0/8"), from(nil, "198.51.100.0/24")}, message{idA: []any{"10.65.0.2"}}))
	m.allows(idA, "198.51.100.0/24")
	m.says(managerHealth, "/debug/invalid", "rule 0 of inbound is left out")
	m.says(managerHealth, "/debug/invalid", "rule 1 of inbound is left out")
	for _, request := range []string{`{"type":"GETACLSTATE"}`, `{"type":"GETACLSTATE","endpoint_id":null}`, `{"type":"GETACLSTATE","endpoint_id":7}`, `{"type":"WHAT"}`, "", "{", strings.Repeat("x", 1<<20)} {
		if got := m.felix.ask(request); got["rc"] != "INVALID" {
			t.Errorf("%.40q is answered by %v", request, got)
		}
	}
}

// TestManagerSilence: a plugin that is silent for the connection timeout is connected to anew, and asked for all groups.
func TestManagerSilence(t *testing.T) {
	long.Test(t)
	m := newManager(t, "-connection-timeout=2s")
	web := group("web", []any{from(nil, "192.0.2.0/24")}, message{idA: []any{"10.65.0.2"}})
	db := group("db", []any{from(nil, "198.51.100.0/24")}, message{idB: []any{"10.65.0.3"}})
	m.has(web, db)
	m.acls.Subscribe(idA)
	m.acls.Subscribe(idB)
	m.allows(idA, "192.0.2.0/24")
	m.silent.Store(true)
	m.pub.Beat("another", heartbeat) // nothing comes any more
	for asked := m.asked.Load(); m.asked.Load() < asked+2; {
		m.says(managerHealth, "/liveness", "200 ok")
	}
	m.mu.Lock()
	m.groups = []message{web}
	m.mu.Unlock()
	m.silent.Store(false)
	m.pub.Beat("networkheartbeat", heartbeat)
	m.allows(idB) // its group was deleted meanwhile
}
