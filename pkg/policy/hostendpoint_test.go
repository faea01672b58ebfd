// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

const named = `{"name": "eth0", "labels": {"side": "outer"}}`

func TestHostEndpoints(t *testing.T) {
	allowWeb := `{"selector": "has(side)", "inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}], "outbound_rules": [{"protocol": "tcp", "dst_ports": [443]}]}`
	checkCases(t, testSettings, []evaluateCase{
		// Not matched: untouched.
		{nil, webToHost, Accept, "no host endpoint there"},
		{map[string]string{uplink: named}, strings.Replace(webToHost, "eth0", "eth1", 1), Accept, "no host endpoint there"},
		// Matched: default deny in both directions.
		{map[string]string{uplink: named}, webToHost, Drop, "to endpoint " + uplink + ": no profile decides"},
		{map[string]string{uplink: named}, "->eth0 192.0.2.10>203.0.113.5 tcp:1>443", Drop, "from endpoint " + uplink + ": no profile decides"},
		// Fail-safe ports first.
		{map[string]string{uplink: named, pol + "a": `{"selector": "has(side)", "inbound_rules": [{"action": "deny"}]}`}, sshToHost, Accept, "fail-safe port 22"},
		{map[string]string{uplink: named}, "eth0>- 203.0.113.5>192.0.2.10 udp:1>22", Drop, "no profile decides"},
		{map[string]string{uplink: named}, "->eth0 192.0.2.10>203.0.113.5 tcp:1>2379", Accept, "fail-safe port 2379"},
		{map[string]string{uplink: named}, "->eth0 192.0.2.10>203.0.113.5 tcp:1>22", Drop, "no profile decides"},
		{map[string]string{uplink: named}, "eth0>- fe80::1>ff02::1:ff00:1 icmpv6:135/0", Accept, "neighbour discovery"},
		{map[string]string{uplink: named}, "eth0>- fe80::1>ff02::1 icmpv6:134/0", Accept, "neighbour discovery"},
		{map[string]string{uplink: named}, "->eth0 fe80::1>ff02::1 icmpv6:136/0", Accept, "neighbour discovery"},
		// Then policies and profiles.
		{map[string]string{uplink: named, pol + "a": allowWeb}, webToHost, Accept, "policy a rule 0"},
		{map[string]string{uplink: named, pol + "a": allowWeb}, "->eth0 192.0.2.10>203.0.113.5 tcp:1>443", Accept, "policy a rule 0"},
		{map[string]string{uplink: named, pol + "a": allowWeb}, "->eth0 192.0.2.10>203.0.113.5 tcp:1>80", Drop, "none decides"},
		{map[string]string{uplink: `{"name": "eth0", "profile_ids": ["open"]}`}, webToHost, Accept, "profile open"},
		{map[string]string{uplink: named}, webToHost + " established", Accept, "established"},
		{map[string]string{uplink: named}, webToHost + " invalid", Drop, "invalid"},
		// name, else expected address.
		{map[string]string{uplink: `{"expected_ipv4_addrs": ["198.51.100.10"]}`}, webToHost, Accept, "no host endpoint there"},
		{map[string]string{uplink: `{"expected_ipv4_addrs": ["198.51.100.10", "192.0.2.10"], "name": "eth0"}`}, webToHost, Drop, "no profile"},
		{map[string]string{uplink: `{"expected_ipv4_addrs": ["192.0.2.99", "192.0.2.10"]}`}, webToHost, Drop, "no profile"},
		// Several match: lowest id.
		{map[string]string{uplink: named, "/calico/v1/host/h1/endpoint/a": `{"expected_ipv4_addrs": ["192.0.2.10"], "profile_ids": ["open"]}`}, webToHost, Accept, "endpoint/a: profile open"},
		{map[string]string{uplink: named, "/calico/v1/host/h1/endpoint/z": `{"expected_ipv4_addrs": ["192.0.2.10"], "profile_ids": ["open"]}`}, webToHost, Drop, uplink},
		// The loopback belongs to no host endpoint.
		{map[string]string{uplink: `{"name": "lo"}`}, "->- 127.0.0.1>127.0.0.1 tcp:1>80", Accept, "from the host to itself"},
		{map[string]string{uplink: `{"name": "lo"}`}, "->lo 192.0.2.10>192.0.2.10 tcp:1>80", Accept, "from the host to itself"},
		{map[string]string{uplink: `{"name": "lo"}`}, "lo>- ::1>::1 icmpv6:128/0", Accept, "from the host to itself"},
		{map[string]string{uplink: `{"expected_ipv4_addrs": ["127.0.0.1"]}`}, "lo>- 127.0.0.1>127.0.0.1 tcp:1>80", Accept, "from the host to itself"},
		{map[string]string{uplink: `{"expected_ipv4_addrs": ["192.0.2.10"]}`, pol + "raw": `{"selector": "", "untracked": true, "inbound_rules": [{"action": "deny"}]}`}, "->- 192.0.2.10>192.0.2.10 tcp:1>80", Accept, "from the host to itself"},
		// Another host's.
		{map[string]string{"/calico/v1/host/h2/endpoint/uplink": named}, webToHost, Accept, "no host endpoint there"},
		// Forwarded traffic is none of a named one's.
		{map[string]string{uplink: named}, fromOut, Accept, "profile open"},
		{map[string]string{uplink: named}, "eth0>eth1 203.0.113.5>198.51.100.7 tcp:1>2", Accept, "no endpoints"},
	})
}

