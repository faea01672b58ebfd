// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

func TestDelOfWhatIsGone(t *testing.T) {
	r := newRig(t, small())
	conf := r.conf(nil)
	pod := r.pod("pod")
	key := model.WorkloadEndpointKey{Host: "a", Orchestrator: "cni", Workload: "c1", Endpoint: "eth0"}
	handle := model.HandleKey{ID: "net1.c1.eth0"}
	for name, lose := range map[string]func(*lab.Call){
		"nothing":     func(*lab.Call) {},
		"netns":       func(c *lab.Call) { c.Netns = "/run/netns/gone" },
		"empty netns": func(c *lab.Call) { c.Netns = "" },
		"link":        func(*lab.Call) { r.sh("ip link del " + r.links()[0]) },
		"endpoint":    func(*lab.Call) { r.delete(key) },
		"handle":      func(*lab.Call) { r.delete(handle) },
		"handle and link": func(*lab.Call) {
			r.delete(handle)
			r.sh("ip link del " + r.links()[0])
		},
		"handle and endpoint":  func(*lab.Call) { r.delete(handle); r.delete(key) },
		"what the handle says": func(*lab.Call) { r.putText(handle, "7") },
		"what the handle in its older place says": func(*lab.Call) {
			r.putText(model.HandleKey{ID: handle.ID, Legacy: true}, "7")
		},
		"all of etcd but the pools": func(*lab.Call) {
			var c model.Change
			for _, e := range r.sound() {
				switch e.Key.(type) {
				case model.PoolKey:
				default:
					c.Deletes = append(c.Deletes, e.Key)
				}
			}
			if _, err := r.lab.Etcd().Commit(r.ctx(), c); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r.put(model.ReadyKey{}, model.Ready(true))
			c := call(pod, conf)
			r.add(c)
			lose(&c)
			for range 2 {
				if out := r.must(verb("DEL", c)).Stdout; len(out) != 0 {
					t.Errorf("DEL wrote %s", out)
				}
			}
			r.empty()
		})
	}
	never := verb("DEL", call("", conf))
	never.ContainerID = "never-seen"
	r.must(never)
	// No ADD succeeds with such arguments, but the pod must be deletable all the same.
	never.Args = "A=1;IP=here"
	if reply := r.must(never); !strings.Contains(string(reply.Stderr), "CNI_ARGS: IP: want an IP address") {
		t.Errorf("no warning: %s", reply.Stderr)
	}
}

func TestDelByAnotherName(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	c.Args = k8sArgs
	r.add(c)
	c.Args = ""
	r.must(verb("DEL", c))
	r.empty()
}

// TestDelByAnotherNode deletes a container that was added before its node got another name.
func TestDelByAnotherNode(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	r.add(c)
	c.Stdin = r.conf(map[string]any{"nodename": "renamed"})
	r.must(verb("DEL", c))
	r.empty()
}

// TestSameContainerElsewhere: two live hosts have a container with the same ID.
func TestSameContainerElsewhere(t *testing.T) {
	cfg := small()
	cfg.Hosts, cfg.NoAgent, cfg.NoFsync = []string{"a", "b"}, true, true
	l := lab.ForTest(t, cfg)
	r, other := &rig{t, l, l.Host("a")}, &rig{t, l, l.Host("b")}
	r.put(model.StatusKey{Host: "a"}, model.Status{Time: time.Now()})
	r.put(model.StatusKey{Host: "b"}, model.Status{Time: time.Now()})
	for i, plugin := range []string{"calico", "calico-ipam"} {
		c := call(r.pod(plugin+"-a"), r.conf(nil))
		c.Plugin = plugin
		r.must(c)
		var before, after []string
		for _, e := range r.sound() {
			before = append(before, fmt.Sprintf("%s %d", e.Path, e.Revision))
		}
		same := call(r.pod(plugin+"-b"), other.conf(nil))
		same.Plugin = plugin
		other.fails(same, 105, fmt.Sprintf("address 10.1.0.%d: node a has it for a container of the same id, as handle net1.c1.eth0", i))
		other.must(verb("DEL", same))
		for _, e := range r.sound() {
			after = append(after, fmt.Sprintf("%s %d", e.Path, e.Revision))
		}
		if d := cmp.Diff(before, after); d != "" {
			t.Errorf("%s: after a DEL on another node (-before +after):\n%s", plugin, d)
		}
		r.must(verb("DEL", c))
	}
	r.empty()
	other.empty()
}

