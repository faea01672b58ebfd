// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// early evaluates policies of which none need decide, tier by tier; allowed packets go to a chain.
func early(ids []policy.RulesID, d model.Direction, kind, chain string) []table.Rule {
	out := []table.Rule{unmark()}
	first := true
	for tier, ids := range policy.ByTier(ids) {
		if !first {
			out = append(out, nextTier())
		}
		first = false
		for i, id := range ids {
			r := jump(RulesChain(id, d), Comment(kind+" "+id.String(), ""))
			if i > 0 {
				r.Do = slices.Insert(r.Do, 0, table.Statement(table.MarkIs{Mask: markNextTier}))
			}
			out = append(out, r, table.Rule{Do: []table.Statement{allowed, table.Verdict{Kind: table.Goto, Chain: chain}}, Comment: "allowed"})
		}
		out = append(out, table.Rule{Do: []table.Statement{table.MarkIs{Mask: markNextTier}, table.Count{}}, Comment: Comment("end of tier "+tier, ": none of its "+kind+" policies decides")})
	}
	return out
}

// preDNAT returns the chains before any program translates destinations. They judge the first packets of connections, and invalid ones.
func (x Renderer) preDNAT(u Uses) []table.Chain {
	rules := append([]table.Rule{accept(table.Accept, "", table.State{Established: true, Related: true, Untracked: true}), clearMarks()},
		x.asksHost(u, inName, MapPreDNAT, PreDNATChain(Everywhere))...)
	return []table.Chain{
		{Name: "filter-pre-dnat", Hook: table.Hook{Type: "filter", At: "prerouting", Priority: "mangle"}, Comment: "what comes in, before its destination is translated", Rules: rules},
		{Name: chainAdmitted, Comment: "a policy before DNAT allows it", Rules: []table.Rule{
			{Do: []table.Statement{table.MarkSet{Clear: markAll, Set: markUntracked}, table.Count{}, table.Verdict{Kind: table.Return}}},
		}},
	}
}

// notAdmitted matches packets that no policy before DNAT has allowed.
func notAdmitted(u Uses) []table.Statement {
	if !u.PreDNAT {
		return nil // the mark could be another program's
	}
	return []table.Statement{table.MarkIs{Mask: markUntracked}}
}

// asksHost dispatches to the chain of the host endpoint that has the interface, by a verdict map, or else to that of Everywhere.
func (x Renderer) asksHost(u Uses, f table.Field, byName, everywhere string, match ...table.Statement) []table.Rule {
	rules := []table.Rule{{Do: append(slices.Clone(match), table.Dispatch{Field: f, Map: byName})}}
	if u.Wildcard {
		match = append(match, x.notWorkload(f)...)
		match = append(match, table.Is{Field: f, Not: true, Value: table.NameBytes(policy.Loopback)}, table.InSet{Fields: []table.Field{f}, Not: true, Set: SetNamed})
		rules = append(rules, table.Rule{Do: append(match, table.Verdict{Kind: table.Jump, Chain: everywhere}), Comment: "the host endpoint *"})
	}
	return rules
}

// PreDNAT returns the chain of a host endpoint's policies before DNAT.
func (x Renderer) PreDNAT(name string, ep *policy.Endpoint) table.Chain {
	out := []table.Rule{accept(table.Return, "neighbour discovery", neighbours(false))}
	out = append(out, failsafe(x.Settings.FailsafeInbound, true, table.Return, "fail-safe")...)
	out = append(out, between(x.Tunnels, false, table.Return)...)
	out = append(out, early(ep.PreDNAT, model.Inbound, "pre-DNAT", chainAdmitted)...)
	return table.Chain{Name: PreDNATChain(name), Comment: Comment("policies before DNAT of the host endpoint of "+name, ""), Rules: owned(out, ep.Path)}
}

// Forward returns the chain of a host endpoint's policies for forwarded packets, for one direction. What no tier drops goes on.
func Forward(name string, ep *policy.Endpoint, d model.Direction) table.Chain {
	v := ep.ForwardInbound
	if d == model.Outbound {
		v = ep.ForwardOutbound
	}
	c := choices{direction: d, effect: func(policy.RulesID) Effect { return passes }, deny: table.Drop, rules: []table.Rule{unmark()}}
	c.ask(v)
	return table.Chain{Name: ForwardChain(name, d), Comment: Comment("what is forwarded by the host endpoint of "+name, ", "+string(d)), Rules: owned(c.rules, ep.Path)}
}

// Untracked returns the chain of the untracked policies of a host endpoint that has the interface, for one direction. None of them need
// decide.
func (x Renderer) Untracked(name string, ep *policy.Endpoint, d model.Direction) table.Chain {
	ids, there, back := ep.UntrackedInbound, x.Settings.FailsafeInbound, x.Settings.FailsafeOutbound
	if d == model.Outbound {
		ids, there, back = ep.UntrackedOutbound, back, there
	}
	out := []table.Rule{accept(table.Return, "neighbour discovery", neighbours(false))}
	out = append(out, failsafe(there, true, table.Return, "fail-safe")...)
	out = append(out, failsafe(back, false, table.Return, "fail-safe, answers")...)
	out = append(out, between(x.Tunnels, d == model.Outbound, table.Return)...)
	out = append(out, early(ids, d, "untracked", chainUntracked)...)
	return table.Chain{Name: UntrackedChain(name, d), Comment: Comment("untracked policies of the host endpoint of "+name, ", "+string(d)), Rules: out}
}

// Host returns the chain of a host endpoint that has the interface, for one direction.
func (x Renderer) Host(name string, ep *policy.Endpoint, d model.Direction) table.Chain {
	v, ports := ep.Inbound, x.Settings.FailsafeInbound
	if d == model.Outbound {
		v, ports = ep.Outbound, x.Settings.FailsafeOutbound
	}
	out := append(tracked(),
		// The mark alone could be another program's.
		accept(table.Accept, "allowed by untracked policy", table.State{Untracked: true}, table.MarkIs{Mask: markUntracked, Value: markUntracked}),
		accept(table.Accept, "neighbour discovery", neighbours(false)))
	out = append(out, failsafe(ports, true, table.Accept, "fail-safe")...)
	return table.Chain{Name: HostChain(name, d), Comment: Comment("host endpoint of "+name, ", "+string(d)), Rules: owned(append(out, asks(v, d)...), ep.Path)}
}

// owned names the chain's endpoint in its first rule: the comment of a chain can't be changed, and another endpoint may get the chain.
func owned(rules []table.Rule, path string) []table.Rule {
	rules[0].Comment = Comment(path, "")
	return rules
}