// TestInvalidHostEndpoint: it denies everything on its interface, as far as that can be determined.
func TestInvalidHostEndpoint(t *testing.T) {
	allow := `{"selector": "all()", "inbound_rules": [{}], "outbound_rules": [{}]}`
	slip := `{"name": "eth0", "labels": {"side": 1}, "profile_ids": ["open"]}`
	checkCases(t, testSettings, []evaluateCase{
		{map[string]string{uplink: slip, pol + "a": allow}, webToHost, Drop, "to endpoint " + uplink + ": no profile decides"},
		{map[string]string{uplink: slip, pol + "a": allow}, "->eth0 192.0.2.10>203.0.113.5 tcp:1>443", Drop, "from endpoint " + uplink},
		{map[string]string{uplink: slip, pol + "a": strings.Replace(allow, "{", `{"untracked": true, `, 1)}, webToHost, Drop, uplink},
		{map[string]string{uplink: slip}, sshToHost, Accept, "fail-safe port 22"},
		{map[string]string{uplink: `{"expected_ipv4_addrs": ["192.0.2.10", "no"]}`}, webToHost, Drop, uplink},
		{map[string]string{uplink: slip}, strings.Replace(webToHost, "eth0", "eth1", 1), Accept, "no host endpoint there"},
		{map[string]string{star: `{"name": "*", "labels": 5}`}, webToHost, Drop, "to endpoint " + star},
		{map[string]string{star: `{"name": "*", "labels": 5}`}, sshToHost, Accept, "fail-safe port 22"},
		// The lowest id has the interface, invalid or not.
		{map[string]string{uplink: slip, "/calico/v1/host/h1/endpoint/z": `{"name": "eth0", "profile_ids": ["open"]}`}, webToHost, Drop, uplink},
		{map[string]string{uplink: `{"name": 5}`}, webToHost, Accept, "no host endpoint there"},
	})

	// What was known of it before it couldn't be read counts.
	e, st := stateOf(t, map[string]string{uplink: named, pol + "a": allow})
	was := entryOf(t, uplink, named)
	follow := func(entry model.Entry, iface, reason string) {
		t.Helper()
		e.Update(entry)
		if err := st.Apply(e.Flush()); err != nil {
			t.Fatal(err)
		}
		ep, invalid := st.Endpoints[uplink], e.Invalid()[uplink]
		if ep.Interface != iface || (invalid == nil) != (reason == "") || invalid != nil && !strings.Contains(invalid.Error(), reason) {
			t.Errorf("%+v: on %q, %v; want %q, %s", entry.Err, ep.Interface, invalid, iface, reason)
		}
		if n := len(ep.Inbound.Policies); (n > 0) != (reason == "") {
			t.Errorf("%+v: %d policies", entry.Err, n)
		}
	}
	broken := entryOf(t, uplink, `{"name": "eth0"`)
	follow(was, "eth0", "")
	known := broken
	known.Value = was.Value
	follow(known, "eth0", "not JSON")
	follow(broken, "", "not JSON")
	follow(entryOf(t, uplink, `{"name": "lo", "labels": 5}`), "", "labels: want")
	follow(entryOf(t, uplink, `{"name": "eth1", "labels": 5}`), "eth1", "labels: want")
	follow(was, "eth0", "")
}

