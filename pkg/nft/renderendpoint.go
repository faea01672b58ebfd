// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

func drop(why string) table.Rule {
	return table.Rule{Do: []table.Statement{table.Count{}, table.Verdict{Kind: table.Drop}}, Comment: why}
}

func jump(chain, why string) table.Rule {
	return table.Rule{Do: []table.Statement{table.Verdict{Kind: table.Jump, Chain: chain}}, Comment: why}
}

var allowed = table.MarkIs{Mask: markAllowed, Value: markAllowed}

func unmark() table.Rule {
	return table.Rule{Do: []table.Statement{table.MarkSet{Clear: markAllowed | markNextTier | markLast}}, Comment: "nothing is decided"}
}

// unmarkLast is unmark for those who are asked last: what they allow is accepted.
func unmarkLast() table.Rule {
	return table.Rule{Do: []table.Statement{table.MarkSet{Clear: markAllowed | markNextTier, Set: markLast}}, Comment: "nothing is decided, and nobody is asked after this one"}
}

// ask is a question to a policy or profile, put to packets with a mark, or to all.
type ask struct {
	id   policy.RulesID
	mark table.MarkIs // zero = all
}

func (a ask) rule(d model.Direction) table.Rule {
	what := "policy "
	if a.id.Kind == policy.KindProfile {
		what = "profile "
	}
	r := jump(rulesChain(a.id, d), "")
	when := ""
	if a.mark != (table.MarkIs{}) {
		r.Do, when = []table.Statement{a.mark, r.Do[0]}, ", if nothing is decided"
		if a.mark.Value != 0 {
			when = ", if a policy says next-tier"
		}
	}
	r.Comment = comment(what+a.id.Name, when)
	return r
}

// choices ask policies and profiles of an unmarked packet: one rule for each, but
// those whose rules are all of the other direction. What none allows comes to their
// end without the mark. Of those who are asked last a packet doesn't come back when
// it is allowed.
func choices(v policy.Verdicts, last bool, effect func(policy.RulesID) effect) []ask {
	undecided := markAllowed | markNextTier
	if last {
		undecided = markNextTier
	}
	out := make([]ask, 0, len(v.Policies)+len(v.Profiles))
	passed := false
	for _, id := range v.Policies {
		does := effect(id)
		if does == nothing {
			continue
		}
		a := ask{id: id}
		if len(out) > 0 && (passed || !last) {
			a.mark = table.MarkIs{Mask: undecided}
		}
		passed = passed || does == passes
		out = append(out, a)
	}
	if len(v.Policies) > 0 && !passed {
		return out
	}
	for _, id := range v.Profiles {
		if effect(id) == nothing {
			continue
		}
		a := ask{id: id}
		switch {
		case len(v.Policies) > 0: // one must have said next-tier
			a.mark = table.MarkIs{Mask: undecided, Value: markNextTier}
		case len(out) > 0 && !last:
			a.mark = table.MarkIs{Mask: markAllowed}
		}
		out = append(out, a)
	}
	return out
}

func choiceRules(list []ask, d model.Direction) []table.Rule {
	out := make([]table.Rule, len(list))
	for i, a := range list {
		out[i] = a.rule(d)
	}
	return out
}

// asks are the rules that ask policies and profiles, for one endpoint. A packet
// that they let pass reaches the end of the chain.
func asks(v policy.Verdicts, d model.Direction) []table.Rule {
	out := append([]table.Rule{unmark()}, choiceRules(choices(v, false, func(policy.RulesID) effect { return passes }), d)...)
	last := drop(noneAllows)
	if len(v.Policies)+len(v.Profiles) > 0 {
		last.Do = slices.Insert(last.Do, 0, table.Statement(table.MarkIs{Mask: markAllowed}))
	}
	return append(out, last)
}

const noneAllows = "no policy or profile allows it"

// asksSender are the rules that ask what the endpoint of the interface asks that
// a packet comes from: it comes back with a mark, or is dropped.
func asksSender() []table.Rule {
	out := []table.Rule{unmark(), {Do: []table.Statement{table.Dispatch{Field: inName, Map: mapFrom}}}, accept(table.Return, "allowed", allowed)}
	return append(out, denied(inName, setDeniedFrom)...)
}

// asksReceiver are those of the endpoint that a packet goes to. It is asked last.
func asksReceiver() []table.Rule {
	out := []table.Rule{unmarkLast(), {Do: []table.Statement{table.Dispatch{Field: outName, Map: mapTo}}}}
	return append(out, denied(outName, setDeniedTo)...)
}

// denied are the rules that drop what comes back from an endpoint's chain, and
// count it with the endpoint.
func denied(f table.Field, set string) []table.Rule {
	nobody := drop(noneAllows)
	nobody.Do = slices.Insert(nobody.Do, 0, table.Statement(table.InSet{Fields: []table.Field{f}, Set: set}))
	return []table.Rule{nobody, drop("no endpoint has the interface")}
}

