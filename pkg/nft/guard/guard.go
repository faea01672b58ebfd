// SPDX-License-Identifier: Apache-2.0

// Package guard protects the VXLAN tunnels of network service connections from other senders.
package guard

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/table"
)

// TableName is the name of our table. It stays when the program that created it ends, as the tunnels do.
const TableName = "calico-nsm"

// Tunnel is a tunnel whose device receives packets with the VNI at the UDP port.
type Tunnel struct {
	Remote netip.Addr // of the node at the other end
	Port   uint16
	VNI    uint32
}

// Apply makes tunnels accept packets only from the nodes at their other ends: a frame in a packet with a tunnel's VNI comes out in a pod,
// whoever sent it. It also drops what the calling thread's network namespace forwards to such a node's port, for instance from one of its
// pods: masqueraded, it would come from this node. Other VNIs, and other uses of the port, are not affected. tunnels must be all of them,
// including those whose device is created afterwards.
func Apply(tunnels []Tunnel) error {
	conn, err := nfnl.Open(TableName)
	if err != nil {
		return fmt.Errorf("guard tunnels: %w", err)
	}
	defer conn.Close()
	has, err := conn.ReadTable()
	if err != nil {
		return fmt.Errorf("guard tunnels: %w", err)
	}
	chains := chainsOf(tunnels)
	b, same := conn.NewBatch(), !has.Foreign && len(has.Chains) == len(chains)
	b.AddTable() // so that there is one to delete
	b.DeleteTable()
	if len(chains) > 0 {
		b.AddTable()
	}
	for _, c := range chains {
		b.AddChain(c)
		rules := has.Rules[c.Name]
		same = same && has.Chains[c.Name] == nfnl.HookOf(c.Hook) && len(rules) == len(c.Rules)
		for i, r := range c.Rules {
			encoded, err := nfnl.EncodeRule(r)
			if err != nil {
				return err
			}
			b.AddRule(c.Name, encoded, 0)
			same = same && rules[i].Hash == encoded.Hash
		}
	}
	if same {
		return nil
	}
	if _, err := b.Commit(0); err != nil {
		return fmt.Errorf("guard tunnels: %w", err)
	}
	return nil
}

// chainsOf returns no chains if there are no tunnels.
func chainsOf(tunnels []Tunnel) []table.Chain {
	peers, vnis := map[uint16]map[netip.Addr]bool{}, map[uint16]map[uint32]bool{}
	for _, t := range tunnels {
		if peers[t.Port] == nil {
			peers[t.Port], vnis[t.Port] = map[netip.Addr]bool{}, map[uint32]bool{}
		}
		peers[t.Port][t.Remote], vnis[t.Port][t.VNI] = true, true
	}
	if len(peers) == 0 {
		return nil
	}
	in := table.Chain{Name: "input", Hook: table.Hook{Type: "filter", At: "input", Priority: "filter - 2"}, Comment: "VXLAN from nodes without a connection"}
	forward := table.Chain{Name: "forward", Hook: table.Hook{Type: "filter", At: "forward", Priority: "filter - 2"}, Comment: "VXLAN that the node itself didn't send"}
	for _, port := range slices.Sorted(maps.Keys(peers)) {
		to := table.Is{Field: table.Field{Text: "udp dport", Type: table.TypeService, From: table.FromTransport, Offset: 2, Protocol: 17}, Value: table.PortBytes(port)}
		ours := table.Among{Fields: []table.Field{{Text: "@th,96,24", Type: table.TypeVNI, From: table.FromTransport, Offset: 12, Protocol: 17}}} // RFC 7348, section 5
		for _, vni := range slices.Sorted(maps.Keys(vnis[port])) {
			ours.Values = append(ours.Values, table.Element{Key: table.VNIBytes(vni)})
		}
		for _, v := range [...]struct {
			family   byte
			from, to table.Field
		}{
			{table.FamilyIPv4, table.Field{Text: "ip saddr", Type: table.TypeIPv4, From: table.FromNetwork, Offset: 12, Family: table.FamilyIPv4},
				table.Field{Text: "ip daddr", Type: table.TypeIPv4, From: table.FromNetwork, Offset: 16, Family: table.FamilyIPv4}},
			{table.FamilyIPv6, table.Field{Text: "ip6 saddr", Type: table.TypeIPv6, From: table.FromNetwork, Offset: 8, Family: table.FamilyIPv6},
				table.Field{Text: "ip6 daddr", Type: table.TypeIPv6, From: table.FromNetwork, Offset: 24, Family: table.FamilyIPv6}},
		} {
			var nodes []table.Element
			for _, a := range slices.SortedFunc(maps.Keys(peers[port]), netip.Addr.Compare) {
				if a.Is4() == (v.family == table.FamilyIPv4) {
					nodes = append(nodes, table.Element{Key: table.AddrBytes(a)})
				}
			}
			drop := []table.Statement{table.Count{}, table.Verdict{Kind: table.Drop}}
			stranger := []table.Statement{to, ours, table.Is{Field: table.Field{Text: "meta nfproto", Type: table.TypeNFProto, From: table.FromNFProto}, Value: string([]byte{v.family})}}
			if len(nodes) > 0 {
				stranger = []table.Statement{to, ours, table.Among{Fields: []table.Field{v.from}, Not: true, Values: nodes}}
				forward.Rules = append(forward.Rules, table.Rule{Do: append([]table.Statement{to, ours, table.Among{Fields: []table.Field{v.to}, Values: nodes}}, drop...)})
			}
			in.Rules = append(in.Rules, table.Rule{Do: append(stranger, drop...)})
		}
	}
	return []table.Chain{in, forward}
}
