// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// Flow is one direction of a connection, as policy sees its packets: after their
// destination was translated, and before their source is.
//
// A coarse one is many: those of AnyPorts, and whoever the other side is, and its
// port, where an address is the zero Addr. Of TCP it has what goes on, and not what
// asks for a connection.
type Flow struct {
	Protocol         model.Protocol
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16 // 0 where Protocol.HasPorts says no
	// AnyPorts: whatever the ports, which are 0 here as they may be in another; only of
	// a protocol that has some. A flow with one address and without this is whatever comes from SrcPort.
	AnyPorts bool
}

// Coarser returns the coarse flows that have this one, the closest first.
func (flow Flow) Coarser() []Flow {
	var out []Flow
	from, to := flow, flow
	from.Dst, from.DstPort, to.Src, to.DstPort = netip.Addr{}, 0, netip.Addr{}, 0
	if flow.listed() {
		out = append(out, Flow{Protocol: flow.Protocol, Src: flow.Src, Dst: flow.Dst, AnyPorts: true}, from, to)
	}
	if !flow.IsWide() {
		for _, wide := range [...]Flow{from, to} {
			wide.SrcPort, wide.AnyPorts = 0, flow.Protocol.HasPorts()
			if wide.Src.IsValid() || wide.Dst.IsValid() {
				out = append(out, wide)
			}
		}
	}
	return out
}

// IsCoarse says whether the flow is many.
func (flow Flow) IsCoarse() bool {
	return !flow.Src.IsValid() || !flow.Dst.IsValid() || flow.AnyPorts
}

// IsWide says whether the flow is all of a protocol that one address sends, or that is sent to it.
func (flow Flow) IsWide() bool {
	return (!flow.Src.IsValid() || !flow.Dst.IsValid()) && !flow.Ported()
}

// Ported says that one port of it is known, or both.
func (flow Flow) Ported() bool { return flow.Protocol.HasPorts() && !flow.AnyPorts }

// listed says that it is one by its ports.
func (flow Flow) listed() bool {
	return flow.Ported() && flow.Src.IsValid() && flow.Dst.IsValid()
}

// Set is the name of the set that it belongs to, "" where it is of no IP version.
func (flow Flow) Set() string {
	one, name := flow.Src, setCutPortless
	switch {
	case !flow.Src.IsValid():
		one, name = flow.Dst, setCutTo
	case !flow.Dst.IsValid():
		name = setCutFrom
	case flow.Src.Is4() != flow.Dst.Is4():
		return ""
	case flow.listed():
		name = setCut
	}
	if flow.Ported() && flow.IsCoarse() {
		name += cutByPort
	}
	if !one.IsValid() {
		return ""
	}
	version := 6
	if one.Is4() {
		version = 4
	}
	return Versioned(name, version)
}

// Key is that of its element in the set.
func (flow Flow) Key() string {
	var parts []string
	for _, a := range [...]netip.Addr{flow.Src, flow.Dst} {
		if a.IsValid() {
			parts = append(parts, table.AddrBytes(a))
		}
	}
	parts = append(parts, string([]byte{byte(flow.Protocol)}))
	if flow.Ported() {
		parts = append(parts, table.PortBytes(flow.SrcPort))
	}
	if flow.listed() {
		parts = append(parts, table.PortBytes(flow.DstPort))
	}
	return table.Concat(parts...)
}

// ParseFlow reads what Key writes; another make of the set may have other keys.
func ParseFlow(set table.Set, key string) (Flow, bool) {
	types := set.Key
	if len(key) != table.KeySize(types) {
		return Flow{}, false
	}
	next := func(t table.Type) []byte {
		b := []byte(key[:t.Size()])
		key = key[t.Padded():]
		return b
	}
	var flow Flow
	if !strings.HasPrefix(set.Name, setCutTo) {
		flow.Src, _ = netip.AddrFromSlice(next(types[0]))
	}
	if !strings.HasPrefix(set.Name, setCutFrom) {
		flow.Dst, _ = netip.AddrFromSlice(next(types[0]))
	}
	flow.Protocol = model.Protocol(next(table.TypeProtocol)[0])
	flow.AnyPorts = flow.Protocol.HasPorts() && types[len(types)-1] != table.TypeService
	if flow.Ported() {
		flow.SrcPort = binary.BigEndian.Uint16(next(table.TypeService))
	}
	if flow.listed() {
		flow.DstPort = binary.BigEndian.Uint16(next(table.TypeService))
	}
	return flow, true
}