// TestUntilCorrected: the error of an invalid host endpoint states the consequences.
func TestUntilCorrected(t *testing.T) {
	const other = "/calico/v1/host/h1/endpoint/a"
	const slip = "labels: want an object, have a number; "
	for _, tt := range []struct{ endpoint, want string }{
		{`{"name": "eth0", "labels": 5}`, slip + "until it is corrected, it lets pass nothing by eth0 but fail-safe ports"},
		{`{"expected_ipv4_addrs": ["192.0.2.10"], "labels": 5}`, slip + "until it is corrected, it lets pass nothing by eth0 but fail-safe ports"},
		{`{"name": "*", "labels": 5}`, slip + "until it is corrected, it lets pass nothing by interfaces without a host endpoint of their own but fail-safe ports"},
		{`{"name": "lo", "labels": 5}`, slip + "name lo: what a host sends to itself is not policed, so it is not enforced: name the interface by which others reach the host, or delete it"},
		{`{"name": "cali1", "labels": 5}`, slip + "name cali1: interfaces that begin with cali are workloads', so it is not enforced: name one of the host's own"},
		{`{"name": "eth1", "labels": 5}`, slip + "interface eth1 is that of " + other + ", so it is not enforced: delete one of the two"},
		{`{"expected_ipv4_addrs": ["127.0.0.1"], "labels": 5}`, slip + "none of its expected addresses is on an interface of this host other than lo, so it is not enforced: correct them, or give it the name of an interface; it expects 127.0.0.1, and the host has 192.0.2.10 on eth0, 198.51.100.10 on eth1"},
		{`{"labels": 5}`, slip + "until it is corrected, it has no effect, as it isn't known what it is on"},
	} {
		e, st := stateOf(t, map[string]string{uplink: tt.endpoint, other: `{"name": "eth1"}`})
		if err := e.Invalid()[uplink]; err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v\nwant: %s", tt.endpoint, err, tt.want)
		}
		ep := st.Endpoints[uplink]
		if on := ep.Interface != "" || ep.Wildcard; on != strings.Contains(tt.want, "until it is corrected, it lets") && !ep.Wildcard {
			t.Errorf("%s: %+v", tt.endpoint, ep)
		}
		// It says how it is where interfaces are others.
		e.SetInterfaces([]Interface{{"eth2", []netip.Addr{addr("127.0.0.1"), addr("192.0.2.10")}}})
		if err := e.Invalid()[uplink]; strings.Contains(tt.endpoint, "addrs") && !strings.Contains(err.Error(), "nothing by eth2 but") {
			t.Errorf("%s: on eth2: %v", tt.endpoint, err)
		}
	}
}

// TestUnplaced: a host endpoint on no interface is reported.
func TestUnplaced(t *testing.T) {
	const other = "/calico/v1/host/h1/endpoint/a"
	for _, tt := range []struct{ endpoint, want string }{
		{named, ""},
		{`{"name": "*"}`, ""},
		{`{"name": "eth9"}`, ""},
		{`{"expected_ipv6_addrs": ["::1"], "name": "eth0"}`, ""},
		{`{"name": "lo"}`, "name lo: what a host sends to itself is not policed, so it is not enforced: name the interface by which others reach the host, or delete it"},
		{`{"name": "cali1"}`, "name cali1: interfaces that begin with cali are workloads', so it is not enforced: name one of the host's own"},
		{`{"name": "eth1"}`, "interface eth1 is that of " + other + ", so it is not enforced: delete one of the two"},
		{`{"expected_ipv4_addrs": ["127.0.0.1", "198.51.100.10"]}`, "the interface that has one of its addresses is that of " + other + ", so it is not enforced: delete one of the two"},
		{`{"expected_ipv4_addrs": ["127.0.0.1"]}`, "none of its expected addresses is on an interface of this host other than lo, so it is not enforced: correct them, or give it the name of an interface; it expects 127.0.0.1, and the host has 192.0.2.10 on eth0, 198.51.100.10 on eth1"},
	} {
		e, st := stateOf(t, map[string]string{uplink: tt.endpoint, other: `{"name": "eth1"}`})
		got := ""
		if err := e.Invalid()[uplink]; err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %s\nwant: %s", tt.endpoint, got, tt.want)
		}
		if ep := st.Endpoints[uplink]; (ep.Interface == "" && !ep.Wildcard) != (tt.want != "") {
			t.Errorf("%s: on interface %q", tt.endpoint, ep.Interface)
		}
		// It is told no more when an interface comes that it can have.
		if e.SetInterfaces([]Interface{{"eth2", []netip.Addr{addr("127.0.0.1")}}}); strings.Contains(tt.endpoint, "127") && e.Invalid()[uplink] != nil {
			t.Errorf("%s: still %v", tt.endpoint, e.Invalid()[uplink])
		}
	}
}

