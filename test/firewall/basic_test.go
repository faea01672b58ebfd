// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// TestPolicy is a tour of what users write.
func TestPolicy(t *testing.T) {
	r := newHostileRig(t)
	web := r.pod("web", [2]string{"role", "web"})
	client := r.pod("client", [2]string{"role", "client"})
	stranger := r.pod("stranger")
	r.endpoint(stranger, func(e *model.WorkloadEndpoint) { e.ProfileIDs = []string{"other"} })
	r.profile("other", `{"inbound_rules": [], "outbound_rules": [{"action": "allow"}]}`)
	r.enforced()
	yes := func(from, to *place, what string) expect { return expect{from, to, what, true} }
	no := func(from, to *place, what string) expect { return expect{from, to, what, false} }

	r.probe("with the network's profile alone",
		yes(client, web, "tcp 80"), yes(client, web, "udp 53"), yes(client, web, "ping"), yes(web, client, "udp 53"),
		no(stranger, web, "tcp 80"), no(stranger, web, "udp 53"), no(stranger, web, "ping"),
		no(web, stranger, "udp 53"), no(r.outside, web, "tcp 80"), no(r.outside, web, "ping"),
		yes(web, r.outside, "tcp 80"), yes(stranger, r.outside, "ping"), yes(r.self, web, "tcp 80"), yes(r.self, stranger, "udp 53"))

	for _, test := range []struct {
		name     string
		policies map[string]string
		want     []expect
	}{
		{"a policy that allows one port", map[string]string{
			"web": `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "protocol": "tcp", "dst_ports": [80]}]}`,
		}, []expect{
			yes(stranger, web, "tcp 80"), yes(r.outside, web, "tcp 80"), yes(client, web, "tcp 80"),
			no(client, web, "tcp 81"), no(client, web, "udp 80"), no(client, web, "ping"), yes(web, client, "udp 53"),
		}},
		{"a policy that denies", map[string]string{
			"web": `{"selector": "role == 'client'", "types": ["outbound"], "outbound_rules": [{"action": "deny", "dst_selector": "role == 'web'"}, {"action": "next-tier"}]}`,
		}, []expect{
			no(client, web, "tcp 80"), no(client, web, "ping"), yes(client, r.outside, "tcp 80"), yes(web, client, "udp 53"),
		}},
		{"the lower order is asked first", map[string]string{
			"a-late":  `{"selector": "role == 'web'", "order": 20, "types": ["inbound"], "inbound_rules": [{"action": "deny"}]}`,
			"b-early": `{"selector": "role == 'web'", "order": 10, "types": ["inbound"], "inbound_rules": [{"action": "allow", "protocol": "udp"}]}`,
		}, []expect{yes(client, web, "udp 53"), no(client, web, "tcp 80")}},
		{"next-tier goes on to the profiles", map[string]string{
			"web": `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "protocol": "udp"}, {"action": "next-tier"}]}`,
		}, []expect{yes(stranger, web, "udp 53"), yes(client, web, "tcp 80"), no(stranger, web, "tcp 80")}},
		{"a policy that applies and doesn't decide", map[string]string{
			"web": `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": []}`,
		}, []expect{no(client, web, "tcp 80"), no(client, web, "ping"), yes(web, client, "tcp 80"), yes(r.self, web, "tcp 80")}},
		{"a tag", map[string]string{
			"web": `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "src_tag": "calico-lab"}]}`,
		}, []expect{yes(client, web, "tcp 80"), no(stranger, web, "tcp 80"), no(r.outside, web, "tcp 80")}},
		{"what is not selected", map[string]string{
			"web": `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "!src_selector": "role == 'client'"}]}`,
		}, []expect{no(client, web, "tcp 80"), yes(stranger, web, "tcp 80"), yes(r.outside, web, "tcp 80")}},
		{"a negation in a selector means pods alone", map[string]string{
			"web": `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "src_selector": "role != 'client'"}]}`,
		}, []expect{no(client, web, "tcp 80"), yes(stranger, web, "tcp 80"), no(r.outside, web, "tcp 80")}},
		{"a network", map[string]string{
			"web": fmt.Sprintf(`{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "src_net": "%s/32"}, {"action": "allow", "src_net": "fd00:fa:b::/64"}]}`,
				r.outside.addrs[0]),
		}, []expect{no(client, web, "tcp 80"), yes(r.outside, web, "tcp 80")}},
		{"types of ICMP", map[string]string{
			"web": `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "protocol": "icmp", "icmp_type": 8}, {"action": "allow", "protocol": "icmpv6", "icmp_type": 128}]}`,
		}, []expect{yes(client, web, "ping"), yes(r.outside, web, "ping"), no(client, web, "udp 53")}},
		{"another type of ICMP", map[string]string{
			"web": `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "protocol": "icmp", "icmp_type": 13}, {"action": "allow", "protocol": "icmpv6", "!icmp_type": 128}]}`,
		}, []expect{no(client, web, "ping")}},
	} {
		for name, p := range test.policies {
			r.policy(name, p)
		}
		r.enforced()
		r.probe(test.name, test.want...)
		for name := range test.policies {
			r.del(policyPath(name))
		}
		r.enforced()
	}

	r.policy("http", `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "protocol": "tcp", "dst_ports": ["http"]}]}`)
	r.enforced()
	r.probe("a port that nobody has", no(client, web, "tcp 8080"))
	undo := r.endpoint(web, func(e *model.WorkloadEndpoint) {
		e.Ports = []model.EndpointPort{{Name: "http", Protocol: model.ProtocolTCP, Port: 8080}}
	})
	r.enforced()
	r.probe("a named port", yes(client, web, "tcp 8080"), yes(stranger, web, "tcp 8080"), no(client, web, "tcp 80"))
	undo()
	r.del(policyPath("http"))

	service := func(port int) string {
		return fmt.Sprintf(`{"endpoints": [{"nets": ["%s", "%s"], "ports": [{"name": "svc.shop.web", "protocol": "tcp", "port": %d}, {"name": "svc.shop.web", "protocol": "udp", "port": 53}]}]}`,
			web.addrs[0], web.addrs[1], port)
	}
	const shop = "/calico/v1/service/shop%2Fweb"
	r.put(shop, service(80))
	r.policy("service", `{"selector": "role == 'client'", "types": ["outbound"], "outbound_rules": [{"action": "allow", "dst_ports": ["svc.shop.web"]}]}`)
	r.enforced()
	r.probe("a service", yes(client, web, "tcp 80"), yes(client, web, "udp 53"), no(client, web, "tcp 8080"), no(client, web, "ping"), no(client, stranger, "tcp 80"))
	r.put(shop, service(8080))
	r.enforced()
	r.probe("a service with another port", no(client, web, "tcp 80"), yes(client, web, "tcp 8080"))
	r.del(shop)
	r.enforced()
	r.probe("a service that isn't there", no(client, web, "tcp 8080"), no(client, web, "udp 53"))
	r.del(policyPath("service"))

	undo = r.endpoint(web, func(e *model.WorkloadEndpoint) { e.State = model.StateInactive })
	r.enforced()
	r.probe("an inactive endpoint", no(client, web, "tcp 80"), no(r.self, web, "ping"), no(web, client, "udp 53"), no(web, r.self, "udp 53"))
	undo()
	r.enforced()
	r.probe("an endpoint that is active again", yes(client, web, "tcp 80"), yes(web, client, "udp 53"))

	r.put("/calico/v1/policy/profile/calico-lab/labels", `{"team": "red"}`)
	r.policy("red", `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "src_selector": "team == 'red'"}]}`)
	r.enforced()
	r.probe("a label of a profile", yes(client, web, "tcp 80"), no(stranger, web, "tcp 80"))
	undo = r.endpoint(client, func(e *model.WorkloadEndpoint) { e.Labels = map[string]string{"team": "blue"} })
	r.enforced()
	r.probe("an endpoint's label over its profile's", no(client, web, "tcp 80"))
	undo()
	r.clear()
}
