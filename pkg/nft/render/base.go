// SPDX-License-Identifier: Apache-2.0

// Package render turns policy into the chains, rules and sets of the firewall.
package render

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// Uses say what the chains that every packet passes are needed for. What isn't needed costs nothing: an empty base chain isn't free.
type Uses struct {
	Wildcard, Hosts, Untracked, PreDNAT, Forward, NAT, Masquerade, Shut bool
	// Translated: NAT, Masquerade or Tunnels were once in use. Without any chain of type nat the kernel stops translating existing
	// connections, and their packets leave with the workload's own address.
	Translated bool
	Tunnels    Tunnels
	BGPPort    uint16 // of the host's own speaker, 0 = none
	Metrics    bool   // the chain of the metrics ports exists
	Bounds     bool   // on how many connections a workload begins
}

// All returns uses for which Base returns every chain that it can.
func All() Uses {
	return Uses{Wildcard: true, Hosts: true, Untracked: true, PreDNAT: true, Forward: true, NAT: true, Masquerade: true, Translated: true, Shut: true, BGPPort: 179, Metrics: true, Bounds: true}
}

// Base returns the chains that don't belong to an endpoint, policy or profile. They follow the order of policy.Evaluate. Each hook comes
// one before the priority that kube-proxy and iptables use, so that the order doesn't depend on which program started first.
func (x Renderer) Base(u Uses) []table.Chain {
	last := accepted("both sides allow it")
	last.Do = slices.Insert(last.Do, 0, table.Statement(table.MarkIs{Mask: markLast, Value: markLast}))
	chains := []table.Chain{
		{Name: "raw-prerouting", Hook: table.Hook{Type: "filter", At: "prerouting", Priority: "raw"}, Comment: "what comes in, before connection tracking", Rules: x.rawIn(u)},
		{Name: "filter-forward", Hook: table.Hook{Type: "filter", At: "forward", Priority: "filter - 1"}, Comment: "from interface to interface", Rules: x.forwardHook(u)},
		{Name: "filter-input", Hook: table.Hook{Type: "filter", At: "input", Priority: "filter - 1"}, Comment: "for the host itself", Rules: x.input(u)},
		{Name: "filter-output", Hook: table.Hook{Type: "filter", At: "output", Priority: "filter - 1"}, Comment: "from the host itself", Rules: x.output(u)},
		{Name: chainSpoof, Comment: "before connection tracking: is it from who it says", Rules: sources()},
		{Name: chainLinkLocal, Comment: "before connection tracking: is it one of the few link-local addresses that a workload may have", Rules: linkLocals()},
		{Name: chainMAC, Comment: "of new connections: is it from the endpoint's MAC address", Rules: macs()},
		{Name: chainForward, Comment: "what is forwarded and of no connection yet: asks both sides", Rules: x.forward(u)},
		{Name: chainFrom, Comment: "what the endpoint of the interface may send", Rules: asksSender(u)},
		{Name: chainTo, Comment: "what the endpoint of the interface may receive", Rules: asksReceiver()},
		{Name: chainToHost, Comment: "from workloads to the host itself", Rules: x.toHost(u)},
		{Name: chainRelated, Comment: "errors about connections", Rules: x.related()},
		{Name: chainCut, Comment: "of new connections: was what it belongs to cut", Rules: cutFlows()},
		{Name: chainAllow, Comment: "a rule allows it", Rules: append([]table.Rule{last}, decide(markAllowed, "back to who asks: allowed")...)},
		{Name: chainNextTier, Comment: "a rule sends it on to the next tier", Rules: decide(markNextTier, "back to who asks: go on to the next tier, after the last to the profiles")},
	}
	if u.Bounds {
		chains = append(chains, x.connections()...)
	}
	if u.Hosts {
		chains = append(chains, x.hostCut()...)
	}
	if u.servesHost() {
		chains = append(chains, table.Chain{Name: chainServices, Comment: "what begins a connection with what the agent serves", Rules: x.services(u)})
	}
	if u.Untracked {
		chains = append(chains, table.Chain{Name: "raw-output", Hook: table.Hook{Type: "filter", At: "output", Priority: "raw"}, Comment: "what the host sends, before connection tracking", Rules: x.rawOut(u)},
			table.Chain{Name: chainUntracked, Comment: "an untracked policy allows it", Rules: []table.Rule{
				{Do: []table.Statement{table.MarkSet{Clear: markAll, Set: markUntracked}, table.NoTrack{}, table.Count{}, table.Verdict{Kind: table.Accept}}},
			}})
	}
	if u.PreDNAT {
		chains = append(chains, x.preDNAT(u)...)
	}
	in := x.toMetadata()
	if u.NAT {
		in = append(in, dnat()...)
	}
	if len(in) > 0 {
		chains = append(chains, table.Chain{Name: "nat-prerouting", Hook: table.Hook{Type: "nat", At: "prerouting", Priority: "dstnat - 1"}, Comment: "1:1 NAT of what comes in", Rules: in})
	}
	if u.NAT {
		chains = append(chains, table.Chain{Name: "nat-output", Hook: table.Hook{Type: "nat", At: "output", Priority: "-101"}, Comment: "1:1 NAT of what the host sends", Rules: dnat()})
	}
	if u.Translated {
		chains = append(chains, table.Chain{Name: ChainSNAT, Hook: table.Hook{Type: "nat", At: "postrouting", Priority: "srcnat - 1"}, Rules: append(x.unmasqueraded(), snat(u)...),
			Comment: "source addresses of what leaves; without rules, for connections that were translated"})
	}
	return chains
}

