// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// netsChange changes the networks of the set that netsWorld's rules look up.
func netsChange(nets ...string) policy.Changes {
	return policy.Changes{Sets: map[policy.SetID]*policy.SetChange{"known": {Kind: policy.KindAddrs, Nets: cidrs(nets...)}}}
}

// netsWorld returns a policy that does something with packets from a set, and others with those from no set.
func netsWorld(b *policy.Endpoint, id policy.RulesID, match, other model.Action) policy.Changes {
	all := policy.Rule{Action: model.ActionAllow}
	b.Inbound = policy.Verdicts{Policies: []policy.RulesID{id}}
	return policy.Changes{
		Endpoints: endpoints(b),
		Rules: rules(policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}}, policy.Rules{ID: id, Inbound: withMarker(
			policy.Rule{Action: match, Match: policy.Criteria{SrcSets: []policy.SetID{"known"}}}, policy.Rule{Action: other, Not: policy.Criteria{SrcSets: []policy.SetID{"known"}}})}),
		Sets: map[policy.SetID]*policy.SetChange{"known": {Kind: policy.KindAddrs, Text: `selector role == "known"`, New: true, Added: []policy.Member{{Addr: ip("10.65.0.9")}}}},
	}
}

// TestNetworks: a rule matches packets from the networks in its set as well as from its addresses, whatever becomes of either while
// it is in use, and those of Kubernetes' policies only the latter.
func TestNetworks(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		a, b := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2")
		a.do(func() { addAddrs(t, "eth0", ip("192.0.2.7"), ip("2001:db8::7")) })
		a.ep.Addrs = append(a.ep.Addrs, ip("192.0.2.7"), ip("2001:db8::7"))
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(a.ep)})
		f.Update(netsWorld(b.ep, policyID("web"), model.ActionAllow, model.ActionDeny))
		mustApply(t, f)
		before := listed(t)
		ports := sockets{"b": {markerPort: b.listen(markerPort), 80: b.listen(80)}}
		port := 1000
		want := func(when string, pass ...string) {
			t.Helper()
			for i, from := range a.ep.Addrs {
				c := trial{"", a.do, from, port, 80, "b", b.ep.Addrs[i%2], a.ep.Addrs[i%2], netip.Addr{}}
				if strings.Contains(strings.Join(pass, " ")+" ", from.String()+" ") {
					c.want = from
				}
				port++
				ports.try(t, when, c)
			}
			if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
				t.Fatalf("%s: -ours +nft's:\n%s", when, diff)
			}
		}
		change := func(c policy.Changes) {
			t.Helper()
			f.Update(c)
			mustApply(t, f)
		}
		want("no networks")
		change(netsChange("10.0.0.0/8", "2001:db8::/32"))
		want("one of each version", "10.65.0.1", "2001:db8::7")
		change(netsChange("10.65.0.0/31", "10.65.0.2/31", "192.0.2.0/24", "fd00::/8"))
		want("adjacent ones", "10.65.0.1", "192.0.2.7", "fd00::1")
		c := netsChange("10.65.0.0/31", "192.0.2.7/32", "::/0")
		c.Sets["known"].Added = []policy.Member{{Addr: ip("10.65.0.1")}}
		change(c)
		want("and the address of an endpoint", "10.65.0.1", "192.0.2.7", "fd00::1", "2001:db8::7")
		change(netsChange("192.0.2.7/32"))
		want("only that of an endpoint", "10.65.0.1", "192.0.2.7")
		c = netsChange("0.0.0.0/0")
		c.Sets["known"].Removed = []policy.Member{{Addr: ip("10.65.0.1")}}
		change(c)
		want("all of IPv4", "10.65.0.1", "192.0.2.7")

		// Now the set denies, and what is in none of it passes.
		change(netsWorldRules(b.ep, policyID("web"), model.ActionDeny, model.ActionAllow))
		want("denied", "fd00::1", "2001:db8::7")
		change(netsChange("10.0.0.0/8", "::/0"))
		want("others denied", "192.0.2.7")

		// Another of Kubernetes' policies uses the same set, then alone.
		change(netsWorldRules(b.ep, policyID("knp.a.web"), model.ActionAllow, model.ActionDeny))
		want("of Kubernetes")
		change(policy.Changes{Rules: map[policy.RulesID]*policy.Rules{policyID("web"): nil}})
		want("of Kubernetes alone")
		if strings.Contains(listed(t), "@n4") {
			t.Errorf("networks are in the kernel that nothing looks up:\n%s", listed(t))
		}
		change(netsWorldRules(b.ep, policyID("web"), model.ActionAllow, model.ActionDeny))
		want("again", "10.65.0.1", "fd00::1", "2001:db8::7")
		change(policy.Changes{Rules: map[policy.RulesID]*policy.Rules{policyID("knp.a.web"): nil}})
		change(netsChange())
		want("none again")
		if diff := cmp.Diff(canonical(before), canonical(listed(t))); diff != "" {
			t.Errorf("something is left: -before +after:\n%s", diff)
		}
	})
}

// netsWorldRules is netsWorld without the set, which exists.
func netsWorldRules(b *policy.Endpoint, id policy.RulesID, match, other model.Action) policy.Changes {
	ep := *b
	c := netsWorld(&ep, id, match, other)
	c.Sets = nil
	return c
}

// TestManyNetworks changes many networks of a set at once, and lets a firewall that starts with them find them in order.
func TestManyNetworks(t *testing.T) {
	netns.Host(t, func() {
		f, b := open(t), workload(1)
		c := netsWorld(b, policyID("web"), model.ActionAllow, model.ActionDeny)
		nets := func(n int) (out []string) {
			for i := range 16384 {
				out = append(out, fmt.Sprintf("%d.%d.%d.0/25", 11+n, i>>8, i&255))
			}
			return out
		}
		c.Sets["known"].Nets = cidrs(nets(0)...)
		f.Update(c)
		mustApply(t, f)
		f.Update(netsChange(nets(1)...))
		mustApply(t, f)
		if text := listed(t); strings.Contains(text, "11.0.0.0/25") || !strings.Contains(text, "12.63.255.0/25") {
			t.Error("the networks are not the latter ones")
		}
		other := open(t)
		c.Sets["known"].Nets = cidrs(nets(1)...)
		other.Update(c)
		wantWrites(t, other, 0, 0)
	})
}
