// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// traffic is one connection of each kind, in each direction, over both families.
func (r *rig) traffic(from, to *place, port uint16) (all []*stream) {
	for _, a := range to.addrs {
		up, down := r.datagrams(from, to, netip.AddrPortFrom(a, port))
		all = append(all, up, down, r.ping(from, a),
			r.transfer(from, to, netip.AddrPortFrom(a, port), true), r.transfer(from, to, netip.AddrPortFrom(a, port+1), false))
	}
	return all
}

// TestCut has policy come to deny what runs. The server may call whom it likes,
// and is answered: a connection that is cut must not go on the other way round.
func TestCut(t *testing.T) {
	long.Test(t)
	r := newRig(t)
	server := r.pod("server", [2]string{"role", "server"})
	client := r.pod("client", [2]string{"role", "client"})
	friend := r.pod("friend", [2]string{"role", "friend"})
	// Between two of the changes below either side may be the first to be heard, and so have begun a connection of UDP: after
	// the first, each denies both directions.
	r.policy("server", `{"selector": "role == 'server'", "order": 10, "types": ["inbound", "outbound"],
		"inbound_rules": [{"action": "allow", "src_selector": "role == 'friend'"}, {"action": "allow", "src_selector": "role == 'client'"}],
		"outbound_rules": [{"action": "allow", "dst_selector": "role == 'client'"}]}`)
	r.enforced()
	stays := r.traffic(friend, server, 3000)
	runs := r.traffic(client, server, 4000)
	r.flows("before", append(slices.Clone(stays), runs...)...)

	for _, test := range []struct {
		name string
		deny func() (undo func())
	}{
		{"a policy that denies", func() func() {
			r.policy("no", `{"selector": "role == 'server'", "order": 1, "types": ["inbound"], "inbound_rules": [{"action": "deny", "src_selector": "role == 'client'"}, {"action": "allow", "src_selector": "role == 'friend'"}]}`)
			return func() { r.del(policyPath("no")) }
		}},
		{"a policy that denies what the client sends and receives", func() func() {
			r.policy("no", `{"selector": "role == 'client'", "order": 1, "types": ["inbound", "outbound"], "inbound_rules": [{"action": "deny"}], "outbound_rules": [{"action": "deny"}]}`)
			return func() { r.del(policyPath("no")) }
		}},
		{"a label that goes", func() func() {
			return r.endpoint(client, func(e *model.WorkloadEndpoint) { e.Labels = nil })
		}},
		{"a profile that goes", func() func() {
			return r.endpoint(client, func(e *model.WorkloadEndpoint) { e.ProfileIDs = nil })
		}},
		{"an endpoint that is put to rest", func() func() {
			return r.endpoint(client, func(e *model.WorkloadEndpoint) { e.State = model.StateInactive })
		}},
	} {
		undo := test.deny()
		r.enforced()
		r.until(test.name+": the connections are cut", func() bool { return r.quiet(runs[0], runs) })
		before := counts(runs)
		r.pause(runs[0], 400)
		for i, s := range runs {
			if n := s.arrived.Load() - before[i]; n != 0 {
				t.Errorf("%s: %s goes on: %d", test.name, s.name, n)
			}
		}
		if left := r.tracked(client, server); left != "" {
			t.Errorf("%s: the tracker still has\n%s", test.name, left)
		}
		r.flows(test.name+": what is allowed", stays...)
		undo()
		r.enforced()
		if test.name == "an endpoint that is put to rest" {
			break // its connections are over
		}
		r.flows(test.name+", undone", runs...)
	}
	for _, s := range stays {
		if lost := r.complete(s); lost != 0 {
			t.Errorf("%s was allowed all the time and lost %d of %d", s.name, lost, s.sent.Load())
		}
	}
	if n := r.metric("calico_node_connections_cut_total"); n != 4*float64(len(runs)-2) {
		t.Errorf("the metric says that %v connections were cut", n) // both streams of UDP are one
	}
}

// tracked are the connections between two places that the host's tracker knows.
func (r *rig) tracked(one, other *place) string {
	r.Helper()
	var all strings.Builder
	for i := range one.addrs {
		for _, side := range [][2]string{{one.addrs[i].String(), other.addrs[i].String()}, {other.addrs[i].String(), one.addrs[i].String()}} {
			for line := range strings.Lines(r.run(r.self, "conntrack", "-L", "-f", []string{"ipv4", "ipv6"}[i], "-s", side[0], "-d", side[1])) {
				if strings.Contains(line, "src=") { // else it says how many there are
					all.WriteString(line)
				}
			}
		}
	}
	return all.String()
}

func counts(streams []*stream) (all []int64) {
	for _, s := range streams {
		all = append(all, s.arrived.Load())
	}
	return all
}

// pause waits while so many packets of a stream are sent.
func (r *rig) pause(s *stream, packets int64) {
	r.Helper()
	before := s.sent.Load()
	r.until(s.name+" is sent", func() bool { return s.sent.Load() >= before+packets })
}

// quiet says whether nothing arrives for a while: while so many packets of a
// stream are sent that what has arrived before has been counted, too.
func (r *rig) quiet(clock *stream, streams []*stream) bool {
	r.Helper()
	before := counts(streams)
	r.pause(clock, 300)
	return slices.Equal(before, counts(streams))
}