// Our bits of a packet's mark. They are cleared where a packet enters, and have a meaning only within the table.
const (
	markAllowed   uint32 = 0x01000000 // a policy or profile allowed it
	markNextTier  uint32 = 0x02000000 // a policy of this tier sent it on to the next
	markUntracked uint32 = 0x04000000 // an untracked policy allowed it; for tracked packets, one before DNAT
	markLast      uint32 = 0x08000000 // no other endpoint follows
	markAll              = markAllowed | markNextTier | markUntracked | markLast
)

// workload returns a rule per prefix of workload interfaces.
func (x Renderer) workload(f table.Field, rule func(table.Statement) table.Rule) []table.Rule {
	var out []table.Rule
	for _, p := range x.Settings.Prefixes {
		out = append(out, rule(table.HasPrefix{Field: f, Prefix: p}))
	}
	return out
}

// notWorkload matches all other interfaces.
func (x Renderer) notWorkload(f table.Field) []table.Statement {
	var out []table.Statement
	for _, p := range x.Settings.Prefixes {
		out = append(out, table.HasPrefix{Field: f, Not: true, Prefix: p})
	}
	return out
}

func verdict(kind table.VerdictKind, chain string) func(table.Statement) table.Rule {
	return func(s table.Statement) table.Rule {
		return table.Rule{Do: []table.Statement{s, table.Verdict{Kind: kind, Chain: chain}}}
	}
}

// noEndpoint drops packets to a workload interface without an endpoint.
func noEndpoint(s table.Statement) table.Rule {
	r := drop("no endpoint has the interface")
	r.Do = append([]table.Statement{s, table.InSet{Fields: []table.Field{outName}, Not: true, Set: SetWorkloads}}, r.Do...)
	return r
}

// rawIn is short: packets from everywhere pass it.
func (x Renderer) rawIn(u Uses) []table.Rule {
	out := append(indexedSources(), x.workload(inName, verdict(table.Goto, chainSpoof))...)
	out = append(out, shut(u, inName)...)
	if u.Untracked {
		local := table.Is{Field: destType, Not: true, Value: typeUnicast}
		out = append(append(out, clearMarks()), x.asksHost(u, inName, MapUntrackIn, UntrackedChain(Everywhere, model.Inbound), local)...)
	}
	return out
}

// decide returns to the caller of policies, with a mark. It has its own chain to keep rules small: with each commit the kernel walks them
// all.
func decide(mark uint32, why string) []table.Rule {
	return []table.Rule{{Do: []table.Statement{table.MarkSet{Set: mark}, table.Verdict{Kind: table.Return}}, Comment: why}}
}

func clearMarks() table.Rule {
	return table.Rule{Do: []table.Statement{table.MarkSet{Clear: markAll}}, Comment: "what others marked means nothing"}
}

// shut drops packets of an interface whose endpoint no prefix covers: other rules would take it for the host's own. Without such interfaces
// it costs nothing.
func shut(u Uses, f table.Field) []table.Rule {
	if !u.Shut {
		return nil
	}
	r := drop("no prefix covers the interface of its endpoint")
	r.Do = append([]table.Statement{table.InSet{Fields: []table.Field{f}, Set: SetShut}}, r.Do...)
	return []table.Rule{r}
}

