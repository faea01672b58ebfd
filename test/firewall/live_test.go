// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"regexp"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
)

// TestExplainLive: explain counts the packets that the rules it names have matched on the host.
func TestExplainLive(t *testing.T) {
	r := newRig(t)
	client, web := r.pod("client", [2]string{"role", "client"}), r.pod("web", [2]string{"role", "web"})
	r.policy("web", `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [{"action": "deny", "protocol": "udp"}, {"action": "allow", "protocol": "tcp", "dst_ports": [80]}]}`)
	r.enforced()
	bin := lab.Build(t, lab.BuildOptions{})
	counted := func(want string) {
		t.Helper()
		out, err := r.host.Exec(r.ctx(), bin+"/calicoctl", "explain", client.addrs[0].String(), "to", web.addrs[0].String(), "tcp:80", "--live", "1ms")
		if err != nil || !regexp.MustCompile(`(?m)^policy web rule 1, inbound +`+want+` +\+0$`).Match(out) {
			t.Errorf("%v: %s\nwant %s packets", err, out, want)
		}
	}
	counted("0")
	r.probe("it is allowed", expect{client, web, "tcp 80", true})
	counted("[1-9][0-9]*")
}
