// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// formerHooks are the priorities of base chains that an earlier version wrote.
var formerHooks = map[string]string{"filter - 1": "filter", "dstnat - 1": "dstnat", "-101": "-100", "srcnat - 1": "srcnat"}

// asBefore makes base chains be written with the priorities of an earlier version.
func asBefore(f *Firewall) {
	for _, c := range f.desired.ruleset.chains {
		render := c.render
		c.render = func() table.Chain {
			out := render()
			if place, moved := formerHooks[out.Hook.Priority]; moved {
				out.Hook.Priority = place
			}
			return out
		}
	}
}

// TestFormerHooks takes over a table whose base chains have other priorities: in one transaction, which leaves all other chains as they
// are. What is denied stays denied, and what is translated goes on.
func TestFormerHooks(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		a, b, out := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2"), newSpace(t, 3, "eth0")
		own := ownAddrs(t)
		b.translate()
		for _, s := range []space{a, b} {
			s.ep.Inbound = policy.Verdicts{Policies: []policy.RulesID{policyID("web")}}
			s.ep.Outbound = policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		}
		all := policy.Rule{Action: model.ActionAllow}
		state := func() policy.Changes {
			return policy.Changes{
				Endpoints: endpoints(a.ep, b.ep),
				Rules: rules(
					policy.Rules{ID: policyID("web"), Inbound: withMarker(udpTo(model.ActionAllow, 80))},
					policy.Rules{ID: profileID("prod"), Outbound: []policy.Rule{all}}),
				Pools: masqueradesFirst(),
			}
		}
		f := open(t)
		f.Update(state())
		asBefore(f)
		mustApply(t, f)
		before := listed(t)
		if !strings.Contains(before, "hook forward priority filter;") || !strings.Contains(before, "hook prerouting priority dstnat;") {
			t.Fatalf("not the table of an earlier version:\n%s", before)
		}
		rest := func() string { // with the handles of rules and chains
			var parts []string
			for part := range strings.SplitSeq(run(t, "nft", "-a", "list", "table", "inet", TableName), "\n\t}\n") {
				if !strings.Contains(part, " hook ") {
					parts = append(parts, counters.ReplaceAllString(part, "counter"))
				}
			}
			return strings.Join(parts, "\n\t}\n")
		}
		ports := sockets{"b": {}, "out": {}}
		for _, port := range []int{markerPort, 80, 81} {
			ports["b"][port], ports["out"][port] = b.listen(port), out.listen(port)
		}
		look := func(when string) {
			t.Helper()
			for v := range own {
				src := a.ep.Addrs[v]
				for _, c := range []trial{
					{"1:1 NAT", a.do, src, 1001, 80, "b", b.ep.NAT[v].ExtIP, src, src},
					{"masqueraded", a.do, src, 1002, 80, "out", out.ep.Addrs[v], src, own[v]},
					{"denied", a.do, src, 1003, 81, "b", b.ep.Addrs[v], src, netip.Addr{}},
				} {
					ports.try(t, when+", ", c)
				}
			}
		}
		look("before")
		kept := rest()
		_ = f.Close()

		f = open(t)
		f.Update(state())
		generation, err := f.conn.Generation()
		if err != nil {
			t.Fatal(err)
		}
		mustApply(t, f)
		if now, err := f.conn.Generation(); err != nil || now != generation+1 {
			t.Errorf("%d transactions, %v: want one", now-generation, err)
		}
		want := regexp.MustCompile(`(hook \S+ priority )([^;]+);`).ReplaceAllStringFunc(before, func(s string) string {
			for now, place := range formerHooks {
				s = strings.Replace(s, "priority "+place+";", "priority "+now+";", 1)
			}
			return s
		})
		// The nft tool has a name for -100 in prerouting alone.
		want = strings.Replace(want, "hook output priority dstnat;", "hook output priority -101;", 1)
		if diff := cmp.Diff(canonical(want), canonical(listed(t))); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if diff := cmp.Diff(kept, rest()); diff != "" {
			t.Errorf("other chains changed: -before +after:\n%s", diff)
		}
		look("after")
		f.Audit()
		wantWrites(t, f, 0, 0)
	})
}