// TestCutStays has the agent end while connections are cut that the server could begin
// anew: they stay cut.
func TestCutStays(t *testing.T) {
	long.Test(t)
	r := newRig(t)
	server, client := r.pod("server", [2]string{"role", "server"}), r.pod("client", [2]string{"role", "client"})
	runs := r.traffic(client, server, 4000)
	r.flows("before", runs...)
	r.policy("no", `{"selector": "role == 'server'", "types": ["inbound"], "inbound_rules": []}`)
	r.enforced()
	cut := func(when string) {
		t.Helper()
		r.until(when+": the connections are cut", func() bool {
			return r.quiet(runs[0], runs) && r.tracked(client, server) == ""
		})
	}
	cut("denied")
	before := counts(runs)
	start := func(launch func() error) {
		t.Helper()
		if err := launch(); err != nil {
			t.Fatal(err)
		}
	}
	agains := []struct {
		name string
		do   func()
	}{
		{"killed", func() { start(r.host.Agent().Kill) }},
		{"stopped", func() { start(r.host.Agent().Stop) }},
		{"stopped, and policy changed", func() {
			start(r.host.Agent().Stop)
			r.policy("no", `{"selector": "role == 'server'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "src_selector": "role == 'nobody'"}]}`)
		}},
	}
	for _, again := range agains {
		again.do()
		r.pause(runs[0], 50)
		start(func() error { return r.host.Agent().Start(r.ctx()) })
		r.enforced()
		r.pause(runs[0], 200)
		for i, s := range runs {
			if n := s.arrived.Load() - before[i]; n != 0 {
				t.Errorf("%s, and started again: %s goes on: %d", again.name, s.name, n)
			}
		}
		cut(again.name)
	}

	elements := func() string {
		return r.run(r.self, "nft", "list", "set", "inet", "calico", "cut4") + r.run(r.self, "nft", "list", "set", "inet", "calico", "cut6")
	}
	if n := strings.Count(elements(), " expires "); n != 6 {
		t.Errorf("the sets hold %d flows, want those of UDP and two of TCP for each IP version:\n%s", n, elements())
	}
	r.del(policyPath("no"))
	r.enforced()
	r.until("the sets let go what policy allows again", func() bool { return !strings.Contains(elements(), " expires ") })
	r.flows("allowed again", runs...)
	// Either side may have been the first to be heard, and so have begun the connection: neither may.
	r.policy("no", `{"selector": "role == 'server'", "types": ["inbound", "outbound"], "inbound_rules": [], "outbound_rules": []}`)
	r.enforced()
	cut("denied again")
}

// TestCutElsewhere has policy come to deny what runs to and from the host, and
// what runs behind translated addresses.
func TestCutElsewhere(t *testing.T) {
	long.Test(t)
	r := newRig(t)
	pod := r.pod("pod", [2]string{"role", "pod"})
	for path, value := range map[string]string{
		"v4/pool/192.168.0.0-16": `{"cidr": "192.168.0.0/16", "masquerade": true}`, "v6/pool/fd80:24e2:f998:72d6::-64": `{"cidr": "fd80:24e2:f998:72d6::/64", "masquerade": true}`,
	} {
		r.put("/calico/v1/ipam/"+path, value)
	}
	v4, v6 := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:7::7")
	r.routes("198.51.100.7/32", "2001:db8:7::7/128")
	r.endpoint(pod, func(e *model.WorkloadEndpoint) {
		e.IPv4NAT, e.IPv6NAT = []model.NAT{{IntIP: pod.addrs[0], ExtIP: v4}}, []model.NAT{{IntIP: pod.addrs[1], ExtIP: v6}}
		e.ProfileIDs = []string{"open"}
	})
	r.profile("open", `{"inbound_rules": [{"action": "allow"}], "outbound_rules": [{"action": "allow"}]}`)
	far := r.at(r.outside, "203.0.113.1", "2001:db8::1") // in no pool
	r.enforced()
	for _, test := range []struct {
		name     string
		from, to *place
		inside   *place // where packets to it arrive
		path     string
		deny     string
	}{
		{"behind 1:1 NAT", r.outside, pod.at("the pod's outer address", v4, v6), pod, policyPath("no"), `{"selector": "role == 'pod'", "types": ["inbound"], "inbound_rules": []}`},
		{"masqueraded", pod, far, far, policyPath("no"), `{"selector": "role == 'pod'", "types": ["outbound"], "outbound_rules": []}`},
		{"from a pod to its host", pod, r.self, r.self, configPath("DefaultEndpointToHostAction"), "DROP"},
		{"to the host", r.outside, r.self, r.self, hostPath("uplink"), `{"name": "eth0", "profile_ids": []}`},
		{"from the host", r.self, r.outside, r.outside, hostPath("uplink"), `{"name": "eth0", "profile_ids": []}`},
	} {
		runs := r.reaching(test.from, test.to, test.inside)
		r.flows(test.name, runs...)
		r.put(test.path, test.deny)
		r.enforced()
		r.until(test.name+": the connections are cut", func() bool { return r.quiet(runs[0], runs) })
		before := counts(runs)
		r.pause(runs[0], 200)
		for i, s := range runs {
			if n := s.arrived.Load() - before[i]; n != 0 {
				t.Errorf("%s: %s goes on: %d", test.name, s.name, n)
			}
		}
		if left := r.tracked(test.from, test.to); left != "" {
			t.Errorf("%s: the tracker still has\n%s", test.name, left)
		}
		for _, s := range runs {
			s.end()
		}
		r.del(test.path)
		if test.path == configPath("DefaultEndpointToHostAction") {
			r.put(test.path, "ACCEPT")
		}
		r.enforced()
	}
}

// reaching are connections to addresses that may be translated on their route.
func (r *rig) reaching(from, to, inside *place) (all []*stream) {
	for _, a := range to.addrs {
		up, down := r.datagrams(from, inside, netip.AddrPortFrom(a, 8000))
		all = append(all, up, down, r.transfer(from, inside, netip.AddrPortFrom(a, 8001), true), r.transfer(from, inside, netip.AddrPortFrom(a, 8002), false))
	}
	return all
}
