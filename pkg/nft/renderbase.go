// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// uses are what the chains that every packet passes are needed for; what isn't
// needed costs nothing: an empty chain of a hook isn't free.
type uses struct {
	Wildcard, Hosts, Untracked, NAT, Masquerade, Shut bool
	// Translated is that there was NAT or Masquerade once: without any chain of kind nat the
	// kernel translates no packet of the connections that run, and these leave by the workload's own address.
	Translated bool
	Tunnels    tunnels
}

// everything needs all chains that there can be.
var everything = uses{Wildcard: true, Hosts: true, Untracked: true, NAT: true, Masquerade: true, Translated: true, Shut: true}

// base are the chains that don't belong to an endpoint, policy or profile. They
// follow the order of policy.Evaluate.
func (x renderer) base(u uses) []Chain {
	last := accepted("both sides allow it")
	last.Do = slices.Insert(last.Do, 0, Statement(MarkIs{markLast, markLast}))
	chains := []Chain{
		{Name: "raw-prerouting", Hook: Hook{"filter", "prerouting", "raw"}, Comment: "what comes in, before connection tracking", Rules: x.rawIn(u)},
		{Name: "filter-forward", Hook: Hook{"filter", "forward", "filter"}, Comment: "from interface to interface", Rules: x.forwardHook(u)},
		{Name: "filter-input", Hook: Hook{"filter", "input", "filter"}, Comment: "for the host itself", Rules: x.input(u)},
		{Name: "filter-output", Hook: Hook{"filter", "output", "filter"}, Comment: "from the host itself", Rules: x.output(u)},
		{Name: chainSpoof, Comment: "before connection tracking: is it from who it says", Rules: sources()},
		{Name: chainMAC, Comment: "of new connections: is it from the endpoint's MAC address", Rules: macs()},
		{Name: chainForward, Comment: "what is forwarded and of no connection yet: asks both sides", Rules: x.forward(u)},
		{Name: chainFrom, Comment: "what the endpoint of the interface may send", Rules: asksSender()},
		{Name: chainTo, Comment: "what the endpoint of the interface may receive", Rules: asksReceiver()},
		{Name: chainToHost, Comment: "from workloads to the host itself", Rules: x.toHost()},
		{Name: chainRelated, Comment: "errors about connections", Rules: x.related()},
		{Name: chainCut, Comment: "of new connections: was what it belongs to cut", Rules: cutFlows()},
		{Name: chainAllow, Comment: "a rule allows it", Rules: append([]Rule{last}, decide(markAllowed, "back to who asks: allowed")...)},
		{Name: chainNextTier, Comment: "a rule sends it on to the profiles", Rules: decide(markNextTier, "back to who asks: go on to the profiles")},
	}
	if u.Hosts {
		chains = append(chains, x.hostCut()...)
	}
	if u.Untracked {
		chains = append(chains, Chain{Name: "raw-output", Hook: Hook{"filter", "output", "raw"}, Comment: "what the host sends, before connection tracking", Rules: x.rawOut(u)},
			Chain{Name: chainUntracked, Comment: "an untracked policy allows it", Rules: []Rule{
				{Do: []Statement{MarkSet{Clear: markAll, Set: markUntracked}, NoTrack{}, Count{}, Verdict{Kind: Accept}}},
			}})
	}
	if u.NAT {
		chains = append(chains, Chain{Name: "nat-prerouting", Hook: Hook{"nat", "prerouting", "dstnat"}, Comment: "1:1 NAT of what comes in", Rules: dnat()},
			Chain{Name: "nat-output", Hook: Hook{"nat", "output", "-100"}, Comment: "1:1 NAT of what the host sends", Rules: dnat()})
	}
	if u.Translated {
		chains = append(chains, Chain{Name: chainSNAT, Hook: Hook{"nat", "postrouting", "srcnat"}, Rules: snat(u),
			Comment: "source addresses of what leaves; without rules, for connections that were translated"})
	}
	return chains
}

// fromWorkload and toWorkload are a rule per prefix of workload interfaces.
func (x renderer) workload(f Field, rule func(Statement) Rule) []Rule {
	var out []Rule
	for _, p := range x.settings.Prefixes {
		out = append(out, rule(HasPrefix{Field: f, Prefix: p}))
	}
	return out
}

// notWorkload matches every other interface.
func (x renderer) notWorkload(f Field) []Statement {
	var out []Statement
	for _, p := range x.settings.Prefixes {
		out = append(out, HasPrefix{f, true, p})
	}
	return out
}

func verdict(kind VerdictKind, chain string) func(Statement) Rule {
	return func(s Statement) Rule { return Rule{Do: []Statement{s, Verdict{kind, chain}}} }
}