func (x Renderer) rawOut(u Uses) []table.Rule {
	out := x.workload(outName, func(s table.Statement) table.Rule { return accept(table.Return, "", s) })
	if u.Shut {
		out = append(out, accept(table.Return, "", table.InSet{Fields: []table.Field{outName}, Set: SetShut}))
	}
	return append(append(out, clearMarks()), x.asksHost(u, outName, MapUntrackOut, UntrackedChain(Everywhere, model.Outbound))...)
}

// indexedSources accept at once what a workload sends from its own addresses, which most packets are. sources handles the rest, and links
// whose index isn't known yet.
func indexedSources() []table.Rule {
	var out []table.Rule
	for _, version := range [...]int{4, 6} {
		fields := []table.Field{inIndex, address(version, false)}
		out = append(out, accept(table.Accept, "", table.InSet{Fields: fields, Set: Versioned(setIndexed, version)}))
	}
	return out
}

// sources accept what a workload sends from its own addresses.
func sources() []table.Rule {
	var out []table.Rule
	for _, version := range [...]int{4, 6} {
		fields := []table.Field{inName, address(version, false)}
		out = append(out, accept(table.Accept, "", table.InSet{Fields: fields, Set: Versioned(setSources, version)}))
	}
	none := drop("no endpoint has the interface")
	none.Do = append([]table.Statement{table.InSet{Fields: []table.Field{inName}, Not: true, Set: SetWorkloads}}, none.Do...)
	out = append(out, notTracked(dhcpBefore()), none)
	unknown := []table.Statement{linkLocal(), table.InSet{Fields: linkLocalFields(), Not: true, Set: setLinkLocals}}
	dhcp := asksDHCP()
	out = append(out, notTracked(dhcp[0]), table.Rule{Do: append(unknown, table.Verdict{Kind: table.Jump, Chain: chainLinkLocal})})
	for _, r := range dhcp[1:] {
		out = append(out, notTracked(r))
	}
	for _, from := range [...]table.Statement{linkLocal(), table.Is{Field: address(6, false), Value: table.AddrBytes(netip.IPv6Unspecified())}} {
		out = append(out, accept(table.Return, "neighbour discovery", from, neighbours(true)))
	}
	return append(out, drop("spoofed source"))
}

// maxLinkLocals is how many link-local addresses a workload may use at once, and then per hour. One derives from its MAC address, or from
// rules of the workload's own (RFC 7217); the others are for its next operating systems.
const maxLinkLocals = 8

// linkLocals check a link-local address that the link hasn't used in the last hour. The host enters each into its table of neighbours,
// shared by all of its interfaces, until the link is gone: a workload recreated with the same name has another index.
func linkLocals() []table.Rule {
	many := drop("too many link-local addresses")
	many.Do = append([]table.Statement{table.Exceeds{Add: table.Add{Fields: []table.Field{inIndex}, Set: setLearning}, PerHour: maxLinkLocals}}, many.Do...)
	return []table.Rule{many, accept(table.Return, "", table.Add{Fields: linkLocalFields(), Set: setLinkLocals}), drop("no room for a link-local address")}
}

func linkLocalFields() []table.Field { return []table.Field{inIndex, address(6, false)} }

func linkLocal() table.Statement {
	return table.Within{Field: address(6, false), Prefix: netip.MustParsePrefix("fe80::/10")}
}

// foreign repeats sources without the exceptions: those are for the host itself, and forwarded packets don't need them.
func (x Renderer) foreign() []table.Rule {
	var out []table.Rule
	for _, version := range [...]int{4, 6} {
		own := table.InSet{Fields: []table.Field{inName, address(version, false)}, Not: true, Set: Versioned(setSources, version)}
		out = append(out, x.workload(inName, func(from table.Statement) table.Rule {
			r := drop("spoofed source")
			r.Do = append([]table.Statement{from, own}, r.Do...)
			return r
		})...)
	}
	return out
}

// macs only check the first packet of a connection: checking each costs a small one 2 % of its path, and later packets belong to what was
// accepted.
func macs() []table.Rule {
	return []table.Rule{
		accept(table.Return, "", table.InSet{Fields: []table.Field{inName, etherSource}, Set: SetMACs}),
		accept(table.Return, "of unknown MAC address", table.InSet{Fields: []table.Field{inName}, Set: SetAnyMAC}),
		discovers(),
		drop("spoofed MAC address"),
	}
}

