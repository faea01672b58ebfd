// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
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

// unmarkLast is unmark before the last evaluation: what that allows is accepted.
func unmarkLast() table.Rule {
	return table.Rule{Do: []table.Statement{table.MarkSet{Clear: markAllowed | markNextTier, Set: markLast}}, Comment: "nothing is decided, and nobody is asked after this one"}
}

// asksSender returns the rules that evaluate the policies of the endpoint that a packet comes from: the packet returns with a mark, or is
// dropped.
func asksSender(u Uses) []table.Rule {
	out := []table.Rule{unmark(), {Do: []table.Statement{table.Dispatch{Field: inName, Map: MapFrom}}}}
	out = append(out, bounded(u, []table.Rule{accept(table.Return, "allowed", allowed)})...)
	return append(out, denied(inName, SetDeniedFrom)...)
}

// asksReceiver returns those of the endpoint that a packet goes to, which is evaluated last.
func asksReceiver() []table.Rule {
	out := []table.Rule{unmarkLast(), {Do: []table.Statement{table.Dispatch{Field: outName, Map: MapTo}}}}
	return append(out, denied(outName, SetDeniedTo)...)
}

// denied returns the rules that drop what returns from an endpoint's chain, and count it for the endpoint.
func denied(f table.Field, set string) []table.Rule {
	nobody := drop(noneAllows)
	nobody.Do = slices.Insert(nobody.Do, 0, table.Statement(table.InSet{Fields: []table.Field{f}, Set: set}))
	return []table.Rule{nobody, drop("no endpoint has the interface")}
}

// accept returns a rule that ends with a verdict if all matches hold.
func accept(kind table.VerdictKind, why string, match ...table.Statement) table.Rule {
	return table.Rule{Do: append(match, table.Verdict{Kind: kind}), Comment: why}
}

// neighbours match the messages of neighbour discovery and MLD. A workload is no router.
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

// dhcp returns rules for the requests of a DHCP client, for both IP versions.
func dhcp() []table.Rule {
	return []table.Rule{
		accept(table.Accept, "DHCP", udpBetween(isFamily(4), 68, 67)...),
		accept(table.Accept, "DHCPv6", udpBetween(isFamily(6), 546, 547)...),
	}
}

// asksDHCP returns rules for those that may come before an address is known: from 0.0.0.0, or from a link-local address to all servers (RFC
// 8415, section 7.1) or to the host.
func asksDHCP() []table.Rule {
	out, to := []table.Rule{accept(table.Return, "DHCP", asksDHCPv4()...)}, address(6, true)
	for _, server := range [...]table.Statement{
		table.Is{Field: to, Value: table.AddrBytes(netip.MustParseAddr("ff02::1:2"))},
		table.Within{Field: to, Not: true, Prefix: netip.MustParsePrefix("ff00::/8")},
	} {
		out = append(out, accept(table.Return, "DHCPv6", append(udpBetween(linkLocal(), 546, 547), server)...))
	}
	return out
}

func asksDHCPv4() []table.Statement {
	return udpBetween(table.Is{Field: address(4, false), Value: table.AddrBytes(netip.IPv4Unspecified())}, 68, 67)
}

// dhcpBefore and dhcpAnswer are for an interface whose endpoint doesn't exist yet, and whose address is requested.
func dhcpBefore() table.Rule {
	return accept(table.Return, "DHCP asks for the endpoint's address", append(asksDHCPv4(), table.InSet{Fields: []table.Field{inName}, Not: true, Set: SetClosed})...)
}

func dhcpAnswer(to table.Statement) table.Rule {
	return accept(table.Accept, "DHCP's answer", append(append([]table.Statement{to}, udpBetween(isFamily(4), 67, 68)...), table.InSet{Fields: []table.Field{outName}, Not: true, Set: SetClosed})...)
}

func udpBetween(from table.Statement, source, destination uint16) []table.Statement {
	return []table.Statement{
		from,
		table.Is{Field: port(model.ProtocolUDP, false), Value: table.PortBytes(source)},
		table.Is{Field: port(model.ProtocolUDP, true), Value: table.PortBytes(destination)},
	}
}

// failsafe returns rules for ports that policy must never close.
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