// noEndpoint drops what goes to a workload interface that no endpoint has.
func noEndpoint(s Statement) Rule {
	r := drop("no endpoint has the interface")
	r.Do = append([]Statement{s, InSet{[]Field{outName}, true, setWorkloads}}, r.Do...)
	return r
}

// rawIn is short: it is for what comes from anywhere.
func (x renderer) rawIn(u uses) []Rule {
	out := append(x.workload(inName, verdict(Goto, chainSpoof)), shut(u, inName)...)
	if u.Untracked {
		local := Is{destType, true, "\x01\x00\x00\x00"} // RTN_UNICAST, in the host's order
		out = append(out, clearMarks(), Rule{Do: []Statement{local, Dispatch{inName, mapUntrackIn}}, Comment: "for the host itself"})
	}
	return out
}

// decide goes back to who asked policies, with a mark. It is a chain of its own to
// keep rules small: with each commit the kernel walks them all.
func decide(mark uint32, why string) []Rule {
	return []Rule{{Do: []Statement{MarkSet{Set: mark}, Verdict{Kind: Return}}, Comment: why}}
}

func clearMarks() Rule {
	return Rule{Do: []Statement{MarkSet{Clear: markAll}}, Comment: "what others marked means nothing"}
}

// shut drops what an interface passes whose endpoint no prefix covers: to all else it
// would be the host's own. Where there is none it costs nothing.
func shut(u uses, f Field) []Rule {
	if !u.Shut {
		return nil
	}
	r := drop("no prefix covers the interface of its endpoint")
	r.Do = append([]Statement{InSet{Fields: []Field{f}, Set: setShut}}, r.Do...)
	return []Rule{r}
}

func (x renderer) rawOut(u uses) []Rule {
	out := x.workload(outName, func(s Statement) Rule { return accept(Return, "", s) })
	if u.Shut {
		out = append(out, accept(Return, "", InSet{Fields: []Field{outName}, Set: setShut}))
	}
	return append(out, clearMarks(), Rule{Do: []Statement{Dispatch{outName, mapUntrackOut}}})
}

// sources let pass at once what a workload sends from its own addresses, as most
// packets are.
func sources() []Rule {
	var out []Rule
	for _, version := range [...]int{4, 6} {
		fields := []Field{inName, address(version, false)}
		out = append(out, accept(Accept, "", InSet{Fields: fields, Set: versioned(setSources, version)}))
	}
	none := drop("no endpoint has the interface")
	none.Do = append([]Statement{InSet{[]Field{inName}, true, setWorkloads}}, none.Do...)
	out = append(append(out, notTracked(dhcpBefore()), none), exempt(notTracked)...)
	return append(out, drop("spoofed source"))
}

// foreign is sources again, without what is exempt: that is for the host itself, and
// nothing that is forwarded needs it.
func (x renderer) foreign() []Rule {
	var out []Rule
	for _, version := range [...]int{4, 6} {
		own := InSet{[]Field{inName, address(version, false)}, true, versioned(setSources, version)}
		out = append(out, x.workload(inName, func(from Statement) Rule {
			r := drop("spoofed source")
			r.Do = append([]Statement{from, own}, r.Do...)
			return r
		})...)
	}
	return out
}

// macs are for the first packet of a connection only: to compare each costs a
// small one 2 % of its way, and those that follow are of what was accepted.
func macs() []Rule {
	out := []Rule{
		accept(Return, "", InSet{Fields: []Field{inName, etherSource}, Set: setMACs}),
		accept(Return, "of unknown MAC address", InSet{Fields: []Field{inName}, Set: setAnyMAC}),
	}
	out = append(out, exempt(func(r Rule) Rule { return r })...)
	return append(out, drop("spoofed MAC address"))
}

// exempt is what is not checked for spoofing: it comes before an address is known.
// The tracker leaves neighbour discovery alone by itself.
func exempt(asDHCP func(Rule) Rule) []Rule {
	var out []Rule
	for _, r := range dhcp(Return) {
		out = append(out, asDHCP(r))
	}
	return append(out, accept(Return, "neighbour discovery", neighbours(true)))
}

// notTracked keeps from the connection tracker what a rule lets pass: a forged address
// would be given a connection, by which whoever has it comes past policy.
func notTracked(r Rule) Rule {
	r.Do = slices.Insert(r.Do, len(r.Do)-1, Statement(NoTrack{}))
	return r
}

// forwardHook is short for what most packets are, those of connections that were
// accepted. What isn't decided here goes on in one place: with every change of a
// rule the kernel walks all that a hook can reach.
func (x renderer) forwardHook(u uses) []Rule {
	out := append(connected(), x.workload(outName, noEndpoint)...)
	out = append(out, shut(u, outName)...)
	if !u.Wildcard {
		out = append(out, accept(Accept, "of no endpoint", append(x.notWorkload(inName), x.notWorkload(outName)...)...))
	}
	return append(out, Rule{Do: []Statement{Verdict{Goto, chainForward}}})
}