// CutSets are the sets of flows, empty. Their elements count, so that it shows
// which are still sent.
func CutSets() []table.Set {
	var sets []table.Set
	for _, version := range [...]int{4, 6} {
		addr := address(version, false).Type
		sets = append(sets,
			table.Set{Name: Versioned(setCut, version), Key: []table.Type{addr, addr, table.TypeProtocol, table.TypeService, table.TypeService}, Count: true, Comment: "the other side of connections that policy has come to deny"},
			table.Set{Name: Versioned(setCutPortless, version), Key: []table.Type{addr, addr, table.TypeProtocol}, Count: true, Comment: "the same as " + setCut + ", of protocols without ports, and of too many"},
			table.Set{Name: Versioned(setCutFrom+cutByPort, version), Key: []table.Type{addr, table.TypeProtocol, table.TypeService}, Count: true, Comment: "the same as " + setCut + ", of too many: from a port to anybody"},
			table.Set{Name: Versioned(setCutTo+cutByPort, version), Key: []table.Type{addr, table.TypeProtocol, table.TypeService}, Count: true, Comment: "the same as " + setCut + ", of too many: from a port of anybody's"},
			table.Set{Name: Versioned(setCutFrom, version), Key: []table.Type{addr, table.TypeProtocol}, Count: true, Comment: "the same as " + setCut + ", of too many: to anybody"},
			table.Set{Name: Versioned(setCutTo, version), Key: []table.Type{addr, table.TypeProtocol}, Count: true, Comment: "the same as " + setCut + ", of too many: from anybody"})
	}
	return sets
}

// cutFlows drops the first packets of what would be a connection that was cut, the
// other way round. Of coarse flows that is what doesn't ask for a connection, where
// that can be seen.
func cutFlows() []table.Rule {
	var out, coarse []table.Rule
	for _, version := range [...]int{4, 6} {
		src, dst := address(version, false), address(version, true)
		lookup := func(set string, fields ...table.Field) table.Rule {
			return accept(table.Drop, "", table.InSet{Fields: fields, Set: Versioned(set, version)})
		}
		out = append(out, lookup(setCut, src, dst, l4proto, sourcePort, destPort))
		coarse = append(coarse, lookup(setCutPortless, src, dst, l4proto),
			lookup(setCutFrom+cutByPort, src, l4proto, sourcePort), lookup(setCutTo+cutByPort, dst, l4proto, sourcePort),
			lookup(setCutFrom, src, l4proto), lookup(setCutTo, dst, l4proto))
	}
	return append(append(out, accept(table.Return, "asks for a connection", table.Begins{})), coarse...)
}

// hostCut asks the same of what is for the host itself, and from it: fail-safe
// ports stay open, whatever was cut.
func (x Renderer) hostCut() []table.Chain {
	asks := func(ports []policy.ProtoPort) []table.Rule {
		return append(failsafe(ports, true, table.Return, "fail-safe port"), table.Rule{Do: []table.Statement{table.Verdict{Kind: table.Goto, Chain: chainCut}}})
	}
	return []table.Chain{
		{Name: chainCutIn, Comment: "of new connections with the host: was what it belongs to cut", Rules: asks(x.Settings.FailsafeInbound)},
		{Name: chainCutOut, Comment: "of new connections of the host: was what it belongs to cut", Rules: asks(x.Settings.FailsafeOutbound)},
	}
}
