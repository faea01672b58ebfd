// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/long"
	"github.com/calico-go/calico/test/zmqpeer"
)

// felixHealth is where Felix serves its pages.
const felixHealth = 9099

// felix is a Felix between a plugin and an ACL manager of libzmq.
type felix struct {
	*roleRig
	plugin server
	acls   acls
	pub    *zmqpeer.Socket // XPUB: it receives subscriptions
	to     client          // who tells Felix
}

func newFelix(t *testing.T, args ...string) *felix {
	t.Helper()
	f := &felix{roleRig: newRoleRig(t, "felix", append([]string{"-plugin=127.0.0.1", "-acl-manager=127.0.0.1", "-health=127.0.0.1:9099"}, args...)...), acls: acls{of: map[string]message{}}}
	f.bind()
	f.start()
	f.to = client{f.peers.Connect("REQ", "127.0.0.1:9902", nil), f}
	return f
}

// bind binds the sockets of the plugin and the ACL manager.
func (f *felix) bind() {
	f.plugin = server{f.peers.Bind("ROUTER", "127.0.0.1:9901", nil), f}
	acl := server{f.peers.Bind("ROUTER", "127.0.0.1:9905", nil), f}
	f.pub = f.peers.Bind("XPUB", "127.0.0.1:9906", map[string]int{"XPUB_VERBOSE": 1})
	f.plugin.Echo(anyHeartbeat)
	acl.Echo(anyHeartbeat)
	f.pub.Beat("aclheartbeat", heartbeat)
	f.beside(func() { f.acls.serve(f.T, acl, f.pub) })
}

// resync answers the next RESYNCSTATE, and returns its ID.
func (f *felix) resync(count any) string {
	f.Helper()
	m, answer := f.plugin.next()
	if m["type"] != "RESYNCSTATE" || m["hostname"] != "a" || m["issued"] == nil {
		f.Fatalf("%v came, want RESYNCSTATE", m)
	}
	answer(message{"type": "RESYNCSTATE", "endpoint_count": count, "interface_prefix": "tap", "rc": "SUCCESS", "message": ""})
	return m["resync_id"].(string)
}

const (
	idA = "a935e8e1-008a-4e05-af4b-4b5701df417e"
	idB = "b46f0cbe-9d4e-4d3a-8c62-3f9b0d1c5a11"

	macA = "00:11:22:33:44:55"
	macB = "00:11:22:33:44:66"
)

func iface(id string) string { return "tap" + id[:11] }

// created is ENDPOINTCREATED as the document has it.
func created(id, addr string) message {
	return message{
		"type": "ENDPOINTCREATED", "endpoint_id": id, "interface_name": iface(id), "mac": macA, "state": "enabled", "resync_id": nil, "issued": 1410276720.54,
		"addrs": []any{message{"addr": addr, "gateway": "10.65.0.1", "properties": message{"gr": false}}},
	}
}

func updated(id, addr, state string) message {
	return created(id, addr).with(message{"type": "ENDPOINTUPDATED", "state": state, "interface_name": absent, "resync_id": absent})
}

// tell tells Felix something, and wants an answer of a return code.
func (f *felix) tell(m message, rc string) (text string) {
	f.Helper()
	got := f.to.ask(m.String())
	if got["rc"] != rc || got["type"] != m["type"] {
		f.Errorf("%v is answered by %v, want %s", m, got, rc)
	}
	text, _ = got["message"].(string)
	return text
}

// rules of one family that allow networks.
func rules(in, out string) message {
	list := func(cidr string) []any {
		if cidr == "" {
			return []any{}
		}
		return []any{message{"group": nil, "cidr": cidr, "protocol": nil, "port": nil}}
	}
	return message{"inbound": list(in), "outbound": list(out), "inbound_default": "deny", "outbound_default": "deny"}
}

func aclUpdate(in, out string) message {
	return message{"type": "ACLUPDATE", "acls": message{"v4": rules(in, out), "v6": rules("", "")}, "issued": 1410276720.54}
}

