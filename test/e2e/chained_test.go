// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/calico-go/calico/pkg/model"
)

func TestChained(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	c := newCluster(ctx, t, network{chained: []map[string]any{
		{"type": "portmap", "backend": "nftables", "snat": true, "capabilities": map[string]any{"portMappings": true}},
		{"type": "bandwidth", "capabilities": map[string]any{"bandwidth": true}},
	}})
	const hostPort = 8080
	web := c.must(ctx, "web", func(s *cri.PodSandboxConfig) {
		s.PortMappings = []*cri.PortMapping{{Protocol: cri.Protocol_TCP, ContainerPort: 80, HostPort: hostPort}}
		s.Annotations = map[string]string{"kubernetes.io/ingress-bandwidth": "20M", "kubernetes.io/egress-bandwidth": "10M"}
	})
	plain := c.must(ctx, "plain")
	c.reachable(ctx, web)
	c.reachableFrom(ctx, plain, web)
	closed := func(when string) {
		t.Helper()
		if made, err := c.outside.Namespace().Connects(netip.AddrPortFrom(c.node.IPv4(), hostPort)); made || err != nil {
			t.Errorf("%s: the host's port answers outside: %t, %v", when, made, err)
		}
	}
	closed("before a policy opens it")
	open := model.Policy{Selector: "all()", Types: []model.Direction{model.Inbound}, Inbound: []model.Rule{
		{Action: model.ActionAllow, Match: model.Match{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: 80, Max: 80}}}},
		{Action: model.ActionNextTier}, // else as the network's profile says
	}}
	if _, err := c.lab.Etcd().Commit(ctx, model.Change{Puts: []model.Put{{Key: model.PolicyKey{Tier: "default", Policy: "open-80"}, Value: open}}}); err != nil {
		t.Fatal(err)
	}
	for _, a := range c.node.Addrs() {
		c.answers(ctx, c.outside, netip.AddrPortFrom(a, hostPort), web)
		c.answers(ctx, c.node, netip.AddrPortFrom(a, hostPort), web)
	}

	e, ok := c.endpoint(ctx, web)
	if !ok {
		t.Fatal("etcd has no endpoint of web")
	}
	// What the pod receives is shaped as it leaves the host's end of its link, what it sends on a device of its own.
	qdiscs := func() string {
		out, err := c.node.Exec(ctx, "tc", "qdisc", "show")
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, want := range []string{"dev " + e.Name + " root", "dev bwp"} {
		if shown := qdiscs(); !tbf(shown, want) {
			t.Errorf("no tbf qdisc on %q:\n%s", want, shown)
		}
	}

	c.finish(ctx, web)
	c.finish(ctx, plain)
	c.nothingLeft(ctx)
	out, err := c.node.Exec(ctx, "nft", "list", "ruleset")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range web.addrs {
		if strings.Contains(string(out), a.String()) {
			t.Errorf("rules still have %v:\n%s", a, out)
		}
	}
	closed("at the end")
}

// tbf says whether a line of `tc qdisc` with text is a token bucket.
func tbf(shown, text string) bool {
	for line := range strings.Lines(shown) {
		if strings.HasPrefix(line, "qdisc tbf") && strings.Contains(line, text) {
			return true
		}
	}
	return false
}