// untracked are the rules that ask untracked policies, of which none need decide.
func (x renderer) untracked(ids []policy.RulesID, d model.Direction) []table.Rule {
	there, back := x.settings.FailsafeInbound, x.settings.FailsafeOutbound
	if d == model.Outbound {
		there, back = back, there
	}
	out := []table.Rule{accept(table.Return, "neighbour discovery", neighbours(false))}
	out = append(out, failsafe(there, true, table.Return, "fail-safe")...)
	out = append(out, failsafe(back, false, table.Return, "fail-safe, answers")...)
	out = append(out, between(x.tunnels, d == model.Outbound, table.Return)...)
	out = append(out, unmark())
	for _, id := range ids {
		out = append(out, jump(rulesChain(id, d), comment("untracked policy "+id.Name, "")),
			table.Rule{Do: []table.Statement{allowed, table.Verdict{Kind: table.Goto, Chain: chainUntracked}}, Comment: "allowed"},
			table.Rule{Do: []table.Statement{table.MarkIs{Mask: markNextTier, Value: markNextTier}, table.Verdict{Kind: table.Return}}, Comment: "no other untracked policy is asked"})
	}
	return out
}

// host are the rules of a host endpoint for one direction.
func (x renderer) host(v policy.Verdicts, d model.Direction) []table.Rule {
	ports := x.settings.FailsafeInbound
	if d == model.Outbound {
		ports = x.settings.FailsafeOutbound
	}
	out := append(tracked(),
		// The mark alone could be anybody's.
		accept(table.Accept, "allowed by untracked policy", table.State{Untracked: true}, table.MarkIs{Mask: markUntracked, Value: markUntracked}),
		accept(table.Accept, "neighbour discovery", neighbours(false)))
	out = append(out, failsafe(ports, true, table.Accept, "fail-safe")...)
	return append(out, asks(v, d)...)
}

// accept is a rule that ends with a verdict where all of the matches hold.
func accept(kind table.VerdictKind, why string, match ...table.Statement) table.Rule {
	return table.Rule{Do: append(match, table.Verdict{Kind: kind}), Comment: why}
}

// neighbours are the messages of neighbour discovery and MLD. A workload is no router.
func neighbours(workload bool) table.Statement {
	types := []byte{130, 131, 132, 133, 134, 135, 136, 143}
	if workload {
		types = slices.DeleteFunc(types, func(t byte) bool { return t == 134 })
	}
	s := table.Among{Fields: []table.Field{icmp(6, false)}}
	for _, t := range types {
		s.Values = append(s.Values, table.Element{Key: string([]byte{t})})
	}
	return s
}

// dhcp are the requests of a DHCP client, for both IP versions.
func dhcp(kind table.VerdictKind) []table.Rule {
	return []table.Rule{
		accept(kind, "DHCP", udpBetween(4, 68, 67)...),
		accept(kind, "DHCPv6", udpBetween(6, 546, 547)...),
	}
}

// dhcpBefore and dhcpAnswer are for an interface without an endpoint yet, whose address is asked for.
func dhcpBefore() table.Rule {
	return accept(table.Return, "DHCP asks for the endpoint's address", append(udpBetween(4, 68, 67), table.InSet{Fields: []table.Field{inName}, Not: true, Set: setClosed})...)
}

func dhcpAnswer(to table.Statement) table.Rule {
	return accept(table.Accept, "DHCP's answer", append(append([]table.Statement{to}, udpBetween(4, 67, 68)...), table.InSet{Fields: []table.Field{outName}, Not: true, Set: setClosed})...)
}

func udpBetween(version int, source, destination uint16) []table.Statement {
	return []table.Statement{
		isFamily(version),
		table.Is{Field: port(model.ProtocolUDP, false), Value: table.PortBytes(source)},
		table.Is{Field: port(model.ProtocolUDP, true), Value: table.PortBytes(destination)},
	}
}

// failsafe are rules for ports that policy must never close.
func failsafe(ports []policy.ProtoPort, destination bool, kind table.VerdictKind, why string) []table.Rule {
	var out []table.Rule
	for _, p := range [...]model.Protocol{model.ProtocolTCP, model.ProtocolUDP} {
		var list []model.Port
		for _, f := range ports {
			if f.Protocol == p {
				list = append(list, model.Port{Min: f.Port, Max: f.Port})
			}
		}
		if len(list) == 0 {
			continue
		}
		m := matcher{version: 4, protocol: p}
		out = append(out, accept(kind, why, m.ports(list, nil, destination)[0].in))
	}
	return out
}