// acls are what the ACL manager says of endpoints: it answers GETACLSTATE, and publishes them.
type acls struct {
	mu sync.Mutex
	of map[string]message
}

// serve answers until the test ends.
func (a *acls) serve(t *testing.T, requests server, pub *zmqpeer.Socket) {
	for {
		var parts []string
		select {
		case <-t.Context().Done():
			return
		case parts = <-requests.Received():
		}
		var m message
		err := json.Unmarshal([]byte(parts[len(parts)-1]), &m)
		if m["type"] == "HEARTBEAT" { // it came before the socket answered by itself
			requests.Send(parts[0], "", heartbeat)
			continue
		}
		if err != nil || m["type"] != "GETACLSTATE" || m["issued"] == nil {
			t.Errorf("%q came, want GETACLSTATE", parts)
			return
		}
		id, _ := m["endpoint_id"].(string)
		requests.Send(parts[0], "", message{"type": "GETACLSTATE", "endpoint_id": id, "rc": "SUCCESS", "message": ""}.String())
		a.mu.Lock()
		acl := a.of[id]
		a.mu.Unlock()
		if acl != nil {
			pub.Send(id, acl.String())
		}
	}
}

// rule has endpoints have ACLs from now on.
func (f *felix) rule(acls map[string]message) {
	f.Helper()
	for id, acl := range acls {
		f.acls.mu.Lock()
		f.acls.of[id] = acl
		f.acls.mu.Unlock()
		f.pub.Send(id, acl.String())
	}
}

// reaches waits until one machine reaches another's address, or doesn't any more.
func (f *felix) reaches(from lab.Namespace, to string, want bool) {
	f.Helper()
	eventually.Nil(f, fmt.Sprintf("%s is reached: %t", to, want), func() error {
		if got, err := from.Answers(netip.MustParseAddr(to)); err != nil || got != want {
			return fmt.Errorf("%t, %v", got, err)
		}
		return nil
	})
}

// TestClassic walks through Felix: two machines are told and reach each other as their ACLs say, one is disabled and enabled
// again, Felix is killed and started again without a plugin, and what the plugin does not tell any more is removed.
func TestClassic(t *testing.T) {
	f := newFelix(t, "-acl-retry-interval=500ms", "-connection-timeout=1h")
	a, b := f.vm(iface(idA), macA, "10.65.0.2/32"), f.vm(iface(idB), macB, "10.65.0.3/32")
	id := f.resync("2")
	f.tell(created(idA, "10.65.0.2").with(message{"resync_id": id}), "SUCCESS")
	f.tell(created(idB, "10.65.0.3").with(message{"resync_id": id, "mac": macB}), "SUCCESS")
	f.rule(map[string]message{idA: aclUpdate("", "10.65.0.0/24"), idB: aclUpdate("10.65.0.2/32", "10.65.0.0/24")})
	f.says(felixHealth, "/readiness", "200 ok")
	f.reaches(a, "10.65.0.3", true)
	f.reaches(b, "10.65.0.2", false)

	f.tell(updated(idB, "10.65.0.3", "disabled").with(message{"mac": macB}), "SUCCESS")
	f.reaches(a, "10.65.0.3", false)
	f.tell(updated(idB, "10.65.0.3", "enabled").with(message{"mac": macB}), "SUCCESS")
	f.reaches(a, "10.65.0.3", true)

	f.kill()
	f.reaches(a, "10.65.0.3", true)
	f.start()
	f.says(felixHealth, "/readiness", "200 ok")
	f.reaches(a, "10.65.0.3", true)
	f.reaches(b, "10.65.0.2", false)
	f.rule(map[string]message{idB: aclUpdate("", "")})
	f.reaches(a, "10.65.0.3", false)
	f.rule(map[string]message{idB: aclUpdate("10.65.0.2/32", "")})
	f.reaches(a, "10.65.0.3", true)

	id = f.resync(1)
	f.tell(created(idA, "10.65.0.2").with(message{"resync_id": id}), "SUCCESS")
	f.reaches(a, "10.65.0.3", false)
	if text := f.tell(updated(idB, "10.65.0.3", "enabled"), "NOTEXIST"); !strings.Contains(text, idB) {
		t.Errorf("the message is %q", text)
	}
}