// TestTunnelPackets: packets from strangers are dropped; within the cluster no host endpoint applies to them.
func TestTunnelPackets(t *testing.T) {
	vxlan := Tunnels{VXLANPort: 4789, Hosts: []netip.Addr{addr("192.0.2.20"), addr("::ffff:192.0.2.21")}}
	both := vxlan
	both.IPIP = true
	for _, tt := range []struct {
		tunnels Tunnels
		packet  string
		want    Verdict
	}{
		{vxlan, "eth0>- 192.0.2.20>192.0.2.10 udp:5>4789", Accept},
		{vxlan, "eth0>- 192.0.2.21>192.0.2.10 udp:5>4789 invalid", Accept},
		{vxlan, "eth1>- 192.0.2.22>192.0.2.10 udp:5>4789 established", Drop},
		{vxlan, "eth0>- 192.0.2.20>192.0.2.10 udp:4789>5", Drop},
		{vxlan, "eth0>- 192.0.2.20>192.0.2.10 tcp:5>4789", Drop},
		{vxlan, "->eth0 192.0.2.10>192.0.2.20 udp:5>4789", Accept},
		{vxlan, "->eth0 192.0.2.10>192.0.2.22 udp:5>4789", Drop},
		{vxlan, "->- 127.0.0.1>127.0.0.1 udp:5>4789", Drop},
		{vxlan, "->- 127.0.0.1>127.0.0.1 udp:4789>5", Accept},
		{vxlan, "eth0>- 192.0.2.20>192.0.2.10 4:0/0", Drop},
		{vxlan, "eth1>- 192.0.2.22>192.0.2.10 4:0/0", Accept},
		{both, "eth0>- 192.0.2.20>192.0.2.10 4:0/0", Accept},
		{both, "eth1>- 192.0.2.22>192.0.2.10 4:0/0", Drop},
		{both, "eth1>- fd00::1>fd00::2 4:0/0", Accept},
		{Tunnels{}, "eth1>- 192.0.2.22>192.0.2.10 udp:5>4789", Accept},
	} {
		_, st := stateOf(t, map[string]string{uplink: named})
		st.Tunnels = tt.tunnels
		if r := Evaluate(testSettings, st, packet(t, tt.packet)); r.Verdict != tt.want {
			t.Errorf("%+v, %s: %s, want %s\n%v", tt.tunnels, tt.packet, r.Verdict, tt.want, r.Trail)
		}
	}
}

// TestImitatedTunnels: a workload can't send packets that would be masqueraded and mistaken by another host's tunnel
// for this host's.
func TestImitatedTunnels(t *testing.T) {
	both := Tunnels{VXLANPort: 4789, IPIP: true, Hosts: []netip.Addr{addr("192.0.2.20")}}
	for _, tt := range []struct {
		tunnels Tunnels
		packet  string
		want    Verdict
	}{
		{both, "cali1>eth0 10.0.0.1>192.0.2.20 udp:5>4789", Drop},
		{both, "cali1>eth0 10.0.0.1>192.0.2.99 udp:5>4789", Drop}, // a host may have more addresses than are known
		{both, "cali1>eth0 10.0.0.1>192.0.2.20 4:0/0", Drop},
		{both, "cali1>eth0 fd00::1>2001:db8::20 udp:5>4789", Drop},
		{both, "cali1>eth0 fd00::1>2001:db8::20 4:0/0", Accept}, // not mistaken for a tunnel's
		{both, "cali1>eth0 10.0.0.1>172.16.0.1 udp:5>4789", Accept},
		{both, "cali1>eth0 10.0.0.1>172.16.0.1 4:0/0", Accept},
		{both, "cali1>eth0 10.0.0.1>192.0.2.20 udp:4789>5", Accept},
		{both, "cali1>eth0 10.0.0.1>192.0.2.20 tcp:5>4789", Accept},
		{both, "eth1>eth0 198.51.100.1>192.0.2.20 udp:5>4789", Accept},
		{Tunnels{VXLANPort: 4789}, "cali1>eth0 10.0.0.1>192.0.2.20 4:0/0", Accept},
		{Tunnels{IPIP: true}, "cali1>eth0 10.0.0.1>192.0.2.20 udp:5>4789", Accept},
		{Tunnels{}, "cali1>eth0 10.0.0.1>192.0.2.20 udp:5>4789", Accept},
	} {
		_, st := stateOf(t, nil)
		st.Tunnels = tt.tunnels
		if r := Evaluate(testSettings, st, packet(t, tt.packet)); r.Verdict != tt.want {
			t.Errorf("%+v, %s: %s, want %s\n%v", tt.tunnels, tt.packet, r.Verdict, tt.want, r.Trail)
		}
	}
}

