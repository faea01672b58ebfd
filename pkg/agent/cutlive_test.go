// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/agent/firewall"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
)

// justFirewall is a kernel with a real firewall and nothing else.
type justFirewall struct {
	*clockwork
	real kernel
}

func (k justFirewall) Firewall(alive func()) (firewall.Table, error) { return k.real.Firewall(alive) }

// byEth0 is the real tracker, on a host without pods.
type byEth0 struct{ connections.Tracker }

func (byEth0) Routes() connections.Routes { return noRoutes{} }

// cutLive runs a loop with the real firewall, the real tracker and these entries of etcd, until the condition is met.
func cutLive(t *testing.T, entries []model.Entry, what string, met func() bool) {
	t.Helper()
	env := testEnv(t)
	cfg := Config{Node: "h", RunDir: t.TempDir(), VarDir: t.TempDir()}
	l := newLoop(cfg, env, params.Resolve().Params, testParts(env, named("h", env.Health, env.Logger)))
	l.system.kernel, l.system.tracker = justFirewall{&clockwork{start: time.Now()}, l.system.kernel}, byEth0{l.system.tracker}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.runToEnd(ctx) }()
	l.updates <- model.Update{Revision: 1, Resync: true, Entries: entries}
	eventually.True(t, what, func() bool { return met() || t.Failed() })
	cancel()
	if err := eventually.Receive(t, "the end of the loop", ended); err != nil {
		t.Errorf("run: %v", err)
	}
}

// TestCutLive cuts connections in the real kernel, which remembers them from one agent to the next.
func TestCutLive(t *testing.T) {
	command := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	t.Cleanup(func() { command("nft", "delete", "table", "inet", nft.TableName) })
	const flows = 5
	for i := range flows {
		command("conntrack", "-I", "-p", "udp", "-s", "10.0.0.1", "-d", "10.0.0.2", "--sport", fmt.Sprint(1000+i), "--dport", "80", "--timeout", "300")
	}
	held := func() int {
		return strings.Count(command("nft", "list", "set", "inet", nft.TableName, "cut4"), "timeout 10m expires")
	}
	a, b := testSpec("cali1", "10.0.0.1"), testSpec("cali2", "10.0.0.2")
	a.ProfileIDs, b.ProfileIDs = []string{"open"}, []string{"open"}
	entries := []model.Entry{put(model.ReadyKey{}, model.Ready(true), 1), put(testKey("a"), a, 1), put(testKey("b"), b, 1),
		put(model.ProfileRulesKey{Profile: "open"}, model.Rules{Inbound: []model.Rule{{Action: model.ActionAllow}}, Outbound: []model.Rule{{Action: model.ActionAllow}}}, 1),
		put(model.PolicyKey{Tier: "default", Policy: "no"}, model.Policy{Selector: "all()", Types: []model.Direction{model.Inbound}, Inbound: []model.Rule{
			{Action: model.ActionDeny, Match: model.Match{Protocol: model.ProtocolUDP, DstPorts: []model.Port{{Min: 80, Max: 80}}}}, {Action: model.ActionAllow}}}, 1)}
	cutLive(t, entries, "they are cut", func() bool {
		return !strings.Contains(command("conntrack", "-L", "-p", "udp", "-s", "10.0.0.1", "-d", "10.0.0.2"), "src=")
	})
	if n := held(); n != flows {
		t.Errorf("%d are kept, want %d", n, flows)
	}
	cutLive(t, entries, "the next agent keeps them", func() bool { return held() == flows })
}