// TestFelixInvalid: a request that can't be used is answered by INVALID and the name of the field, whatever it is, and Felix
// goes on.
func TestFelixInvalid(t *testing.T) {
	long.Test(t)
	f := newFelix(t)
	f.resync(0)
	good := created(idA, "10.65.0.2")
	update := updated(idA, "10.65.0.2", "enabled")
	for field, wrong := range map[string][]any{
		"endpoint_id":    {absent, nil, 7, "", "a/b", strings.Repeat("x", 65), []any{}},
		"interface_name": {absent, nil, 7, "", "eth0", "tap0123456789abcd", "tap/x"},
		"addrs": {
			absent, nil, 7, "x", []any{7}, []any{message{}}, []any{message{"addr": 7}}, []any{message{"addr": "x"}}, []any{message{"addr": "10.65.0.2/24"}},
			[]any{message{"addr": "10.65.0.2", "gateway": "fd00::1"}}, []any{message{"addr": "10.65.0.2", "gateway": "x"}}, []any{message{"addr": "127.0.0.1"}},
			[]any{message{"addr": "10.65.0.2"}, message{"addr": "10.65.0.2"}},
		},
		"mac":       {absent, nil, 7, "", "00:11:22", "xx:11:22:33:44:55"},
		"state":     {absent, nil, 7, "", "up"},
		"resync_id": {absent, 7, []any{}},
	} {
		for _, v := range wrong {
			if text := f.tell(good.with(message{field: v}), "INVALID"); !strings.Contains(text, field) {
				t.Errorf("%s %v: the message is %q", field, v, text)
			}
			if _, also := update[field]; also {
				if text := f.tell(update.with(message{field: v}), "INVALID"); !strings.Contains(text, field) {
					t.Errorf("ENDPOINTUPDATED, %s %v: the message is %q", field, v, text)
				}
			}
		}
	}
	destroyed := message{"type": "ENDPOINTDESTROYED", "endpoint_id": idA, "issued": 1}
	if text := f.tell(destroyed.with(message{"endpoint_id": absent}), "INVALID"); text != `Missing "endpoint_id" field` {
		t.Errorf("the message is %q", text)
	}
	f.tell(destroyed, "NOTEXIST")
	f.tell(update, "NOTEXIST")
	f.tell(message{"type": "WHAT"}, "INVALID")
	for _, garbage := range []string{"", "{", "[]", "null", "7", `{"type":7}`, `{"type":null}`, "\u00ff\u00fe", strings.Repeat("[", 100000), strings.Repeat("x", 1<<20)} {
		if got := f.to.ask(garbage); got["rc"] != "INVALID" {
			t.Errorf("%.20q is answered by %v", garbage, got)
		}
	}
	// Of another kind: that peer loses its connection.
	for _, parts := range [][]string{{"", "a", "b"}, {"no delimiter"}, {"", strings.Repeat("x", 1<<20+1)}} {
		f.peers.Connect("DEALER", "127.0.0.1:9902", nil).Send(parts...)
	}
	f.tell(good, "SUCCESS")
	f.tell(good, "SUCCESS") // a repeat
	for _, accepted := range []message{{"issued": absent}, {"issued": "x"}, {"addrs": []any{}}, {"addrs": []any{message{"addr": "10.65.0.2"}}}, {"resync_id": "another"}, {"more": 1}} {
		f.tell(good.with(accepted), "SUCCESS")
	}
	f.tell(destroyed, "SUCCESS")
	f.says(felixHealth, "/readiness", "200 ok")
}