// forward is for packets of connections that are new, or invalid.
func (x renderer) forward(u uses) []Rule {
	out := append([]Rule{dropInvalid()}, x.imitations(u.Tunnels)...)
	out = append(append(out, jump(chainCut, "")), x.foreign()...)
	out = append(out, x.workload(inName, verdict(Jump, chainMAC))...)
	out = append(out, x.workload(inName, verdict(Jump, chainFrom))...)
	if u.Wildcard {
		out = append(out, Rule{Do: append(x.notWorkload(inName), Verdict{Jump, chainWildIn})})
	}
	out = append(out, x.workload(outName, verdict(Jump, chainTo))...)
	if u.Wildcard {
		out = append(out, Rule{Do: append(x.notWorkload(outName), Verdict{Jump, chainWildOut})})
	}
	return append(out, accepted("both sides allow it"))
}

// accepted leaves no mark of ours.
func accepted(why string) Rule {
	return Rule{Do: []Statement{MarkSet{Clear: markAll}, Count{}, Verdict{Kind: Accept}}, Comment: why}
}

const othersConnection = "about a connection of others"

// connected accepts what is of a connection, or about one.
func connected() []Rule {
	return []Rule{
		accept(Accept, "", State{Established: true}),
		{Do: []Statement{State{Related: true}, Verdict{Goto, chainRelated}}},
	}
}

// related is for errors of ICMP about connections that were accepted. They come from its
// ends, and from routers, which workloads are not: theirs would shrink the path MTU of
// anybody. Connections that a helper of the tracker's expects have the workload as an end.
func (x renderer) related() []Rule {
	out := []Rule{accept(Accept, "", x.notWorkload(inName)...)}
	for _, version := range [...]int{4, 6} {
		for _, end := range connEnds(version) {
			out = append(out, accept(Accept, "", InSet{Fields: []Field{inName, end}, Set: versioned(setSources, version)}))
		}
	}
	return append(out, drop(othersConnection))
}

// tracked decides by the state of the connection.
func tracked() []Rule {
	return []Rule{
		accept(Accept, "", State{Established: true, Related: true}),
		dropInvalid(),
	}
}

func dropInvalid() Rule {
	return Rule{Do: []Statement{State{Invalid: true}, Count{}, Verdict{Kind: Drop}}, Comment: "invalid"}
}

// asksCut asks whether a packet that isn't of a connection belongs to one that was cut.
func asksCut(chain string, match ...Statement) Rule {
	return Rule{Do: append(match, State{Invalid: true, New: true}, Verdict{Jump, chain})}
}

func (x renderer) input(u uses) []Rule {
	out := append(strangers(u.Tunnels), x.workload(inName, verdict(Goto, chainToHost))...)
	if u.Hosts {
		out = append(out, between(u.Tunnels, false, Accept)...)
		out = append(out, asksCut(chainCutIn), Rule{Do: []Statement{Dispatch{inName, mapHostIn}}})
	}
	return out
}

func (x renderer) output(u uses) []Rule {
	out := x.workload(outName, dhcpAnswer)
	out = append(append(out, x.workload(outName, noEndpoint)...), shut(u, outName)...)
	out = append(out, x.workload(outName, func(s Statement) Rule { return asksCut(chainCut, s) })...)
	if u.Hosts {
		out = append(out, x.workload(outName, func(s Statement) Rule { return accept(Accept, "to the host's own workloads", s) })...)
		out = append(out, between(u.Tunnels, true, Accept)...)
		out = append(out, asksCut(chainCutOut), Rule{Do: []Statement{Dispatch{outName, mapHostOut}}})
	}
	return out
}

// loopbackIPv4 is where workloads come through route_localnet, which is there for what is
// translated to it: so the connection's own destination tells, before any translation.
var loopbackIPv4 = netip.MustParsePrefix("127.0.0.0/8")

func (x renderer) toHost() []Rule {
	out := append(connected(), dropInvalid(), jump(chainCut, ""))
	out = append(out, dhcp(Accept)...)
	out = append(out, accept(Accept, "neighbour discovery", neighbours(true)))
	if x.settings.EndpointDNS || x.settings.EndpointToHost != policy.ToHostDrop {
		r := drop("the host's loopback, by its own address")
		r.Do = append([]Statement{Within{Field: calledIPv4, Prefix: loopbackIPv4}}, r.Do...)
		out = append(out, r)
	}
	out = append(out, jump(chainMAC, ""))
	if x.settings.EndpointDNS {
		dns := []policy.ProtoPort{{Protocol: model.ProtocolTCP, Port: 53}, {Protocol: model.ProtocolUDP, Port: 53}}
		out = append(out, failsafe(dns, true, Accept, "DNS")...)
	}
	switch x.settings.EndpointToHost {
	case policy.ToHostAccept, policy.ToHostReturn:
		return append(out, jump(chainFrom, ""), accepted("endpoint to host action "+string(x.settings.EndpointToHost)))
	}
	// Policy isn't asked: it could only log. With each commit the kernel walks all
	// that a hook reaches, for each hook.
	return append(out, drop("endpoint to host action DROP"))
}