// TestWildcard: a host endpoint named * applies to every interface that is not a workload's and has no other one.
func TestWildcard(t *testing.T) {
	const any, through = `{"name": "*", "labels": {"side": "any"}}`, "eth0>eth1 203.0.113.5>198.51.100.7 tcp:1>"
	webOnly := `{"selector": "side == 'any'", "inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}], "outbound_rules": [{"protocol": "tcp", "dst_ports": [443]}]`
	closed := map[string]string{star: any}
	open := map[string]string{star: any, pol + "a": webOnly + `}`}
	forward := map[string]string{star: any, pol + "a": webOnly + `, "apply_on_forward": true}`}
	early := map[string]string{star: any, pol + "a": `{"selector": "", "pre_dnat": true, "inbound_rules": [{"action": "deny", "protocol": "tcp", "dst_ports": [22, 81]}, {"protocol": "tcp"}]}`}
	raw := map[string]string{star: any, pol + "a": `{"selector": "has(side)", "untracked": true, "inbound_rules": [{"action": "deny", "protocol": "tcp", "dst_ports": [80, 22]}], "outbound_rules": [{"protocol": "udp"}]}`}
	with := func(objects map[string]string, host string) map[string]string {
		objects = maps.Clone(objects)
		objects[uplink] = host
		return objects
	}
	checkCases(t, testSettings, []evaluateCase{
		// The host itself: closed both ways, but for fail-safe ports and neighbour discovery.
		{closed, webToHost, Drop, "to endpoint " + star + ": no profile decides"},
		{closed, strings.Replace(webToHost, "eth0", "eth7", 1), Drop, "to endpoint " + star},
		{closed, "->eth0 192.0.2.10>203.0.113.5 tcp:1>443", Drop, "from endpoint " + star + ": no profile decides"},
		{closed, sshToHost, Accept, "fail-safe port 22"},
		{closed, "->eth1 192.0.2.10>203.0.113.5 tcp:1>2379", Accept, "fail-safe port 2379"},
		{closed, "eth0>- fe80::1>ff02::1:ff00:1 icmpv6:135/0", Accept, "neighbour discovery"},
		{closed, webToHost + " established", Accept, "established"},
		{open, webToHost, Accept, "to endpoint " + star + ": policy a rule 0: allow"},
		{open, strings.Replace(webToHost, ">80", ">81", 1), Drop, "end of tier default"},
		{open, "->eth0 192.0.2.10>203.0.113.5 tcp:1>443", Accept, "from endpoint " + star + ": policy a rule 0: allow"},
		{open, "->lo 192.0.2.10>192.0.2.10 tcp:1>81", Accept, "from the host to itself"},
		{open, "->cali1 192.0.2.10>10.0.0.1 tcp:1>81", Accept, "from its own host"},
		// What is forwarded, by apply_on_forward alone.
		{closed, fromOut, Accept, "to endpoint " + web + ": profile open"},
		{closed, toOut, Accept, "profile open"},
		{open, through + "81", Accept, "no endpoints"},
		{forward, through + "80", Drop, "from endpoint " + star + ": end of tier default"},
		{forward, through + "443", Drop, "to endpoint " + star + ": end of tier default"},
		{forward, through + "443 established", Accept, "established"},
		{forward, fromOut, Accept, "to endpoint " + star + ": policy a rule 0: allow"},
		{forward, strings.Replace(fromOut, ">80", ">81", 1), Drop, "to endpoint " + star},
		{forward, toOut, Accept, "from endpoint " + star + ": policy a rule 0: allow"},
		{forward, strings.Replace(toOut, ">443", ">444", 1), Drop, "from endpoint " + star},
		{forward, toDB, Drop, "to endpoint " + db},
		// Before DNAT, and before connection tracking.
		{early, strings.Replace(fromOut, ">80", ">81", 1), Drop, "to endpoint " + star + ": policy a rule 0: deny"},
		{early, webToHost, Accept, "allowed by a policy before DNAT"},
		{early, sshToHost, Accept, "fail-safe port 22"},
		{raw, webToHost, Drop, "untracked policy a rule 0: deny"},
		{raw, sshToHost, Accept, "fail-safe port 22"},
		{raw, "->eth1 192.0.2.10>203.0.113.5 udp:1>123", Accept, "untracked policy a rule 0: allow"},
		{raw, fromOut, Accept, "profile open"},
		// Where another is, it is that one's, whatever its policies are about.
		{with(closed, `{"name": "eth0", "profile_ids": ["open"]}`), webToHost, Accept, "to endpoint " + uplink + ": profile open"},
		{with(closed, `{"name": "eth0", "profile_ids": ["open"]}`), strings.Replace(webToHost, "eth0", "eth1", 1), Drop, star},
		{with(closed, `{"expected_ipv4_addrs": ["192.0.2.10"], "profile_ids": ["open"]}`), webToHost, Accept, "to endpoint " + uplink},
		{with(open, `{"name": "eth0", "labels": 5}`), webToHost, Drop, "to endpoint " + uplink},
		{with(forward, `{"name": "eth0"}`), strings.Replace(fromOut, ">80", ">81", 1), Accept, "profile open"},
		{with(early, `{"expected_ipv4_addrs": ["192.0.2.10"], "profile_ids": ["open"]}`), strings.Replace(webToHost, ">80", ">81", 1), Drop, "policy a"},
		{with(raw, `{"name": "eth0", "profile_ids": ["open"]}`), webToHost, Accept, "profile open"},
	})
}