// TestFelixResync: an answer to RESYNCSTATE that is no success, or can't be read, removes nothing, and it is sent again.
func TestFelixResync(t *testing.T) {
	long.Test(t)
	f := newFelix(t, "-resync-retry-interval=10ms", "-connection-timeout=1h")
	good := message{"type": "RESYNCSTATE", "endpoint_count": 0, "interface_prefix": "tap", "rc": "SUCCESS", "message": ""}
	wrong := []message{
		{"rc": absent}, {"rc": nil}, {"rc": 7}, {"rc": "FAILURE", "message": "not yet"}, {"message": absent}, {"message": 7},
		{"endpoint_count": absent}, {"endpoint_count": nil}, {"endpoint_count": "x"}, {"endpoint_count": -1}, {"endpoint_count": 1.5},
		{"interface_prefix": absent}, {"interface_prefix": nil}, {"interface_prefix": ""}, {"interface_prefix": 7}, {"interface_prefix": "a-very-long-prefix"}, {"type": "WHAT"}, {"type": absent},
	}
	refuse := func() {
		t.Helper()
		for _, w := range wrong {
			m, answer := f.plugin.next()
			if m["type"] != "RESYNCSTATE" {
				t.Fatalf("%v came, want RESYNCSTATE", m)
			}
			answer(good.with(w))
			for field := range w {
				if field != "rc" || w[field] != "FAILURE" {
					f.says(felixHealth, "/debug/invalid", "nothing is removed")
				}
			}
		}
	}
	refuse()
	f.says(felixHealth, "/readiness", "503 the plugin has not been read yet: it is abandoned")
	a, b := f.vm(iface(idA), macA, "10.65.0.2/32"), f.vm(iface(idB), macB, "10.65.0.3/32")
	id := f.resync(2)
	f.tell(created(idA, "10.65.0.2").with(message{"resync_id": id}), "SUCCESS")
	f.tell(created(idB, "10.65.0.3").with(message{"resync_id": id, "mac": macB}), "SUCCESS")
	f.rule(map[string]message{idA: aclUpdate("10.65.0.0/24", "10.65.0.0/24"), idB: aclUpdate("10.65.0.0/24", "10.65.0.0/24")})
	f.reaches(a, "10.65.0.3", true)
	f.says(felixHealth, "/debug/invalid", "every object and setting is in order")

	f.kill()
	f.start()
	refuse()
	f.reaches(b, "10.65.0.2", true)
	id = f.resync(2)
	// Those of another resynchronisation apply and do not count; repeats count once.
	for _, other := range []any{nil, "another", id, id} {
		f.tell(created(idA, "10.65.0.2").with(message{"resync_id": other}), "SUCCESS")
	}
	f.reaches(b, "10.65.0.2", true)
	const idC = "c35c1df2-8c3e-4f8a-9d5f-6b7f1a2e3d44"
	f.tell(created(idC, "10.65.0.4").with(message{"resync_id": id, "mac": macB}), "SUCCESS")
	f.reaches(b, "10.65.0.2", false) // B was not refreshed
}

