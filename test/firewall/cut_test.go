// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
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
	r := newRig(t)
	server := r.pod("server", [2]string{"role", "server"})
	client := r.pod("client", [2]string{"role", "client"})
	friend := r.pod("friend", [2]string{"role", "friend"})
	r.policy("server", `{"selector": "role == 'server'", "order": 10, "types": ["inbound"], "inbound_rules": [
		{"action": "allow", "src_selector": "role == 'friend'"}, {"action": "allow", "src_selector": "role == 'client'"}]}`)
	r.enforced()
	stays := r.traffic(friend, server, 3000)
	runs := r.traffic(client, server, 4000)
	r.flows("before", append(slices.Clone(stays), runs...)...)

	for _, test := range []struct {
		name string
		// both: the server may no more call the client than the client the server.
		both bool
		deny func() (undo func())
	}{
		{"a policy that denies", false, func() func() {
			r.policy("no", `{"selector": "role == 'server'", "order": 1, "types": ["inbound"], "inbound_rules": [{"action": "deny", "src_selector": "role == 'client'"}, {"action": "allow", "src_selector": "role == 'friend'"}]}`)
			return func() { r.del(policyPath("no")) }
		}},
		{"a policy that denies what the client sends", false, func() func() {
			r.policy("no", `{"selector": "role == 'client'", "order": 1, "types": ["outbound"], "outbound_rules": [{"action": "deny"}]}`)
			return func() { r.del(policyPath("no")) }
		}},
		{"a label that goes", false, func() func() {
			return r.endpoint(client, func(e *model.WorkloadEndpoint) { e.Labels = nil })
		}},
		{"a profile that goes", true, func() func() {
			return r.endpoint(client, func(e *model.WorkloadEndpoint) { e.ProfileIDs = nil })
		}},
		{"an endpoint that is put to rest", true, func() func() {
			return r.endpoint(client, func(e *model.WorkloadEndpoint) { e.State = model.StateInactive })
		}},
	} {
		undo := test.deny()
		start := time.Now()
		took := r.enforced()
		// Quiet is when a while's packets of each stream have gone nowhere.
		r.until(test.name+": the connections are cut", func() bool { return r.quietFor(runs[0], 50, runs) })
		last := start
		for _, s := range runs {
			if at := time.Unix(0, s.last.Load()); at.After(last) {
				last = at
			}
		}
		t.Logf("%s: in etcd, enforced %v later, the last packet %v later", test.name, took.Round(time.Millisecond), last.Sub(start).Round(time.Millisecond))
		before := counts(runs)
		r.pause(runs[0], 400)
		for i, s := range runs {
			if n := s.arrived.Load() - before[i]; n != 0 {
				t.Errorf("%s: %s goes on: %d", test.name, s.name, n)
			}
		}
		r.until(test.name+": what could go on is marked, the rest is forgotten", func() bool {
			icmp, others := r.tracked(client, server)
			return icmp == 0 && (others == 0) == test.both
		})
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

// tracked counts the connections that the host's tracker knows from one pod to another.
func (r *rig) tracked(from, to *place) (icmp, others int) {
	r.Helper()
	for i, a := range from.addrs {
		for line := range strings.Lines(r.run(r.self, "conntrack", "-L", "-f", []string{"ipv4", "ipv6"}[i], "-s", a.String(), "-d", to.addrs[i].String())) {
			switch {
			case !strings.Contains(line, "src="): // how many there are
			case strings.HasPrefix(line, "icmp"):
				icmp++
			default:
				others++
			}
		}
	}
	return icmp, others
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

// quietFor says whether nothing arrives while so many packets of a stream are sent.
func (r *rig) quietFor(clock *stream, packets int64, streams []*stream) bool {
	r.Helper()
	before := counts(streams)
	r.pause(clock, packets)
	return slices.Equal(before, counts(streams))
}

// TestCutElsewhere has policy come to deny what runs to and from the host, and
// what runs behind translated addresses.
func TestCutElsewhere(t *testing.T) {
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
		r.until(test.name+": the connections are cut", func() bool { return r.quietFor(runs[0], 50, runs) })
		before := counts(runs)
		r.pause(runs[0], 200)
		for i, s := range runs {
			if n := s.arrived.Load() - before[i]; n != 0 {
				t.Errorf("%s: %s goes on: %d", test.name, s.name, n)
			}
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

// reaching are connections to addresses that may be translated on the way to a place.
func (r *rig) reaching(from, to, inside *place) (all []*stream) {
	for _, a := range to.addrs {
		up, down := r.datagrams(from, inside, netip.AddrPortFrom(a, 8000))
		all = append(all, up, down, r.transfer(from, inside, netip.AddrPortFrom(a, 8001), true), r.transfer(from, inside, netip.AddrPortFrom(a, 8002), false))
	}
	return all
}
