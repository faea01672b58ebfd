// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/test/long"
)

// TestMetrics compares the metrics with what is there.
func TestMetrics(t *testing.T) {
	long.Test(t)
	r := newRig(t)
	server, client, _ := r.population()
	rule := regexp.MustCompile(`(?m)^\t\t[^t\n].* # handle \d+$|^\t\ttcp.* # handle \d+$`) // `type` begins what a hook is
	check := func(when string, want map[string]float64) {
		t.Helper()
		want["rules"] = float64(len(rule.FindAllString(r.run(r.self, "nft", "-a", "list", "table", "inet", "calico"), -1)))
		got := map[string]float64{}
		for name := range want {
			got[name] = r.metric("calico_node_firewall_" + name)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	// The policy's set has the client, the profile's all three, each with two addresses. The ports of metrics are an endpoint.
	check("at first", map[string]float64{"endpoints": 4, "policies": 1, "profiles": 1, "sets": 2, "set_members": 8,
		"endpoint_rules_max": 3, "endpoint_rules_mean": 7. / 3, "drift_repaired_total": 0, "failures_total": 0})
	for _, scope := range []string{"whole", "some"} {
		if n := r.metric(`calico_node_firewall_apply_seconds_count{scope="` + scope + `"}`); n == 0 {
			t.Errorf("apply time of %s: never observed", scope)
		}
	}
	r.put(hostPath("uplink"), `{"name": "eth0", "profile_ids": []}`)
	r.policy("more", `{"selector": "role == 'server'", "order": 1, "types": ["inbound"], "inbound_rules": [{"action": "deny", "src_selector": "role == 'nobody'"}, {"action": "deny", "protocol": "tcp", "dst_ports": [1]}]}`)
	r.policy("elsewhere", `{"selector": "role == 'nobody'", "inbound_rules": [{"action": "allow", "src_selector": "all()"}]}`)
	r.enforced()
	check("with more", map[string]float64{"endpoints": 5, "policies": 2, "profiles": 1, "sets": 3, "set_members": 8,
		"endpoint_rules_max": 5, "endpoint_rules_mean": 9. / 4, "drift_repaired_total": 0, "failures_total": 0})
	if err := client.pod.Delete(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.witness = server
	r.del(policyPath("more"))
	r.del(hostPath("uplink"))
	r.enforced()
	check("with less", map[string]float64{"endpoints": 3, "policies": 1, "profiles": 1, "sets": 2, "set_members": 4,
		"endpoint_rules_max": 3, "endpoint_rules_mean": 5. / 2, "drift_repaired_total": 0, "failures_total": 0})
}
