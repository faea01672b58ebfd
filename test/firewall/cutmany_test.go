// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestCutMany has a client that is about to be denied first begin more than is kept
// by ports: the server, which goes on to answer, keeps none of it open.
func TestCutMany(t *testing.T) {
	r := newRig(t)
	server, client, friend := r.pod("server", [2]string{"role", "server"}), r.pod("client"), r.pod("friend")
	r.policy("yes", `{"selector": "role == 'server'", "order": 10, "types": ["inbound"], "inbound_rules": [{"action": "allow"}]}`)
	r.enforced()
	runs := r.reaching(client, server, server)
	r.flows("before", runs...)
	const ports = 60000
	// However long this takes, the first of them is tracked until the last is: 30 s is the kernel's default.
	r.run(r.self, "sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout=600")
	for range 2 {
		var conn *net.UDPConn
		err := bound(client, func() (err error) {
			conn, err = net.ListenUDP("udp", nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for p := range uint16(ports) {
			if _, err := conn.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(server.addrs[0], p+1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	deny := `{"selector": "role == 'server'", "order": 1, "types": ["inbound"], "inbound_rules": [{"action": "deny", "protocol": "udp", "dst_ports": ["1:60000"]}, {"action": "deny", "protocol": "tcp"}]}`
	r.policy("no", deny)
	r.enforced()
	// It takes a while for so many, and several times that beside others who want the CPU.
	if !r.comes(5*time.Minute, func() bool { return r.metric("calico_node_connections_cut_total") > 2*ports && r.quiet(runs[0], runs) }) {
		t.Fatalf("of %d connections and those that run, %v are cut", 2*ports, r.metric("calico_node_connections_cut_total"))
	}
	before := counts(runs)
	r.pause(runs[0], 400)
	for i, s := range runs {
		if n := s.arrived.Load() - before[i]; n != 0 {
			t.Errorf("%s goes on: %d", s.name, n)
		}
	}
	r.probe("while they are cut", expect{server, client, "tcp 4000", true}, expect{server, friend, "udp 4000", true}, expect{friend, client, "udp 4001", true})
	r.policy("no", `{"selector": "role == 'server'", "order": 1, "types": ["inbound"], "inbound_rules": [{"action": "deny", "protocol": "udp", "dst_ports": ["1:50000"]}, {"action": "deny", "protocol": "tcp"}]}`)
	t.Logf("another change of policy was enforced after %v", r.enforced())
	if !r.quiet(runs[0], runs) {
		t.Error("after another change of policy they go on")
	}
	r.del(policyPath("no"))
	t.Logf("and one that allows all again after %v", r.enforced())
	r.flows("allowed again", runs...)
	r.until("the server may begin again", func() bool {
		return !strings.Contains(r.run(r.self, "nft", "list", "set", "inet", "calico", "cut-portless4"), "counter packets")
	})
	r.probe("allowed again", expect{server, client, "udp 4002", true})
}