func TestLinksOfOthers(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	hostIf := r.add(c).Interfaces[0].Name
	r.must(verb("DEL", c))

	// Something else has the name.
	r.sh("ip link add " + hostIf + " type bridge")
	r.fails(c, 106, "host interface "+hostIf+` exists and is not one of calico's (kind "bridge", alias "")`)
	r.must(verb("DEL", c))
	r.sh("ip link del " + hostIf)
	r.sh("ip link add " + hostIf + " type veth peer name peer0")
	r.fails(c, 106, "host interface "+hostIf+" exists and is not one of calico's (a veth with both ends on the host)")
	r.must(verb("DEL", c))
	r.must(withAttachments(r, lab.Call{Verb: "GC", Stdin: c.Stdin}))
	r.sh("ip link del " + hostIf)

	// Another live endpoint uses it.
	r.sh("ip link add " + hostIf + " type veth peer name peer0; ip link set " + hostIf + " alias 'calico net1.other.eth0'")
	other := model.WorkloadEndpointKey{Host: "a", Orchestrator: "cni", Workload: "other", Endpoint: "eth0"}
	r.put(other, model.WorkloadEndpoint{State: model.StateActive, Name: hostIf, ContainerID: "other"})
	r.fails(c, 106, "host interface "+hostIf+" belongs to "+other.Path())
	r.must(verb("DEL", c))
	if got := r.links(); !slices.Equal(got, []string{hostIf}) {
		t.Errorf("links %v", got)
	}
	// It has no owner any more.
	if _, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{other}}); err != nil {
		t.Fatal(err)
	}
	r.add(c)
	r.must(verb("DEL", c))

	// A process died before it had set the alias.
	half := "ip link add " + hostIf + " type veth peer name peer0 netns " + c.Netns
	r.sh(half)
	r.add(c)
	r.must(verb("DEL", c))
	r.sh(half)
	r.must(verb("DEL", c))

	// The pod has an interface of the name.
	r.sh("nsenter --net=" + c.Netns + " ip link add eth0 type bridge")
	r.fails(c, 106, "make veth "+hostIf+": the namespace "+c.Netns+" has an interface eth0 already: file already exists")
	r.sh("nsenter --net=" + c.Netns + " ip link del eth0")
	r.empty()
}

