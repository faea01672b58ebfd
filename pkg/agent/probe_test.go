// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestProbe: the path of workloads' packets is probed on a host that has workloads, for the families that they have, whatever policy says.
// If packets get lost the host is unready, and the reason says where: before our own rules accepted them or after. The probe's links are
// recreated if they are deleted, and are removed with the last workload, with the parameter, and with the agent.
func TestProbe(t *testing.T) {
	long.Test(t)
	h := newHost(t)
	ends := func() int {
		links, err := link.List("caliprobe")
		if err != nil {
			t.Fatal(err)
		}
		return len(links)
	}
	run := func(command string) {
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("nft", "delete table inet stranger").Run() })
	h.put(model.ReadyKey{}, model.Ready(true))
	h.put(model.GlobalConfigKey{Name: "UnreadyWhenBlocked"}, model.Text("Any"))
	// It denies all that any endpoint sends or receives.
	h.put(model.PolicyKey{Tier: model.DefaultTier, Policy: "none"}, model.Policy{Selector: "all()", Types: []model.Direction{model.Inbound, model.Outbound}})
	stop := h.startWith(func(c *Config) { c.probePeriod = 100 * time.Millisecond })
	h.ready()
	if n := ends(); n != 0 {
		t.Errorf("a host without workloads has %d interfaces of the probe", n)
	}
	p := h.addPod(1) // of both families
	h.until("there are two workloads more", func() bool { return ends() == 2 })
	h.ready()
	passed := func() uint64 {
		n, err := accepted()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// Each packet is the first of a connection: one that there is could pass where others don't.
	h.until("a packet of each family passes", func() bool { return passed() >= 2 })
	before := passed()
	h.until("two more do", func() bool { return passed() >= before+2 })

	const lost = " from 169.254.1.2 on caliprobe0 to 169.254.1.3 on caliprobe1 got lost "
	for _, test := range []struct{ hook, rule, reason string }{
		// Each matches on something that not all packets of workloads have, only the probe's for sure: none of the chains counts as
		// one that stops them all.
		{"forward priority 10", "ip daddr . udp dport { 169.254.1.3 . 9 } drop", "UDP" + lost + "after our own rules accepted it"},
		{"forward priority -10", "ip daddr . udp dport { 169.254.1.3 . 9 } drop", "UDP" + lost + "before our own rules accepted it"},
		{"prerouting priority -350", "ip daddr 169.254.1.2 udp sport 9 drop", "the answer of UDP" + lost[:len(lost)-1] + ", though the question arrived"},
		{"input priority 10", "icmpv6 type nd-neighbor-solicit drop", "UDP from fdca:11c0::2 on caliprobe0 to fdca:11c0::3"},
		{"forward priority 10", "ip6 daddr . udp dport { fdca:11c0::3 . 9 } drop", "UDP from fdca:11c0::2 on caliprobe0 to fdca:11c0::3"},
	} {
		run("nft 'add table inet stranger; add chain inet stranger x { type filter hook " + test.hook + "; }; add rule inet stranger x " + test.rule + "'")
		h.unready(test.reason)
		run("nft delete table inet stranger")
		h.ready()
	}

	run("nft 'add table inet stranger; add chain inet stranger x { type filter hook forward priority 10; }; add rule inet stranger x ip daddr 169.254.0.0/16 drop'")
	h.until("what drops the probe's packets and not workloads' is a remark", func() bool {
		status, page := h.fetch(h.health, "/readiness")
		return status == http.StatusOK && strings.Contains(page, "; chain inet stranger x (hook forward) drops it for its addresses")
	})
	run("nft 'insert rule inet stranger x iifname \"caliprobe*\" accept'")
	h.until("the path is tried all the same", func() bool {
		_, page := h.fetch(h.health, "/readiness")
		return !strings.Contains(page, "stranger")
	})
	run("nft delete table inet stranger")

	run("ip link del caliprobe1")
	h.until("it is made anew", func() bool { return ends() == 2 })
	h.ready()
	h.put(model.GlobalConfigKey{Name: "ProbeWorkloadPath"}, model.Text("false"))
	h.until("it is switched off", func() bool { return ends() == 0 })
	h.remove(model.GlobalConfigKey{Name: "ProbeWorkloadPath"})
	h.until("it is switched on", func() bool { return ends() == 2 })
	h.remove(p.key)
	h.until("the last workload is gone", func() bool { return ends() == 0 })
	h.put(p.key, p.spec)
	h.until("it is there again", func() bool { return ends() == 2 })
	stop()
	if n := ends(); n != 0 {
		t.Errorf("the agent leaves %d interfaces of the probe", n)
	}
}