func TestUntracked(t *testing.T) {
	both := map[string]string{uplink: named, pol + "raw": `{"selector": "has(side)", "untracked": true,
		"inbound_rules": [{"protocol": "udp", "dst_ports": [123]}, {"action": "deny", "protocol": "udp"}, {"action": "deny", "src_net": "203.0.113.0/24"}],
		"outbound_rules": [{"protocol": "udp", "src_ports": [123]}, {"action": "next-tier", "protocol": "icmp"}, {"action": "deny", "protocol": "tcp"}]}`,
		pol + "then": `{"selector": "has(side)", "inbound_rules": [{}], "outbound_rules": [{}]}`}
	checkCases(t, testSettings, []evaluateCase{
		{both, "eth0>- 192.0.2.5>192.0.2.10 udp:5>123", Accept, "untracked policy raw rule 0: allow"},
		{both, "->eth0 192.0.2.10>192.0.2.5 udp:123>5", Accept, "untracked policy raw rule 0: allow"},
		{both, "eth0>- 192.0.2.5>192.0.2.10 udp:5>124", Drop, "untracked policy raw rule 1: deny"},
		// Before connection tracking: it cuts connections too.
		{both, webToHost + " established", Drop, "untracked policy raw rule 2: deny"},
		// No default drop there.
		{both, "eth0>- 192.0.2.5>192.0.2.10 tcp:5>80", Accept, "policy then rule 0: allow"},
		{both, "->eth0 192.0.2.10>192.0.2.5 icmp:8/0", Accept, "policy then rule 0: allow"},
		// Fail-safe ports and their answers.
		{both, sshToHost, Accept, "fail-safe"},
		{both, "->eth0 192.0.2.10>203.0.113.5 tcp:22>40000 established", Accept, "established"},
		{both, "eth0>- 203.0.113.9>192.0.2.10 tcp:2379>40000 established", Accept, "established"},
		{both, "->eth0 192.0.2.10>203.0.113.5 tcp:80>40000 established", Drop, "untracked policy raw rule 2: deny"},
		{both, "eth0>- fe80::1>ff02::1:ff00:1 icmpv6:135/0", Accept, "neighbour discovery"},
		// Host endpoints only: neither workloads nor what is forwarded.
		{map[string]string{pol + "raw": `{"selector": "", "untracked": true, "inbound_rules": [{"action": "deny"}]}`}, fromOut, Accept, "profile open"},
		{both, fromOut, Accept, "profile open"},
	})
	_, st := stateOf(t, both)
	for text, want := range map[string]bool{sshToHost: true, "eth0>- 192.0.2.5>192.0.2.10 tcp:5>80": false} {
		if got := Evaluate(testSettings, st, packet(t, text)).Failsafe; got != want {
			t.Errorf("%s: by a fail-safe port: %v", text, got)
		}
	}
	for text, want := range map[string]bool{"eth0>- 192.0.2.5>192.0.2.10 udp:5>123": true, "eth0>- 192.0.2.5>192.0.2.10 tcp:5>80": false} {
		if got := Evaluate(testSettings, st, packet(t, text)).Untracked; got != want {
			t.Errorf("%s: untracked %v, want %v", text, got, want)
		}
	}
}

