// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/beside"
)

// TestForwardDrop: an agent lets workloads pass a FORWARD chain that drops, restores the rule when it is removed, and removes it when the
// parameter says so.
func TestForwardDrop(t *testing.T) {
	h := newHost(t)
	nft := func(command string) string {
		out, err := exec.Command("nft", command).CombinedOutput()
		if err != nil {
			t.Fatalf("nft %s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	accepts := func() int { return strings.Count(nft("list chain ip filter FORWARD"), beside.Comment) }
	nft("add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }")
	t.Cleanup(func() { nft("delete table ip filter") })
	h.put(model.ReadyKey{}, model.Ready(true))
	h.start()
	h.until("workloads are let through", func() bool { return accepts() == 2 })
	nft("flush chain ip filter FORWARD")
	h.until("they are again", func() bool { return accepts() == 2 })
	h.put(model.GlobalConfigKey{Name: "ChainInsertMode"}, model.Text("Off"))
	h.until("they are not any more", func() bool { return accepts() == 0 })
}

// TestBlocked: rules of others that stop workloads' packets are listed with a remedy, counted, and named by the readiness page. They make
// the host unready if nothing passes, unless a parameter says otherwise. Rules for a family that no workload has, or for the host's own
// packets, don't.
func TestBlocked(t *testing.T) {
	h := newHost(t)
	run := func(command string) {
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("nft", "delete table inet stranger").Run() })
	listed := func(text string) func() bool {
		return func() bool {
			_, page := h.fetch(h.health, "/debug/invalid")
			return strings.Contains(page, text)
		}
	}
	named := func(text string) func() bool {
		return func() bool {
			status, page := h.fetch(h.health, "/readiness")
			return status == http.StatusOK && strings.Contains(page, text)
		}
	}
	const chain = "chain inet stranger forward"
	h.put(model.ReadyKey{}, model.Ready(true))
	h.start()
	h.ready()
	run("nft 'add table inet stranger; add chain inet stranger forward { type filter hook forward priority 10; policy drop; }'")
	h.unready(chain + " (hook forward) drops packets from cali* and to cali*: run nft 'insert rule inet stranger forward iifname \"cali*\" accept' &&")
	h.until("it is listed", listed("host "+chain))
	if n := h.metric(`calico_node_host_problems{what="` + chain + `"}`); n != 1 {
		t.Errorf("metric: %g", n)
	}
	h.put(model.GlobalConfigKey{Name: "UnreadyWhenBlocked"}, model.Text("Never"))
	h.until("the host is ready all the same", named(chain))
	run("nft 'insert rule inet stranger forward iifname \"cali*\" accept; insert rule inet stranger forward oifname \"cali*\" accept'")
	h.until("all is in order", func() bool { return !listed(chain)() && !named(chain)() })

	h.put(model.GlobalConfigKey{Name: "UnreadyWhenBlocked"}, model.Text("All"))
	run("nft 'flush table inet stranger; add chain inet stranger output { type filter hook output priority 10; policy accept; }; add rule inet stranger output oifname \"cali*\" reject'")
	run("nft 'add chain inet stranger forward { policy accept; }; add table ip6 stranger; add chain ip6 stranger forward { type filter hook forward priority 10; policy drop; }'")
	t.Cleanup(func() { _ = exec.Command("nft", "delete table ip6 stranger").Run() })
	h.until("the host's own packets are named", named("chain inet stranger output"))
	if listed("chain ip6 stranger")() {
		t.Error("IPv6, which no workload has, is listed")
	}
	h.addPod(1) // of both families
	h.until("IPv6 is listed once a workload has it", listed("chain ip6 stranger"))
	h.until("IPv4 still passes", named("chain ip6 stranger forward"))
	h.put(model.GlobalConfigKey{Name: "UnreadyWhenBlocked"}, model.Text("Any"))
	h.unready("chain ip6 stranger forward")
}

// TestBlockedByAddress: chains of others that drop packets of the host's blocks, or those of the tunnel to other hosts, are found.
func TestBlockedByAddress(t *testing.T) {
	h := newHost(t)
	nft := func(command string) {
		if out, err := exec.Command("nft", command).CombinedOutput(); err != nil {
			t.Errorf("nft %s: %v\n%s", command, err, out)
		}
	}
	h.uplink("172.18.0.1/24")
	pool := vxlanPool("10.65.0.0/16")
	h.put(model.PoolKey{CIDR: pool.CIDR}, pool)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.neighbour("host-2", "172.18.0.2", "10.65.2.0/26")
	h.startWith(func(cfg *Config) { cfg.Methods[0] = method(t, 0, "interface=^up0$") })
	h.ready()
	h.addPod(1)
	nft("add table inet stranger; add chain inet stranger input { type filter hook input priority 10; policy drop; }; " +
		"add rule inet stranger input ct state established accept; add rule inet stranger input iif lo accept; add rule inet stranger input tcp dport 22 accept")
	t.Cleanup(func() { nft("delete table inet stranger") })
	named := func(text string) func() bool {
		return func() bool {
			status, page := h.fetch(h.health, "/readiness")
			return status == http.StatusOK && strings.Contains(page, text)
		}
	}
	h.until("the tunnel is named", named("drops packets of other hosts' VXLAN: run nft 'insert rule inet stranger input udp dport 4789 accept'"))
	nft("insert rule inet stranger input udp dport 4789 accept")
	h.until("it is open", func() bool { return !named("stranger")() })
	nft("add chain inet stranger forward { type filter hook forward priority 10; }; add rule inet stranger forward ip saddr 10.65.0.0/16 drop")
	h.until("the chain is named", named("chain inet stranger forward (hook forward) drops packets from cali*: run"))
}