// TestTwoNetworks: a container joins a second network through the interface that the first one made, and through
// another one.
func TestTwoNetworks(t *testing.T) {
	r := newRig(t, small())
	one := call(r.pod("pod"), r.conf(nil))
	two := one
	two.Stdin = r.conf(map[string]any{"name": "net2"})
	reply := r.must(one)
	hostIf, before := r.links()[0], r.endpoints()
	r.fails(two, 106, "interface eth0 of the container is another network's: "+hostIf+` has the alias "calico net1.c1.eth0"`)
	r.must(verb("DEL", two)) // as runtimes do then
	if ep := r.endpoints()["cni c1 eth0"]; !ep.Equal(before["cni c1 eth0"]) {
		t.Errorf("endpoint %+v", ep)
	}
	if got := r.handles(); !slices.Equal(got, []string{"net1.c1.eth0"}) {
		t.Errorf("handles %v", got)
	}
	r.must(verb("CHECK", withResult(r, one, reply)))
	two.IfName = "net1"
	second := r.must(two)
	r.must(verb("CHECK", withResult(r, two, second)))
	r.must(verb("CHECK", withResult(r, one, reply)))
	rules := func() int {
		return strings.Count(r.sh("nsenter --net="+one.Netns+" sh -c 'ip -4 rule; ip -6 rule'"), "lookup 8")
	}
	if n := rules(); n != 2 {
		t.Errorf("%d rules for two addresses", n)
	}
	v4 := prefix(r.result(second).IPs[0].Address.String()).Addr()
	r.sh("nsenter --net=" + one.Netns + " ip rule del from " + v4.String())
	r.fails(verb("CHECK", withResult(r, two, second)), 107, "what the container sends from "+v4.String()+
		" does not leave by net1: the routing rule for that, or its table, is gone")
	r.must(two) // again
	r.must(verb("CHECK", withResult(r, two, second)))
	// Each goes without harm to the other.
	r.must(verb("DEL", two))
	r.must(verb("CHECK", withResult(r, one, reply)))
	if again := r.must(two); !bytes.Contains(again.Stdout, []byte("0.0.0.0/0")) {
		t.Errorf("the second network again: %s", again.Stdout)
	}
	if n := rules(); n != 2 {
		t.Errorf("%d rules: those of the interface that is gone stay", n)
	}
	r.must(verb("DEL", one))
	r.must(verb("DEL", two))
	r.empty()
}

func TestGC(t *testing.T) {
	r := newRig(t, lab.Config{})
	conf := r.conf(nil)
	other := r.conf(map[string]any{"name": "net1.b"}) // its handles begin like net1's
	var calls []lab.Call
	for i := range 4 {
		c := call(r.pod(fmt.Sprintf("pod%d", i)), conf)
		c.ContainerID = fmt.Sprintf("c%d", i)
		r.add(c)
		calls = append(calls, c)
	}
	foreign := call(r.pod("foreign"), other)
	foreign.ContainerID = "f"
	r.add(foreign)
	// c3's handle was deleted.
	if _, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{model.HandleKey{ID: "net1.c3.eth0"}}}); err != nil {
		t.Fatal(err)
	}
	// c1's link is lost, and its handle says nothing; and there are links that are not in etcd.
	r.sh("ip link del " + r.add(calls[1]).Interfaces[0].Name)
	r.putText(model.HandleKey{ID: "net1.c1.eth0"}, "7")
	r.sh(`ip link add cali00000000001 type veth peer name p1 && ip link set cali00000000001 alias "calico net1.leak.eth0"
		ip link add cali00000000002 type veth peer name p2 netns ` + calls[0].Netns)
	gc := func(valid ...string) {
		t.Helper()
		list := []map[string]string{}
		for _, id := range valid {
			list = append(list, map[string]string{"containerID": id, "ifname": "eth0"})
		}
		c := verb("GC", call("", r.conf(map[string]any{"cni.dev/valid-attachments": list})))
		c.ContainerID, c.IfName = "", ""
		r.must(c)
	}
	gc("c0", "c2")
	want := []string{"net1.b.f.eth0", "net1.c0.eth0", "net1.c2.eth0"}
	if diff := cmp.Diff(want, r.handles()); diff != "" {
		t.Errorf("handles after GC (-want +got):\n%s", diff)
	}
	if got := len(r.links()); got != 3 {
		t.Errorf("links after GC: %v", r.links())
	}
	if got := len(r.endpoints()); got != 3 {
		t.Errorf("%d endpoints after GC", got)
	}
	gc()
	if diff := cmp.Diff([]string{"net1.b.f.eth0"}, r.handles()); diff != "" {
		t.Errorf("handles after GC of all (-want +got):\n%s", diff)
	}
	r.must(verb("DEL", foreign))
	r.empty()
	r.fails(verb("GC", call("", conf)), 7, "cni.dev/valid-attachments: missing")
	// The container of an entry that names no interface must not be collected.
	half := r.conf(map[string]any{"cni.dev/valid-attachments": []map[string]string{{"containerID": "c0"}}})
	r.fails(verb("GC", call("", half)), 7, "cni.dev/valid-attachments[0].ifname: missing")
}