func TestNAT(t *testing.T) {
	none := netip.Addr{}
	pool6 := map[string]string{"/calico/v1/ipam/v6/pool/fd00::-64": `{"cidr": "fd00::/64", "masquerade": true}`}
	for _, tt := range []struct {
		objects    map[string]string
		packet     string
		want       Verdict
		dnat, snat netip.Addr
		masquerade bool
	}{
		// Source in a masquerade pool, destination in no pool.
		{nil, toOut, Accept, none, none, true},
		{nil, "cali1>eth0 10.0.0.1>172.16.5.5 tcp:1>2", Accept, none, none, false},
		{nil, "cali1>eth0 10.0.0.1>10.200.5.5 tcp:1>2", Accept, none, none, false},
		{nil, fromOut, Accept, none, none, false},
		{nil, toOut + " established", Accept, none, none, false}, // as its first packet
		{nil, "cali2>eth0 10.0.0.1>203.0.113.5 tcp:1>2", Drop, none, none, false},
		{nil, "->eth0 10.0.0.254>203.0.113.5 tcp:1>2", Accept, none, none, true},
		{nil, "->lo 10.0.0.254>203.0.113.5 tcp:1>2", Accept, none, none, false},
		{nil, "eth0>eth1 172.16.0.9>203.0.113.5 tcp:1>2", Accept, none, none, false},
		{nil, "cali1>- 10.0.0.1>192.0.2.10 udp:1>53", Drop, none, none, false},
		// Neighbour discovery is of no connection.
		{pool6, "cali1>eth0 fd00::1>fd01::1 icmpv6:128/0", Accept, none, none, true},
		{pool6, "cali1>eth0 fd00::1>fd01::1 icmpv6:135/0", Accept, none, none, false},
		// 1:1 NAT: DNAT from outside, from other workloads and from the host itself.
		{map[string]string{web: natted}, "eth0>cali1 203.0.113.5>192.0.2.77 tcp:1>80", Accept, addr("10.0.0.1"), none, false},
		{map[string]string{web: natted}, "eth0>- 203.0.113.5>192.0.2.66 tcp:1>80", Accept, addr("10.0.0.1"), none, false},
		{map[string]string{web: natted, uplink: named}, "eth0>- 203.0.113.5>192.0.2.66 tcp:1>80", Accept, addr("10.0.0.1"), none, false},
		{map[string]string{web: natted}, "eth0>cali1 203.0.113.5>192.0.2.66 tcp:1>80 established", Accept, none, none, false},
		{map[string]string{web: natted}, "cali2>cali1 10.0.0.2>192.0.2.77 tcp:1>80", Accept, addr("10.0.0.1"), none, false},
		{map[string]string{web: natted}, "->cali1 192.0.2.10>192.0.2.77 tcp:1>80", Accept, addr("10.0.0.1"), none, false},
		// SNAT only on the hairpin.
		{map[string]string{web: natted}, "cali1>cali1 10.0.0.1>192.0.2.77 tcp:1>80", Accept, addr("10.0.0.1"), addr("192.0.2.66"), false},
		{map[string]string{web: natted}, "cali1>eth0 10.0.0.1>172.16.5.5 tcp:1>2", Accept, none, none, false},
		// Policy sees the address after DNAT.
		{map[string]string{web: natted, pol + "a": `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"dst_net": "10.0.0.1/32"}]}`}, "eth0>cali1 203.0.113.5>192.0.2.77 tcp:1>80", Accept, addr("10.0.0.1"), none, false},
		{map[string]string{web: natted, pol + "a": `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"dst_net": "192.0.2.77/32"}]}`}, "eth0>cali1 203.0.113.5>192.0.2.77 tcp:1>80", Drop, addr("10.0.0.1"), none, false},
		// An endpoint that is not active has no NAT.
		{map[string]string{web: strings.Replace(natted, "active", "inactive", 1)}, "eth0>- 203.0.113.5>192.0.2.77 tcp:1>80", Accept, none, none, false},
	} {
		_, st := stateOf(t, tt.objects)
		r := Evaluate(testSettings, st, packet(t, tt.packet))
		if r.Verdict != tt.want || r.DNAT != tt.dnat || r.SNAT != tt.snat || r.Masqueraded != tt.masquerade {
			t.Errorf("%s: %s dnat %v snat %v masqueraded %v, want %s %v %v %v\n%v", tt.packet,
				r.Verdict, r.DNAT, r.SNAT, r.Masqueraded, tt.want, tt.dnat, tt.snat, tt.masquerade, r.Trail)
		}
	}
}