// TestFelixSilence: a connection that is silent for the connection timeout is made anew, and what was programmed stays.
func TestFelixSilence(t *testing.T) {
	long.Test(t)
	f := newFelix(t, "-connection-timeout=6s", "-heartbeat-interval=500ms")
	a, b := f.vm(iface(idA), macA, "10.65.0.2/32"), f.vm(iface(idB), macB, "10.65.0.3/32")
	first, _ := f.plugin.next() // is not answered
	second, answer := f.plugin.next()
	if first["resync_id"] == second["resync_id"] || second["type"] != "RESYNCSTATE" {
		t.Errorf("after silence comes %v, want RESYNCSTATE with another ID than %v", second, first)
	}
	answer(message{"type": "RESYNCSTATE", "endpoint_count": 2, "interface_prefix": "tap", "rc": "SUCCESS", "message": ""})
	id, _ := second["resync_id"].(string)
	f.tell(created(idA, "10.65.0.2").with(message{"resync_id": id}), "SUCCESS")
	id = f.resync(2) // as the other never came
	f.tell(created(idA, "10.65.0.2").with(message{"resync_id": id}), "SUCCESS")
	f.tell(created(idB, "10.65.0.3").with(message{"resync_id": id, "mac": macB}), "SUCCESS")
	all := aclUpdate("10.65.0.0/24", "10.65.0.0/24")
	f.rule(map[string]message{idA: all, idB: all})
	f.reaches(a, "10.65.0.3", true)
	f.pub.Beat("another", heartbeat) // no publication comes any more: Felix connects anew, and asks for all
	f.acls.mu.Lock()
	f.acls.of[idB] = aclUpdate("", "")
	f.acls.mu.Unlock()
	f.reaches(a, "10.65.0.3", false)
	f.pub.Beat("aclheartbeat", heartbeat)
	f.rule(map[string]message{idB: all})
	f.reaches(b, "10.65.0.2", true)
	// All peers go, and others come.
	f.peers.Kill()
	f.says(felixHealth, "/readiness", "at 127.0.0.1:9901: ")
	f.reaches(b, "10.65.0.2", true)
	f.peers = f.process()
	f.bind()
	f.to = client{f.peers.Connect("REQ", "127.0.0.1:9902", nil), f}
	id = f.resync(1)
	f.tell(created(idB, "10.65.0.3").with(message{"resync_id": id, "mac": macB}), "SUCCESS")
	f.reaches(b, "10.65.0.2", false)
}

// TestFelixACLs: an ACLUPDATE that can't be used keeps the last one and is listed until one can.
func TestFelixACLs(t *testing.T) {
	long.Test(t)
	f := newFelix(t, "-connection-timeout=1h")
	a, b := f.vm(iface(idA), macA, "10.65.0.2/32"), f.vm(iface(idB), macB, "10.65.0.3/32")
	f.resync(0)
	f.tell(created(idA, "10.65.0.2"), "SUCCESS")
	f.tell(created(idB, "10.65.0.3").with(message{"mac": macB}), "SUCCESS")
	good := aclUpdate("10.65.0.0/24", "10.65.0.0/24")
	f.reaches(a, "10.65.0.3", false) // all is denied until ACLs come
	f.rule(map[string]message{idA: good, idB: good})
	f.reaches(a, "10.65.0.3", true)
	acls := func(v any) message { return message{"acls": v} }
	for _, w := range []message{
		{"acls": absent}, acls(nil), acls(7), acls(message{"v4": 7}), acls(message{"v4": message{"inbound": 7}}), {"type": absent}, {"type": 7},
	} {
		f.pub.Send(idB, good.with(w).String())
		f.says(felixHealth, "/debug/invalid", "ACLs of endpoint "+idB)
		f.reaches(a, "10.65.0.3", true)
		f.pub.Send(idB, good.String())
		f.says(felixHealth, "/debug/invalid", "every object and setting is in order")
	}
	// A rule that can't is left out, and the rest applies.
	some := good.with(acls(message{"v4": message{"inbound": []any{message{"cidr": "x"}, message{"cidr": "10.65.0.2/32"}}, "outbound": []any{}}}))
	f.pub.Send(idB, some.String())
	f.says(felixHealth, "/debug/invalid", "rule 0 of inbound is left out")
	f.reaches(a, "10.65.0.3", true)
	f.reaches(b, "10.65.0.2", false)
	f.pub.Send(idB, good.with(message{"type": "WHAT"}).String()) // another message is none of Felix's
	f.pub.Send(idB, good.String())
	f.reaches(b, "10.65.0.2", true)
}

// TestFelixStrict: with strict interfaces an endpoint is refused whose interface isn't there, and without it is waited for.
func TestFelixStrict(t *testing.T) {
	long.Test(t)
	f := newFelix(t, "-strict-interfaces=true")
	f.resync(0)
	if text := f.tell(created(idA, "10.65.0.2"), "ENOINTERFACE"); !strings.Contains(text, iface(idA)) {
		t.Errorf("the message is %q", text)
	}
	f.vm(iface(idA), macA, "10.65.0.2/32")
	f.tell(created(idA, "10.65.0.2"), "SUCCESS")
}
