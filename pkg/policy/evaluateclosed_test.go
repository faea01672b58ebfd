// SPDX-License-Identifier: Apache-2.0

package policy

import "testing"

// TestToLoopback: a workload can't reach what listens only on the loopback, unless other software's rules lead it
// there.
func TestToLoopback(t *testing.T) {
	for _, action := range []EndpointToHost{ToHostAccept, ToHostReturn, ToHostDrop} {
		s := testSettings
		s.EndpointToHost, s.EndpointDNS = action, true
		checkCases(t, s, []evaluateCase{
			{nil, "cali1>- 10.0.0.1>127.0.0.1 tcp:5>80", Drop, "to the host's loopback"},
			{nil, "cali1>- 10.0.0.1>127.9.9.9 udp:5>53", Drop, "to the host's loopback"},
			{nil, "cali1>- 10.0.0.1>127.0.0.1 tcp:5>80 established", Accept, ""},
			{nil, "cali1>- 10.0.0.1>192.0.2.10 udp:5>53", Accept, ""},
			{nil, "eth0>- 192.0.2.1>127.0.0.1 tcp:5>80", Accept, ""},
		})
		_, st := stateOf(t, nil)
		p := packet(t, "cali1>- 10.0.0.1>127.0.0.1 udp:5>53")
		p.Translated = true
		if r := Evaluate(s, st, p); r.Verdict != Accept {
			t.Errorf("%s, translated: %v", action, r.Trail)
		}
	}
}

// TestShut: an interface named by an endpoint of this host and matched by no prefix passes nothing, like a workload
// interface without an endpoint.
func TestShut(t *testing.T) {
	tap := map[string]string{
		"/calico/v1/host/h1/workload/k8s/tap/endpoint/eth0": `{"state": "active", "name": "tap1", "profile_ids": ["open"], "ipv4_nets": ["10.0.0.9/32"], "ipv6_nets": ["fd00::9/128"]}`,
		uplink: `{"name": "tap1", "profile_ids": ["open"]}`,
		star:   `{"name": "*", "profile_ids": ["open"]}`,
	}
	var cases []evaluateCase
	for _, text := range []string{"tap1>eth0 10.0.0.9>192.0.2.1 udp:5>7", "tap1>eth0 fd00::9>2001:db8::1 udp:5>7", "tap1>eth0 fd00::9>2001:db8::1 udp:5>7 established",
		"tap1>- 10.0.0.9>192.0.2.10 udp:68>67", "tap1>- fd00::9>fd00::a icmpv6:135/0"} {
		cases = append(cases, evaluateCase{tap, text, Drop, "from interface tap1, which is shut"})
	}
	for _, text := range []string{"eth0>tap1 192.0.2.1>10.0.0.9 udp:5>7", "cali1>tap1 10.0.0.1>10.0.0.9 udp:5>7", "->tap1 192.0.2.10>10.0.0.9 udp:67>68", "->tap1 192.0.2.10>10.0.0.9 udp:5>7"} {
		cases = append(cases, evaluateCase{tap, text, Drop, "to workload interface tap1"})
	}
	cases = append(cases, evaluateCase{map[string]string{star: tap[star]}, "tap1>eth0 10.0.0.9>192.0.2.1 udp:5>7", Accept, ""})
	checkCases(t, testSettings, cases)
}
