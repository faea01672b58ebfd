// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/binary"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// Flow is one direction of a connection of a protocol with ports, as policy sees its packets: after translation of the destination, and
// before that of the source.
type Flow struct {
	Protocol         model.Protocol
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
}

// Set returns the name of the flow's set.
func (flow Flow) Set() string {
	if flow.Src.Is4() {
		return Versioned(setCut, 4)
	}
	return Versioned(setCut, 6)
}

// Key returns the key of the flow's element in the set.
func (flow Flow) Key() string {
	return table.Concat(table.AddrBytes(flow.Src), table.AddrBytes(flow.Dst), string([]byte{byte(flow.Protocol)}),
		table.PortBytes(flow.SrcPort), table.PortBytes(flow.DstPort))
}

// ParseFlow parses what Key returns. A set that another program made may have other keys.
func ParseFlow(set table.Set, key string) (Flow, bool) {
	if len(key) != table.KeySize(set.Key) {
		return Flow{}, false
	}
	next := func(t table.Type) []byte {
		b := []byte(key[:t.Size()])
		key = key[t.Padded():]
		return b
	}
	var flow Flow
	flow.Src, _ = netip.AddrFromSlice(next(set.Key[0]))
	flow.Dst, _ = netip.AddrFromSlice(next(set.Key[1]))
	flow.Protocol = model.Protocol(next(table.TypeProtocol)[0])
	flow.SrcPort = binary.BigEndian.Uint16(next(table.TypeService))
	flow.DstPort = binary.BigEndian.Uint16(next(table.TypeService))
	return flow, true
}

// CutSets returns the sets of flows, empty. The kernel removes their elements by itself.
func CutSets() []table.Set {
	var sets []table.Set
	for _, version := range [...]int{4, 6} {
		addr := address(version, false).Type
		sets = append(sets, table.Set{Name: Versioned(setCut, version), Key: []table.Type{addr, addr, table.TypeProtocol, table.TypeService, table.TypeService},
			Timeout: true, Comment: "the answering side of connections that policy came to deny"})
	}
	return sets
}

// cutFlows drops the first packets that would begin a cut connection in the other direction.
func cutFlows() []table.Rule {
	var out []table.Rule
	for _, version := range [...]int{4, 6} {
		fields := []table.Field{address(version, false), address(version, true), l4proto, sourcePort, destPort}
		out = append(out, accept(table.Drop, "", table.InSet{Fields: fields, Set: Versioned(setCut, version)}))
	}
	return out
}

// hostCut does the same for packets to and from the host itself: fail-safe ports stay open, whatever was cut.
func (x Renderer) hostCut() []table.Chain {
	asks := func(ports []policy.ProtoPort) []table.Rule {
		return append(failsafe(ports, true, table.Return, "fail-safe port"), table.Rule{Do: []table.Statement{table.Verdict{Kind: table.Goto, Chain: chainCut}}})
	}
	return []table.Chain{
		{Name: chainCutIn, Comment: "of new connections with the host: was what it belongs to cut", Rules: asks(x.Settings.FailsafeInbound)},
		{Name: chainCutOut, Comment: "of new connections of the host: was what it belongs to cut", Rules: asks(x.Settings.FailsafeOutbound)},
	}
}