// TestBesideKubeProxy creates kube-proxy's chains before ours and after them: the result for packets is the same.
func TestBesideKubeProxy(t *testing.T) {
	for _, c := range []struct {
		name  string
		first bool
	}{{"kube-proxy first", true}, {"kube-proxy last", false}} {
		t.Run(c.name, func(t *testing.T) {
			netns.Host(t, func() {
				asHost(t)
				run(t, "nft", "delete table inet other") // it marks all packets, kube-proxy's mark too
				a, b, out := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2"), newSpace(t, 3, "eth0")
				own, service, floating := ip("10.9.9.9"), ip("10.96.0.50"), ip("192.0.2.2")
				addAddrs(t, "eth0", own)
				b.ep.NAT = []model.NAT{{IntIP: b.ep.Addrs[0], ExtIP: floating}}
				allowed := policy.Verdicts{Profiles: []policy.RulesID{profileID("open")}}
				a.ep.Inbound, a.ep.Outbound, b.ep.Inbound, b.ep.Outbound = allowed, allowed, allowed, allowed
				all := []policy.Rule{{Action: model.ActionAllow}}
				f := open(t)
				f.Update(policy.Changes{
					Endpoints: endpoints(a.ep, b.ep), Rules: rules(policy.Rules{ID: profileID("open"), Inbound: all, Outbound: all}),
					Pools: &policy.Pools{All: cidrs("10.65.0.0/31", "10.65.0.2/32"), Masquerade: cidrs("10.65.0.0/31", "10.65.0.2/32")},
				})
				kubeProxy := func() {
					text := "add table ip proxy; add chain ip proxy in { type nat hook prerouting priority dstnat; }; add chain ip proxy leave { type nat hook postrouting priority srcnat; }; "
					for _, r := range []string{
						fmt.Sprintf("in ip daddr %s ip saddr %s meta mark set meta mark or 0x4000 dnat to %s", service, a.ep.Addrs[0], a.ep.Addrs[0]), // hairpin
						fmt.Sprintf("in ip daddr %s udp dport 81 meta mark set meta mark or 0x4000 dnat to %s:80", own, a.ep.Addrs[0]),                // NodePort
						fmt.Sprintf("in ip daddr %s dnat to %s", floating, a.ep.Addrs[0]),                                                             // an external address of a service
						"leave meta mark & 0x4000 == 0x4000 masquerade",
					} {
						text += "add rule ip proxy " + r + "; "
					}
					run(t, "nft", text)
				}
				if c.first {
					kubeProxy()
				}
				mustApply(t, f)
				if !c.first {
					kubeProxy()
				}
				markers := map[string]net.PacketConn{"a": a.listen(markerPort), "b": b.listen(markerPort), "out": out.listen(markerPort)}
				ports := map[string]net.PacketConn{"a": a.listen(80), "b": b.listen(80), "out": out.listen(80)}
				hosts := map[string]space{"a": a, "b": b, "out": out}
				for i, c := range []struct {
					name     string
					from, at string
					to       netip.AddrPort
					want     netip.Addr
				}{
					{"a pod to itself by a service", "a", "a", netip.AddrPortFrom(service, 80), own},
					{"a node port", "out", "a", netip.AddrPortFrom(own, 81), own},
					{"1:1 NAT", "out", "b", netip.AddrPortFrom(floating, 80), out.ep.Addrs[0]},
					{"from a pool to outside", "a", "out", netip.AddrPortFrom(out.ep.Addrs[0], 80), own},
				} {
					from, at := hosts[c.from], hosts[c.at]
					// The marker comes by no translation of theirs.
					got, ok := probe(t, from.do, netip.AddrPortFrom(from.ep.Addrs[0], uint16(1000+i)), c.to, ports[c.at], markers[c.at], from.ep.Addrs[0], at.ep.Addrs[0], true)
					if !ok || got.Addr() != c.want {
						t.Errorf("%s: received %t, from %s: want %s", c.name, ok, got, c.want)
					}
				}
			})
		})
	}
}