func TestGCOfTheIPAMPlugin(t *testing.T) {
	r := newRig(t, small())
	for _, id := range []string{"c1", "c2"} {
		c := call(r.pod(id), r.conf(nil))
		c.Plugin, c.ContainerID = "calico-ipam", id
		r.must(c)
	}
	c := verb("GC", call("", r.conf(map[string]any{
		"cni.dev/valid-attachments": []map[string]string{{"containerID": "c2", "ifname": "eth0"}},
	})))
	c.Plugin = "calico-ipam"
	r.must(c)
	if diff := cmp.Diff([]string{"net1.c2.eth0"}, r.handles()); diff != "" {
		t.Errorf("handles after GC (-want +got):\n%s", diff)
	}
}

func TestCheck(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	r.fails(verb("CHECK", c), 7, "prevResult: missing")
	reply := r.must(c)
	hostIf := r.result(reply).Interfaces[0].Name
	check := verb("CHECK", withResult(r, c, reply))
	if out := r.must(check).Stdout; len(out) != 0 {
		t.Errorf("CHECK wrote %s", out)
	}
	for _, tt := range []struct {
		was, is string
		code    uint
		want    string
	}{
		{`"name": "` + hostIf + `"`, `"name": "cali00000000000"`, 107, "prevResult has no host interface " + hostIf},
		{`"name": "eth0"`, `"name": "eth1"`, 107, "prevResult has no interface eth0 of the container"},
		{`"ips": [`, `"ips": [null,`, 6, "prevResult: ips[0]: want an object, got null"},
		{`"routes": [`, `"routes": [null,`, 6, "prevResult: routes[0]: want an object, got null"},
		{`"interfaces": [`, `"interfaces": [null,`, 6, "prevResult: interfaces[0]: want an object, got null"},
	} {
		altered := reply
		altered.Stdout = []byte(strings.Replace(string(reply.Stdout), tt.was, tt.is, 1))
		r.fails(verb("CHECK", withResult(r, c, altered)), tt.code, tt.want)
	}
	// As a chained plugin writes the address that the runtime gave it.
	upper, mac := reply, r.result(reply).Interfaces[1].Mac
	upper.Stdout = []byte(strings.ReplaceAll(string(reply.Stdout), mac, strings.ToUpper(mac)))
	r.must(verb("CHECK", withResult(r, c, upper)))
	inPod := func(command string) { r.sh("nsenter --net=" + c.Netns + " " + command) }
	// As the agent does when the network's MTU shrinks.
	inPod("ip link set eth0 mtu 1400")
	r.sh("ip link set " + hostIf + " mtu 1400")
	r.must(check)
	key := model.WorkloadEndpointKey{Host: "a", Orchestrator: "cni", Workload: "c1", Endpoint: "eth0"}
	for _, step := range []struct {
		want string
		harm func()
	}{
		{"the container has no route to ::/0 by fe80::ecee:eeff:feee:eeee", func() { inPod("ip -6 route del default") }},
		{"the container has no route to 0.0.0.0/0 by 169.254.1.1", func() { inPod("ip route del default") }},
		{"the container's eth0 does not have the address 10.1.0.0/32", func() { inPod("ip addr del 10.1.0.0/32 dev eth0") }},
		{"the container's eth0 does not have the address 10.1.0.0/32", func() { inPod("ip addr add 10.1.0.0/24 dev eth0") }},
		{"the container's eth0 has the MAC address 02:00:00:00:00:99, not " + r.result(reply).Interfaces[1].Mac, func() { inPod("ip link set eth0 address 02:00:00:00:00:99") }},
		{"the container's eth0 has an MTU of 1450, more than the 1400 of host interface " + hostIf + ", which drops what is larger", func() {
			inPod("ip link set eth0 mtu 1450")
		}},
		{"host interface " + hostIf + " has an MTU of 1501, more than the 1500 of its ADD", func() { r.sh("ip link set " + hostIf + " mtu 1501") }},
		{"host interface " + hostIf + " has the MAC address 02:00:00:00:00:98, not ee:ee:ee:ee:ee:ee", func() {
			r.sh("ip link set " + hostIf + " mtu 1500 address 02:00:00:00:00:98")
		}},
		{"the container's eth0 is down", func() {
			r.sh("ip link set " + hostIf + " address ee:ee:ee:ee:ee:ee")
			inPod("ip link set eth0 down")
		}},
		{"host interface " + hostIf + " is down", func() { r.sh("ip link set " + hostIf + " down") }},
		{"host interface " + hostIf + ` has the alias "x", not "calico net1.c1.eth0"`, func() { r.sh("ip link set " + hostIf + " alias x") }},
		{"host interface " + hostIf + " is gone", func() { r.sh("ip link del " + hostIf) }},
		{"endpoint " + key.Path() + " is inactive", func() {
			r.add(c)
			ep := r.endpoints()["cni c1 eth0"]
			ep.State = model.StateInactive
			r.put(key, ep)
		}},
		{"endpoint " + key.Path() + ` belongs to container "c9"`, func() {
			ep := r.endpoints()["cni c1 eth0"]
			ep.ContainerID = "c9"
			r.put(key, ep)
		}},
		{"etcd has no endpoint " + key.Path(), func() {
			if _, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{key}}); err != nil {
				t.Fatal(err)
			}
		}},
		{"what handle net1.c1.eth0 holds and prevResult differ in the address 10.1.0.0", func() {
			free := verb("DEL", c)
			free.Plugin = "calico-ipam"
			r.must(free)
			ep := model.WorkloadEndpoint{State: model.StateActive, Name: hostIf, ContainerID: "c1"}
			ep.MAC, _ = model.ParseMAC(r.result(reply).Interfaces[1].Mac)
			for _, ip := range r.result(reply).IPs {
				p := prefix(ip.Address.String())
				if p.Addr().Is4() {
					ep.IPv4Nets = append(ep.IPv4Nets, p)
				} else {
					ep.IPv6Nets = append(ep.IPv6Nets, p)
				}
			}
			if _, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Puts: []model.Put{{Key: key, Value: ep}}}); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		step.harm()
		r.fails(check, 107, step.want)
	}
	r.fails(verb("CHECK", call(c.Netns, r.conf(map[string]any{"cniVersion": "0.3.1"}))), 1, "cniVersion 0.3.1 does not know CHECK")
	r.must(verb("DEL", c))
	r.empty()
}