func dnat() []Rule {
	var out []Rule
	for _, version := range [...]int{4, 6} {
		out = append(out, Rule{Do: []Statement{Translate{true, []Field{address(version, true)}, versioned(mapDNAT, version)}}})
	}
	return out
}

func snat(u uses) []Rule {
	if !u.NAT && !u.Masquerade {
		return nil
	}
	out := []Rule{accept(Return, "the host to itself", Is{outName, false, nameBytes(policy.Loopback)})}
	for _, version := range [...]int{4, 6} {
		if u.NAT {
			fields := []Field{address(version, false), address(version, true)}
			out = append(out, Rule{Do: []Statement{Translate{false, fields, versioned(mapHairpin, version)}},
				Comment: "an endpoint calls itself"})
		}
	}
	for _, version := range [...]int{4, 6} {
		if u.Masquerade {
			out = append(out, Rule{Do: []Statement{
				InSet{[]Field{address(version, false)}, false, versioned(setMasquerade, version)},
				InSet{[]Field{address(version, true)}, true, versioned(setPools, version)},
				Count{}, Masquerade{},
			}, Comment: "from a pool to outside of all pools"})
		}
	}
	return out
}

// baseSets are the sets that there always are, empty.
func baseSets() []Set {
	sets := []Set{
		{Name: setWorkloads, Key: []Type{typeInterface}, Comment: "the workloads' interfaces, and whose they are"},
		{Name: setClosed, Key: []Type{typeInterface}, Comment: "whose endpoint is inactive: not even DHCP"},
		{Name: setShut, Key: []Type{typeInterface}, Comment: "interfaces of endpoints that no prefix of workloads' covers: nothing passes"},
		{Name: mapFrom, Key: []Type{typeInterface}, Data: typeVerdict, Jump: true, Comment: "what is asked about what the endpoint sends"},
		{Name: mapTo, Key: []Type{typeInterface}, Data: typeVerdict, Jump: true, Comment: "what is asked about what the endpoint receives"},
		{Name: setDeniedFrom, Key: []Type{typeInterface}, Count: true, Comment: "what nothing allowed the endpoint to send"},
		{Name: setDeniedTo, Key: []Type{typeInterface}, Count: true, Comment: "what nothing allowed the endpoint to receive"},
		{Name: setMACs, Key: []Type{typeInterface, typeEther}, Comment: "the MAC address that the endpoint sends from"},
		{Name: setAnyMAC, Key: []Type{typeInterface}, Comment: "whose endpoint says no MAC address"},
		{Name: mapHostIn, Key: []Type{typeInterface}, Data: typeVerdict, Comment: "host endpoints, for the host itself"},
		{Name: mapHostOut, Key: []Type{typeInterface}, Data: typeVerdict, Comment: "host endpoints, from the host itself"},
		{Name: mapUntrackIn, Key: []Type{typeInterface}, Data: typeVerdict, Comment: "host endpoints with untracked policies, for the host itself"},
		{Name: mapUntrackOut, Key: []Type{typeInterface}, Data: typeVerdict, Comment: "host endpoints with untracked policies, from the host itself"},
	}
	for _, version := range [...]int{4, 6} {
		addr := address(version, false).kind
		sets = append(sets,
			Set{Name: versioned(setHosts, version), Key: []Type{addr}, Comment: "the other hosts, from which tunnels take packets"},
			Set{Name: versioned(setSources, version), Key: []Type{typeInterface, addr}, Comment: "the addresses that the endpoint sends from"},
			Set{Name: versioned(mapDNAT, version), Key: []Type{addr}, Data: addr, Comment: "1:1 NAT: the endpoint's own address by its outer one"},
			Set{Name: versioned(mapHairpin, version), Key: []Type{addr, addr}, Data: addr, Comment: "1:1 NAT: the outer address by which an endpoint calls itself"},
			Set{Name: versioned(setPools, version), Key: []Type{addr}, Interval: true, Comment: "all pools"},
			Set{Name: versioned(setMasquerade, version), Key: []Type{addr}, Interval: true, Comment: "pools whose addresses are masqueraded outside of all pools"})
	}
	return append(sets, cutSets()...)
}