// discovers lets neighbour discovery pass from any MAC address. The tracker ignores it anyway.
func discovers() table.Rule { return accept(table.Return, "neighbour discovery", neighbours(true)) }

// notTracked keeps what a rule lets pass from the connection tracker: a forged address would get a connection entry, by which its owner
// bypasses policy.
func notTracked(r table.Rule) table.Rule {
	r.Do = slices.Insert(r.Do, len(r.Do)-1, table.Statement(table.NoTrack{}))
	return r
}

// forwardHook is short for most packets, those of accepted connections. All others go on to one chain: with every change of a rule the
// kernel walks all that a hook can reach.
func (x Renderer) forwardHook(u Uses) []table.Rule {
	out := append(connected(), x.workload(outName, noEndpoint)...)
	out = append(out, shut(u, outName)...)
	if !u.Forward {
		out = append(out, accept(table.Accept, "of no endpoint", append(x.notWorkload(inName), x.notWorkload(outName)...)...))
	}
	return append(out, table.Rule{Do: []table.Statement{table.Verdict{Kind: table.Goto, Chain: chainForward}}})
}

// forward handles packets of new or invalid connections.
func (x Renderer) forward(u Uses) []table.Rule {
	out := append([]table.Rule{dropInvalid()}, x.imitations(u.Tunnels)...)
	out = append(append(out, jump(chainCut, "")), x.foreign()...)
	out = append(out, x.workload(inName, verdict(table.Jump, chainMAC))...)
	out = append(out, bounded(u, x.metadata())...)
	out = append(out, x.workload(inName, verdict(table.Jump, chainFrom))...)
	if u.Forward {
		out = append(out, x.asksHost(u, inName, MapForwardIn, ForwardChain(Everywhere, model.Inbound), notAdmitted(u)...)...)
	}
	out = append(out, x.workload(outName, verdict(table.Jump, chainTo))...)
	if u.Forward {
		out = append(out, x.asksHost(u, outName, MapForwardOut, ForwardChain(Everywhere, model.Outbound))...)
	}
	return append(out, accepted("both sides allow it"))
}

// accepted leaves none of our marks.
func accepted(why string) table.Rule {
	return table.Rule{Do: []table.Statement{table.MarkSet{Clear: markAll}, table.Count{}, table.Verdict{Kind: table.Accept}}, Comment: why}
}

const othersConnection = "about a connection of others"

// connected accepts packets of a connection, or about one.
func connected() []table.Rule {
	return []table.Rule{
		accept(table.Accept, "", table.State{Established: true}),
		{Do: []table.Statement{table.State{Related: true}, table.Verdict{Kind: table.Goto, Chain: chainRelated}}},
	}
}

// related handles ICMP errors about accepted connections. They come from its ends, and from routers, which workloads are not: theirs could
// shrink the path MTU of any connection. Connections that a helper of the tracker expects have the workload as an end.
func (x Renderer) related() []table.Rule {
	out := []table.Rule{accept(table.Accept, "", x.notWorkload(inName)...)}
	for _, version := range [...]int{4, 6} {
		for _, end := range connEnds(version) {
			out = append(out, accept(table.Accept, "", table.InSet{Fields: []table.Field{inName, end}, Set: Versioned(setSources, version)}))
		}
	}
	return append(out, drop(othersConnection))
}

// tracked decides by the state of the connection.
func tracked() []table.Rule {
	return []table.Rule{
		accept(table.Accept, "", table.State{Established: true, Related: true}),
		dropInvalid(),
	}
}

func dropInvalid() table.Rule {
	return table.Rule{Do: []table.Statement{table.State{Invalid: true}, table.Count{}, table.Verdict{Kind: table.Drop}}, Comment: "invalid"}
}

// asksCut checks whether a packet without a connection belongs to one that was cut.
func asksCut(chain string, match ...table.Statement) table.Rule {
	return table.Rule{Do: append(match, table.State{Invalid: true, New: true}, table.Verdict{Kind: table.Jump, Chain: chain})}
}