func TestCheckOfEveryVersion(t *testing.T) {
	long.Test(t)
	r := newRig(t, small())
	pod := r.pod("pod")
	for _, version := range []string{"0.4.0", "1.0.0", "1.1.0"} {
		c := call(pod, r.conf(map[string]any{"cniVersion": version}))
		reply := r.must(c)
		r.must(verb("CHECK", withResult(r, c, reply)))
		// A runtime may leave the version out of the result.
		reply.Stdout = []byte(strings.Replace(string(reply.Stdout), `"cniVersion": "`+version+`",`, "", 1))
		r.must(verb("CHECK", withResult(r, c, reply)))
		r.must(verb("DEL", c))
	}
}

// TestDelRoundTrips: a DEL connects while the link is deleted, and then reads and commits.
func TestDelRoundTrips(t *testing.T) {
	r := newRig(t, small())
	file := filepath.Join(r.host.RunDir(), "cni.lock")
	c := call(r.pod("pod"), r.conf(nil))
	for _, tt := range []struct {
		name, before string
		want         int
	}{
		{"the block is known", "true", 3},
		{"the block isn't known", "rm " + file, 4},
	} {
		r.add(c)
		r.sh(tt.before)
		r.must(verb("DEL", c))
		if got := r.roundTrips(); got != tt.want {
			t.Errorf("%s: %d round trips, want %d", tt.name, got, tt.want)
		}
		r.empty()
	}
}
