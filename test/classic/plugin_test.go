// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/calico-go/calico/pkg/classic/source"
	"github.com/calico-go/calico/test/long"
	"github.com/calico-go/calico/test/zmqpeer"
)

const pluginHealth = 9097

// plugin is a plugin between a Felix and an ACL manager of libzmq, with etcd.
type plugin struct {
	*roleRig
	etcd   *clientv3.Client
	felix  client          // who asks for endpoints
	told   server          // REP that is told of them
	acl    client          // who asks for groups
	groups *zmqpeer.Socket // SUB
}

func newPlugin(t *testing.T, args ...string) *plugin {
	t.Helper()
	p := &plugin{roleRig: newRoleRig(t, "plugin", append([]string{"-hosts=h=127.0.0.1", "-network-heartbeat-interval=200ms"}, args...)...)}
	c, err := clientv3.New(clientv3.Config{Endpoints: p.lab.Members().Sockets(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p.etcd = c
	p.start()
	p.connect()
	return p
}

func (p *plugin) connect() {
	p.felix = client{p.peers.Connect("REQ", "127.0.0.1:9901", nil), p}
	p.acl = client{p.peers.Connect("REQ", "127.0.0.1:9903", nil), p}
	p.groups = p.peers.Connect("SUB", "127.0.0.1:9904", nil)
	p.told = server{p.peers.Bind("ROUTER", "127.0.0.1:9902", nil), p}
	p.told.Echo(anyHeartbeat)
}

// put writes to etcd; "" deletes.
func (p *plugin) put(path, value string) {
	p.Helper()
	var err error
	if value == "" {
		_, err = p.etcd.Delete(p.Context(), path)
	} else {
		_, err = p.etcd.Put(p.Context(), path, value)
	}
	if err != nil {
		p.Fatal(err)
	}
}

func endpointPath(host, id string) string {
	return "/calico/v1/host/" + host + "/workload/openstack/vm/endpoint/" + id
}

func endpointSpec(id, addr string) string {
	return `{"state":"active","name":"` + iface(id) + `","mac":"` + macA + `","profile_ids":["web"],"ipv4_nets":["` + addr + `/32"],"ipv4_gateway":"10.65.0.1"}`
}

// resync asks for all endpoints, and returns how many there are.
func (p *plugin) resync(id string) message {
	p.Helper()
	return p.felix.ask(message{"type": "RESYNCSTATE", "resync_id": id, "issued": 1410276720.54, "hostname": "h"}.String())
}

// hears wants the next thing that Felix is told, and answers it.
func (p *plugin) hears(kind, id, rc string, fields message) {
	p.Helper()
	m, answer := p.told.next()
	for field, want := range fields.with(message{"type": kind, "endpoint_id": id}) {
		if got := m[field]; got != want {
			p.Errorf("%s of %s: %s is %v, want %v", kind, id, field, got, want)
		}
	}
	if m["issued"] == nil {
		p.Errorf("%v has no issued", m)
	}
	answer(message{"type": m["type"], "rc": rc, "message": ""})
}

// publishes waits for a group with these members.
func (p *plugin) publishes(id string, members ...string) message {
	p.Helper()
	for {
		parts := p.groups.Receive()
		if parts[0] != "groups" {
			continue
		}
		m := read(p, parts[1])
		var got []string
		for of := range m["members"].(map[string]any) {
			got = append(got, of)
		}
		slices.Sort(got)
		if m["type"] == "GROUPUPDATE" && m["group"] == id && slices.Equal(got, members) && m["issued"] != nil {
			return m
		}
	}
}

// TestPlugin walks through the plugin: Felix is told the endpoints that etcd has for its host, and the ACL manager profiles as
// groups.
func TestPlugin(t *testing.T) {
	long.Test(t)
	p := newPlugin(t, "-heartbeat-interval=200ms")
	if got := p.felix.ask(message{"type": "RESYNCSTATE", "resync_id": "1", "issued": 1, "hostname": "other"}.String()); got["rc"] != "NOTEXIST" {
		t.Errorf("another host's RESYNCSTATE is answered by %v", got)
	}
	p.says(pluginHealth, "/readiness", "200 ok")
	p.groups.Subscribe("groups")
	p.groups.Subscribe("networkheartbeat")
	for p.groups.Receive()[0] != "networkheartbeat" {
	}
	p.put("/calico/v1/policy/profile/web/rules", `{"inbound_rules":[{"action":"allow","protocol":"tcp","dst_ports":[80]}],"outbound_rules":[{"action":"allow"}]}`)
	p.put("/calico/v1/policy/profile/web/tags", `["web"]`)
	p.put(endpointPath("h", idA), endpointSpec(idA, "10.65.0.2"))
	web := source.GroupID("web")
	g := p.publishes(web, idA)
	if got := message(g["rules"].(map[string]any)).String(); !strings.Contains(got, `"inbound":[{"cidr":"0.0.0.0/0","group":null,"port":80,"protocol":"tcp"}`) {
		t.Errorf("the rules of the group are %s", got)
	}

	if got := p.resync("id1"); got["rc"] != "SUCCESS" || got["endpoint_count"] != 1.0 || got["interface_prefix"] != "tap" || got["message"] != "" {
		t.Errorf("RESYNCSTATE is answered by %v", got)
	}
	p.put(endpointPath("h", idB), endpointSpec(idB, "10.65.0.3")) // it comes after what was counted
	p.hears("ENDPOINTCREATED", idA, "SUCCESS", message{"resync_id": "id1", "interface_name": iface(idA), "mac": macA, "state": "enabled"})
	p.hears("ENDPOINTCREATED", idB, "SUCCESS", message{"resync_id": nil})
	p.publishes(web, idA, idB)
	p.put(endpointPath("h", idB), strings.Replace(endpointSpec(idB, "10.65.0.3"), "active", "inactive", 1))
	p.hears("ENDPOINTUPDATED", idB, "SUCCESS", message{"state": "disabled"})
	p.put(endpointPath("h", idB), endpointSpec(idB, "10.65.0.3"))
	p.hears("ENDPOINTUPDATED", idB, "NOTEXIST", message{"state": "enabled"})
	p.hears("ENDPOINTCREATED", idB, "SUCCESS", message{"resync_id": nil}) // as Felix doesn't know it
	p.put(endpointPath("h", idB), "")
	p.hears("ENDPOINTDESTROYED", idB, "SUCCESS", nil)
	p.publishes(web, idA)

	if got := p.acl.ask(`{"type":"GETGROUPS","issued":1}`); got["rc"] != "SUCCESS" || got["type"] != "GETGROUPS" || got["message"] != "" {
		t.Errorf("GETGROUPS is answered by %v", got)
	}
	p.publishes(web, idA)
	late := p.peers.Connect("SUB", "127.0.0.1:9904", nil)
	p.groups, late = late, p.groups
	p.groups.Subscribe("groups")
	p.publishes(web, idA)
	late.Close()
	p.groups.Subscribe("networkheartbeat")
	for p.groups.Receive()[0] != "networkheartbeat" {
	}

	// A Felix that doesn't answer is told nothing until it asks; then everything.
	p.put(endpointPath("h", idA), endpointSpec(idA, "10.65.0.9"))
	if m, _ := p.told.next(); m["type"] != "ENDPOINTUPDATED" {
		t.Errorf("%v came, want ENDPOINTUPDATED", m)
	}
	p.says(pluginHealth, "/debug/invalid", "host h")
	p.says(pluginHealth, "/debug/invalid", "is told nothing until it asks")
	if got := p.resync("id2"); got["endpoint_count"] != 1.0 {
		t.Errorf("RESYNCSTATE is answered by %v", got)
	}
	p.hears("ENDPOINTCREATED", idA, "SUCCESS", message{"resync_id": "id2"})
	p.says(pluginHealth, "/debug/invalid", "every object and setting is in order")

	p.kill()
	p.put(endpointPath("h", idA), "")
	p.start()
	p.peers.Kill()
	p.peers = p.process()
	p.connect()
	for got := p.resync("id3"); got["endpoint_count"] != 0.0 || got["rc"] != "SUCCESS"; got = p.resync("id3") {
		if got["rc"] != "FAILURE" { // etcd isn't read yet
			t.Fatalf("RESYNCSTATE is answered by %v", got)
		}
	}
}

// TestPluginInvalid: a request that can't be used is answered by INVALID, and what these APIs can't say is listed.
func TestPluginInvalid(t *testing.T) {
	long.Test(t)
	p := newPlugin(t)
	p.says(pluginHealth, "/readiness", "200 ok")
	good := message{"type": "RESYNCSTATE", "resync_id": "1", "issued": 1, "hostname": "h"}
	for _, w := range []message{{"resync_id": absent}, {"resync_id": nil}, {"resync_id": 7}, {"hostname": absent}, {"hostname": nil}, {"hostname": 7}, {"type": "WHAT"}, {"type": 7}} {
		if got := p.felix.ask(good.with(w).String()); got["rc"] != "INVALID" {
			t.Errorf("%v is answered by %v", w, got)
		}
	}
	for _, garbage := range []string{"", "{", "[]", "null", strings.Repeat("x", 1<<20)} {
		for _, c := range []client{p.felix, p.acl} {
			if got := c.ask(garbage); got["rc"] != "INVALID" {
				t.Errorf("%.20q is answered by %v", garbage, got)
			}
		}
	}
	p.put("/calico/v1/policy/profile/web/rules", `{"inbound_rules":[{"action":"allow","src_selector":"a=='b'"}],"outbound_rules":[]}`)
	p.put(endpointPath("h", idA), strings.Replace(endpointSpec(idA, "10.65.0.2"), `"name":"tap`, `"name":"cali`, 1))
	p.says(pluginHealth, "/debug/invalid", "profile web")
	p.says(pluginHealth, "/debug/invalid", "does not begin with tap")
	p.put("/calico/v1/policy/profile/web/rules", `{"inbound_rules":[],"outbound_rules":[]}`)
	p.put(endpointPath("h", idA), endpointSpec(idA, "10.65.0.2"))
	p.says(pluginHealth, "/debug/invalid", "every object and setting is in order")
}