func (x Renderer) input(u Uses) []table.Rule {
	out := append(strangers(u.Tunnels), x.workload(inName, verdict(table.Goto, chainToHost))...)
	out = append(out, u.asksServices(table.Is{Field: inName, Not: true, Value: table.NameBytes(policy.Loopback)})...)
	if u.Hosts {
		out = append(out, between(u.Tunnels, false, table.Accept)...)
		out = append(out, asksCut(chainCutIn))
		if u.PreDNAT {
			out = append(out, accept(table.Accept, "allowed by a policy before DNAT", table.State{New: true}, table.MarkIs{Mask: markUntracked, Value: markUntracked}))
		}
		out = append(out, x.asksHost(u, inName, MapHostIn, HostChain(Everywhere, model.Inbound))...)
	}
	return out
}

func (x Renderer) output(u Uses) []table.Rule {
	out := x.workload(outName, dhcpAnswer)
	out = append(append(out, x.workload(outName, noEndpoint)...), shut(u, outName)...)
	out = append(out, x.workload(outName, func(s table.Statement) table.Rule { return asksCut(chainCut, s) })...)
	if u.Hosts {
		out = append(out, x.workload(outName, func(s table.Statement) table.Rule { return accept(table.Accept, "to the host's own workloads", s) })...)
		out = append(out, between(u.Tunnels, true, table.Accept)...)
		out = append(append(out, asksCut(chainCutOut)), x.asksHost(u, outName, MapHostOut, HostChain(Everywhere, model.Outbound))...)
	}
	return out
}

// loopbackIPv4 is reachable for workloads through route_localnet, which is set for what is translated to it. So the connection's original
// destination, before any translation, tells.
var loopbackIPv4 = netip.MustParsePrefix("127.0.0.0/8")

func (x Renderer) toHost(u Uses) []table.Rule {
	out := append(connected(), dropInvalid(), jump(chainCut, ""))
	out = append(out, dhcp()...)
	out = append(out, accept(table.Accept, "neighbour discovery", neighbours(true)))
	if x.Settings.EndpointDNS || x.Settings.EndpointToHost != policy.ToHostDrop {
		r := drop("the host's loopback, by its own address")
		r.Do = append([]table.Statement{table.Within{Field: calledIPv4, Prefix: loopbackIPv4}}, r.Do...)
		out = append(out, r)
	}
	out = append(append(out, jump(chainMAC, "")), bounded(u, x.metadata())...)
	if x.Settings.EndpointDNS {
		dns := []policy.ProtoPort{{Protocol: model.ProtocolTCP, Port: 53}, {Protocol: model.ProtocolUDP, Port: 53}}
		out = append(out, bounded(u, failsafe(dns, true, table.Accept, "DNS"))...)
	}
	switch x.Settings.EndpointToHost {
	case policy.ToHostAccept, policy.ToHostReturn:
		out = append(append(out, jump(chainFrom, "")), u.asksServices()...)
		return append(out, accepted("endpoint to host action "+string(x.Settings.EndpointToHost)))
	}
	// Policy isn't evaluated: it could only log. With each commit the kernel walks all that a hook reaches, for each hook.
	return append(out, drop("endpoint to host action DROP"))
}

func dnat() []table.Rule {
	var out []table.Rule
	for _, version := range [...]int{4, 6} {
		out = append(out, table.Rule{Do: []table.Statement{table.Translate{Destination: true, Fields: []table.Field{address(version, true)}, Map: Versioned(MapDNAT, version)}}})
	}
	return out
}

func snat(u Uses) []table.Rule {
	if !u.NAT && !u.Masquerade && u.Tunnels == (Tunnels{}) {
		return nil
	}
	out := []table.Rule{accept(table.Return, "the host to itself", table.Is{Field: outName, Value: table.NameBytes(policy.Loopback)})}
	for _, version := range [...]int{4, 6} {
		if u.NAT {
			fields := []table.Field{address(version, false), address(version, true)}
			out = append(out, table.Rule{Do: []table.Statement{table.Translate{Fields: fields, Map: Versioned(MapHairpin, version)}},
				Comment: "an endpoint calls itself"})
		}
	}
	for _, version := range [...]int{4, 6} {
		if u.Masquerade {
			out = append(out, table.Rule{Do: []table.Statement{
				table.InSet{Fields: []table.Field{address(version, false)}, Set: Versioned(SetMasquerade, version)},
				table.InSet{Fields: []table.Field{address(version, true)}, Not: true, Set: Versioned(SetPools, version)},
				table.Count{}, table.Masquerade{},
			}, Comment: "from a pool to outside of all pools"})
		}
	}
	return append(out, ownSources(u.Tunnels)...)
}