// TestPreDNAT: it goes by the original destination, and makes the packet skip the host endpoint's other policies.
func TestPreDNAT(t *testing.T) {
	early := func(rules string) map[string]string {
		return map[string]string{uplink: named, pol + "early": `{"selector": "has(side)", "pre_dnat": true, "inbound_rules": [` + rules + `]}`}
	}
	deny, allow := early(`{"action": "deny", "protocol": "tcp", "dst_ports": [80]}`), early(`{"protocol": "tcp", "dst_ports": [80]}`)
	everywhere := map[string]string{star: `{"name": "*", "labels": {"side": "any"}, "profile_ids": ["open"]}`, pol + "early": deny[pol+"early"]}
	checkCases(t, testSettings, []evaluateCase{
		{deny, webToHost, Drop, "policy early rule 0: deny"},
		{deny, fromOut, Drop, "policy early rule 0: deny"},
		{deny, strings.Replace(fromOut, "eth0", "eth1", 1), Accept, "profile open"},
		{deny, fromOut + " established", Accept, "established"},
		{early(`{"action": "deny"}`), sshToHost, Accept, "fail-safe port 22"},
		{everywhere, fromOut, Drop, "policy early rule 0: deny"},
		{everywhere, toOut, Accept, "profile open"},
		{allow, webToHost, Accept, "allowed by a policy before DNAT"},
		{allow, "eth0>- 203.0.113.5>192.0.2.10 tcp:1>81", Drop, "no profile decides"},
		{map[string]string{pol + "early": `{"selector": "", "pre_dnat": true, "inbound_rules": [{"action": "deny"}]}`}, fromOut, Accept, "profile open"},
	})
	_, st := stateOf(t, deny)
	p := packet(t, "eth0>cali1 203.0.113.5>10.0.0.1 tcp:40000>8080")
	if got := Evaluate(testSettings, st, p).Verdict; got != Accept {
		t.Errorf("to another port: %s", got)
	}
	p.Called = netip.MustParseAddrPort("192.0.2.10:80")
	if got := Evaluate(testSettings, st, p).Verdict; got != Drop {
		t.Errorf("called by the port that is denied: %s", got)
	}
}

// TestApplyOnForward: a host endpoint's policies for forwarded packets, in and out.
func TestApplyOnForward(t *testing.T) {
	web := `"inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}], "outbound_rules": [{"protocol": "tcp", "dst_ports": [443]}]`
	forward := map[string]string{uplink: named, pol + "f": `{"selector": "has(side)", "apply_on_forward": true, ` + web + `}`}
	unknown := map[string]string{uplink: named, pol + "f": `{"selector": "has(side)", "apply_to": "forwarded", ` + web + `}`}
	through := "eth1>eth0 198.51.100.7>203.0.113.5 tcp:1>"
	checkCases(t, testSettings, []evaluateCase{
		{forward, fromOut, Accept, "to endpoint " + uplink + ": policy f rule 0: allow"},
		{forward, strings.Replace(fromOut, ">80", ">81", 1), Drop, "end of tier default"},
		{forward, toOut, Accept, "from endpoint " + uplink + ": policy f rule 0: allow"},
		{forward, strings.Replace(toOut, ">443", ">444", 1), Drop, "end of tier default"},
		{forward, through + "443", Accept, "policy f rule 0"},
		{forward, through + "444", Drop, "end of tier default"},
		{forward, through + "444 established", Accept, "established"},
		{forward, webToHost, Accept, "policy f rule 0"},
		{map[string]string{uplink: named, pol + "f": `{"selector": "has(side)", ` + web + `}`}, through + "444", Accept, "no endpoints"},
		// What may be meant for forwarded packets denies them.
		{unknown, fromOut, Drop, "policy f: deny: apply_to: unknown"},
		{unknown, through + "443", Drop, "policy f: deny: apply_to: unknown"},
	})
}
