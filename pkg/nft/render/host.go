// SPDX-License-Identifier: Apache-2.0

package render

import (
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// Untracked is the chain of the untracked policies of a host endpoint that has the interface, for one
// direction. None of them need decide.
func (x Renderer) Untracked(name string, ep *policy.Endpoint, d model.Direction) table.Chain {
	ids, there, back := ep.UntrackedInbound, x.Settings.FailsafeInbound, x.Settings.FailsafeOutbound
	if d == model.Outbound {
		ids, there, back = ep.UntrackedOutbound, back, there
	}
	out := []table.Rule{accept(table.Return, "neighbour discovery", neighbours(false))}
	out = append(out, failsafe(there, true, table.Return, "fail-safe")...)
	out = append(out, failsafe(back, false, table.Return, "fail-safe, answers")...)
	out = append(out, between(x.Tunnels, d == model.Outbound, table.Return)...)
	out = append(out, unmark())
	for _, id := range ids {
		out = append(out, jump(RulesChain(id, d), Comment("untracked policy "+id.Name, "")),
			table.Rule{Do: []table.Statement{allowed, table.Verdict{Kind: table.Goto, Chain: chainUntracked}}, Comment: "allowed"},
			table.Rule{Do: []table.Statement{table.MarkIs{Mask: markNextTier, Value: markNextTier}, table.Verdict{Kind: table.Return}}, Comment: "no other untracked policy is asked"})
	}
	return table.Chain{Name: UntrackedChain(name, d), Comment: Comment("untracked policies of the host endpoint of "+name, ", "+string(d)), Rules: out}
}

// Host is the chain of a host endpoint that has the interface, for one direction.
func (x Renderer) Host(name string, ep *policy.Endpoint, d model.Direction) table.Chain {
	v, ports := ep.Inbound, x.Settings.FailsafeInbound
	if d == model.Outbound {
		v, ports = ep.Outbound, x.Settings.FailsafeOutbound
	}
	out := append(tracked(),
		// The mark alone could be anybody's.
		accept(table.Accept, "allowed by untracked policy", table.State{Untracked: true}, table.MarkIs{Mask: markUntracked, Value: markUntracked}),
		accept(table.Accept, "neighbour discovery", neighbours(false)))
	out = append(out, failsafe(ports, true, table.Accept, "fail-safe")...)
	return table.Chain{Name: HostChain(name, d), Comment: Comment("host endpoint of "+name, ", "+string(d)), Rules: owned(append(out, asks(v, d)...), ep.Path)}
}

// Wildcard is the chain of the host endpoint of all interfaces, for one direction.
func Wildcard(ep *policy.Endpoint, d model.Direction) table.Chain {
	v := ep.Inbound
	if d == model.Outbound {
		v = ep.Outbound
	}
	return table.Chain{Name: WildcardChain(d), Comment: "host endpoint *, " + string(d), Rules: owned(asks(v, d), ep.Path)}
}

// owned names the endpoint whose chain it is, in its first rule: the comment of
// a chain can't be changed, and another endpoint may come to have the chain.
func owned(rules []table.Rule, path string) []table.Rule {
	rules[0].Comment = Comment(path, "")
	return rules
}
