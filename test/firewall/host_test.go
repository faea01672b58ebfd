// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestHost is what users write about the host itself, and about addresses.
func TestHost(t *testing.T) {
	long.Test(t)
	r := newHostileRig(t)
	web, client := r.pod("web"), r.pod("client")
	yes := func(from, to *place, what string) expect { return expect{from, to, what, true} }
	no := func(from, to *place, what string) expect { return expect{from, to, what, false} }

	t.Run("from endpoints to their host", func(t *testing.T) {
		r.T = t
		defer r.clear()
		for _, test := range []struct {
			action, dns string
			want        []expect
		}{
			{"DROP", "false", []expect{no(web, r.self, "tcp 80"), no(web, r.self, "ping"), no(web, r.self, "udp 53"), yes(r.self, web, "tcp 80"), yes(r.self, web, "ping")}},
			{"DROP", "true", []expect{no(web, r.self, "tcp 80"), yes(web, r.self, "udp 53"), yes(web, r.self, "tcp 53"), no(web, r.self, "udp 54")}},
			{"RETURN", "false", []expect{yes(web, r.self, "tcp 80"), yes(web, r.self, "udp 53")}},
			{"ACCEPT", "false", []expect{yes(web, r.self, "tcp 80"), yes(web, r.self, "ping")}},
		} {
			r.put(configPath("DefaultEndpointToHostAction"), test.action)
			r.put(configPath("AllowDNSPacketsFromWorkloads"), test.dns)
			r.enforced()
			r.probe("endpoint to host "+test.action+", DNS "+test.dns, test.want...)
		}
		r.policy("no-host", `{"selector": "all()", "types": ["outbound"], "outbound_rules": [{"action": "deny", "protocol": "tcp"}, {"action": "next-tier"}]}`)
		r.enforced()
		r.probe("ACCEPT comes after the endpoint's own policy", no(web, r.self, "tcp 80"), yes(web, r.self, "ping"))
	})

	t.Run("host endpoints", func(t *testing.T) {
		r.T = t
		defer r.clear()
		r.put(hostPath("uplink"), `{"name": "eth0", "labels": {"kind": "uplink"}, "profile_ids": []}`)
		r.enforced()
		// etcd itself lives outside, and its port is fail-safe.
		r.probe("a host endpoint without policy", no(r.outside, r.self, "tcp 80"), no(r.outside, r.self, "ping"), yes(r.outside, r.self, "tcp 22"),
			yes(r.outside, r.self, "udp 68"), no(r.self, r.outside, "tcp 80"), yes(r.self, r.outside, "udp 53"), yes(r.self, r.outside, "tcp 6443"),
			yes(web, r.outside, "tcp 80"), yes(client, web, "tcp 80"))
		r.policy("uplink", `{"selector": "kind == 'uplink'", "inbound_rules": [{"action": "allow", "protocol": "tcp", "dst_ports": [80]}], "outbound_rules": [{"action": "allow", "protocol": "udp"}]}`)
		r.enforced()
		r.probe("a host endpoint with a policy", yes(r.outside, r.self, "tcp 80"), no(r.outside, r.self, "tcp 81"), yes(r.self, r.outside, "udp 99"), no(r.self, r.outside, "tcp 80"))
		r.policy("uplink", `{"selector": "kind == 'uplink'", "inbound_rules": [{"action": "deny"}], "outbound_rules": [{"action": "deny"}]}`)
		r.enforced()
		r.probe("fail-safe ports come before a policy", yes(r.outside, r.self, "tcp 22"), yes(r.self, r.outside, "udp 53"), no(r.outside, r.self, "tcp 80"))
		r.put(configPath("FailsafeInboundHostPorts"), "tcp:8022")
		r.enforced()
		r.probe("other fail-safe ports", no(r.outside, r.self, "tcp 22"), yes(r.outside, r.self, "tcp 8022"))
		r.del(configPath("FailsafeInboundHostPorts"))
		r.put(hostPath("uplink"), fmt.Sprintf(`{"expected_ipv4_addrs": ["%s"], "labels": {"kind": "uplink"}, "profile_ids": []}`, r.self.addrs[0]))
		r.enforced()
		r.probe("a host endpoint by its address", no(r.outside, r.self, "tcp 80"), yes(r.outside, r.self, "tcp 22"))
		r.policy("uplink", `{"selector": "all()", "inbound_rules": [{"action": "allow"}], "outbound_rules": [{"action": "allow"}]}`)
		r.enforced()
		r.probe("a host endpoint that is open", yes(r.outside, r.self, "tcp 80"), yes(r.self, r.outside, "tcp 80"))
		for what, value := range map[string]string{"wrong labels": `{"name": "eth0", "labels": {"kind": 5}, "profile_ids": []}`, "no JSON": `{"name": "eth0", "profile_ids": []`} {
			r.put(hostPath("uplink"), value)
			r.enforced()
			r.probe("a host endpoint with "+what, no(r.outside, r.self, "tcp 80"), no(r.self, r.outside, "tcp 80"), yes(r.outside, r.self, "tcp 22"), yes(r.self, r.outside, "udp 53"))
		}
	})
	r.probe("no host endpoint any more", yes(r.outside, r.self, "tcp 80"), yes(r.self, r.outside, "tcp 80"))

	t.Run("untracked", func(t *testing.T) {
		r.T = t
		defer r.clear()
		r.put(hostPath("uplink"), `{"name": "eth0", "labels": {"kind": "uplink"}, "profile_ids": []}`)
		r.policy("fast", `{"selector": "kind == 'uplink'", "untracked": true, "inbound_rules": [{"action": "allow", "protocol": "udp", "dst_ports": [5000]}, {"action": "deny", "protocol": "tcp", "dst_ports": [6000]},
			{"action": "allow", "protocol": "tcp", "dst_ports": [7000]}], "outbound_rules": [{"action": "allow", "protocol": "tcp", "src_ports": [7000]}]}`)
		r.policy("slow", `{"selector": "kind == 'uplink'", "order": 1, "inbound_rules": [{"action": "allow"}], "outbound_rules": []}`)
		r.enforced()
		r.probe("untracked policy", yes(r.outside, r.self, "udp 5000"), yes(r.outside, r.self, "udp 5001"), no(r.outside, r.self, "tcp 6000"), yes(r.outside, r.self, "tcp 7000"), yes(r.outside, r.self, "tcp 80"))
		if got := r.run(r.self, "conntrack", "-L", "-p", "udp", "--dport", "5000"); strings.Contains(got, "dport=5000") {
			t.Errorf("an untracked packet is tracked: %s", got)
		}
		if got := r.run(r.self, "conntrack", "-L", "-p", "udp", "--dport", "5001"); !strings.Contains(got, "dport=5001") {
			t.Errorf("another packet isn't tracked: %q", got)
		}
	})

	t.Run("every interface", func(t *testing.T) {
		r.T = t
		defer r.clear()
		r.put(hostPath("all"), `{"name": "*", "labels": {"kind": "all"}, "profile_ids": []}`)
		r.policy("all", `{"selector": "kind == 'all'", "apply_on_forward": true, "inbound_rules": [{"action": "allow", "protocol": "udp"}], "outbound_rules": [{"action": "allow", "protocol": "tcp"}]}`)
		r.policy("open", `{"selector": "!has(kind)", "inbound_rules": [{"action": "allow"}], "outbound_rules": [{"action": "allow"}]}`)
		r.enforced()
		r.probe("a host endpoint of all interfaces", yes(r.outside, web, "udp 53"), no(r.outside, web, "tcp 80"), yes(web, r.outside, "tcp 80"), no(web, r.outside, "udp 53"),
			yes(client, web, "tcp 80"), no(r.outside, r.self, "tcp 80"), yes(r.outside, r.self, "udp 99"), yes(r.outside, r.self, "tcp 22"), yes(r.self, r.outside, "tcp 80"), no(r.self, r.outside, "udp 99"))
		r.policy("all", `{"selector": "kind == 'all'", "inbound_rules": [{"action": "deny", "protocol": "tcp", "dst_ports": [80]}, {"action": "allow"}], "outbound_rules": [{"action": "allow"}]}`)
		r.enforced()
		r.probe("and without apply_on_forward", no(r.outside, r.self, "tcp 80"), yes(r.outside, r.self, "tcp 81"), yes(r.outside, web, "tcp 80"), yes(web, r.outside, "udp 53"))
	})

	t.Run("masquerade", func(t *testing.T) {
		r.T = t
		far := r.at(r.outside, "203.0.113.1", "2001:db8::1") // in no pool
		source := func(to *place) (sources []netip.Addr) {
			for _, a := range to.addrs {
				got, err := sendUDP(web, to, netip.AddrPortFrom(a, 4000))
				if err != nil {
					t.Error(err)
				}
				sources = append(sources, got.Addr())
			}
			return sources
		}
		if got := source(far); !slices.Equal(got, web.addrs[:]) {
			t.Errorf("from a pool without masquerading: from %v", got)
		}
		pools := map[string]string{"v4/pool/192.168.0.0-16": `{"cidr": "192.168.0.0/16"%s}`, "v6/pool/fd80:24e2:f998:72d6::-64": `{"cidr": "fd80:24e2:f998:72d6::/64"%s}`}
		for path, value := range pools {
			r.put("/calico/v1/ipam/"+path, fmt.Sprintf(value, `, "masquerade": true`))
		}
		r.enforced()
		if got := source(far); !slices.Equal(got, r.self.addrs[:]) {
			t.Errorf("from a pool with masquerading: from %v", got)
		}
		if got := source(client); !slices.Equal(got, web.addrs[:]) {
			t.Errorf("from pool to pool: from %v", got)
		}
		for path, value := range pools {
			r.put("/calico/v1/ipam/"+path, fmt.Sprintf(value, ""))
		}
		r.enforced()
		r.written = nil
	})

	t.Run("1:1 NAT", func(t *testing.T) {
		r.T = t
		v4, v6 := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:7::7")
		r.routes("198.51.100.7/32", "2001:db8:7::7/128")
		undo := r.endpoint(web, func(e *model.WorkloadEndpoint) {
			e.IPv4NAT = []model.NAT{{IntIP: web.addrs[0], ExtIP: v4}}
			e.IPv6NAT = []model.NAT{{IntIP: web.addrs[1], ExtIP: v6}}
			e.ProfileIDs = []string{"open"}
		})
		r.profile("open", `{"inbound_rules": [{"action": "allow"}], "outbound_rules": [{"action": "allow"}]}`)
		r.enforced()
		nat := web.at("web's outer address", v4, v6)
		r.probe("1:1 NAT", yes(r.outside, nat, "tcp 80"), yes(client, nat, "tcp 80"), yes(r.self, nat, "tcp 80"), yes(r.outside, nat, "udp 53"))
		r.probe("an endpoint that calls its own outer address", yes(web, nat, "tcp 80"), yes(web, nat, "udp 53"))
		for i, to := range nat.addrs {
			if got, err := sendUDP(web, nat, netip.AddrPortFrom(to, 4000)); err != nil || got.Addr() != nat.addrs[i] {
				t.Errorf("an endpoint that calls itself sees itself come from %v, %v", got, err)
			}
		}
		r.profile("open", `{"inbound_rules": [{"action": "deny", "protocol": "tcp"}, {"action": "allow"}], "outbound_rules": [{"action": "allow"}]}`)
		r.enforced()
		r.probe("policy holds behind NAT", no(r.outside, nat, "tcp 80"), yes(r.outside, nat, "udp 53"), no(web, nat, "tcp 80"))
		undo()
		r.clear()
		r.probe("NAT that is gone", no(r.outside, nat, "tcp 80"))
	})
}

// at gives a place more addresses, on its loopback.
func (r *rig) at(p *place, v4, v6 string) *place {
	r.Helper()
	a, b := netip.MustParseAddr(v4), netip.MustParseAddr(v6)
	r.run(p, "ip", "addr", "add", v4+"/32", "dev", "lo")
	r.run(p, "ip", "addr", "add", v6+"/128", "dev", "lo")
	r.until("the address "+v6+" is usable", func() bool { return r.run(p, "ip", "-6", "addr", "show", "dev", "lo", "tentative") == "" })
	return p.at(p.name+"'s other address", a, b)
}
