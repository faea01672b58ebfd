// SPDX-License-Identifier: Apache-2.0

package render

import (
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/plan"
)

// Tunnels are the tunnels that rules are rendered for.
type Tunnels struct {
	VXLANPort uint16 // 0 = none
	IPIP      bool
}

// strangers drops tunnelled packets that no host of the cluster sent: their sender could forge any source address, and pass as any
// endpoint. The check is where packets for the host itself pass, after fragments are reassembled and before the tunnel's device gets them,
// so that forwarded packets cost nothing.
func strangers(t Tunnels) []table.Rule {
	var out []table.Rule
	for _, p := range t.packets() {
		r := drop(p.kind + " from no host of the cluster")
		host := table.InSet{Fields: []table.Field{address(p.version, false)}, Not: true, Set: Versioned(SetHosts, p.version)}
		r.Do = append([]table.Statement{p.match, host}, r.Do...)
		out = append(out, r)
	}
	return out
}

// imitations drops a workload's packets that imitate a tunnel's and would be masqueraded, by us or another program: with this host's
// address as their source, other hosts would take them for the tunnel's.
func (x Renderer) imitations(t Tunnels) []table.Rule {
	var out []table.Rule
	for _, p := range t.packets() {
		outside := table.InSet{Fields: []table.Field{address(p.version, true)}, Not: true, Set: Versioned(SetPools, p.version)}
		out = append(out, x.workload(inName, func(from table.Statement) table.Rule {
			r := drop(p.kind + " of a workload's own, to outside of all pools")
			r.Do = append([]table.Statement{from, p.match, outside}, r.Do...)
			return r
		})...)
	}
	return out
}

// between lets tunnelled packets between hosts pass, from them or to them, before a host endpoint's policy: that is about the host itself,
// and the inner packets have policies of their own.
func between(t Tunnels, toHosts bool, kind table.VerdictKind) []table.Rule {
	var out []table.Rule
	for _, p := range t.packets() {
		host := table.InSet{Fields: []table.Field{address(p.version, toHosts)}, Set: Versioned(SetHosts, p.version)}
		out = append(out, accept(kind, p.kind+" between hosts of the cluster", p.match, host))
	}
	return out
}

// tunnelPackets match the packets of one kind of tunnel over one version of IP.
type tunnelPackets struct {
	kind    string
	version int
	match   table.Statement
}

// packets returns matches for the existing tunnels.
func (t Tunnels) packets() []tunnelPackets {
	var out []tunnelPackets
	if t.VXLANPort != 0 {
		to := table.Is{Field: port(model.ProtocolUDP, true), Value: table.PortBytes(t.VXLANPort)}
		out = append(out, tunnelPackets{"VXLAN", 4, to}, tunnelPackets{"VXLAN", 6, to})
	}
	if t.IPIP {
		out = append(out, tunnelPackets{"IPIP", 4, table.Is{Field: l4proto, Value: string([]byte{protocolIPIP})}})
	}
	return out
}

// Types of addresses in the host's byte order, from linux/rtnetlink.h.
const (
	typeUnicast = "\x01\x00\x00\x00"
	typeLocal   = "\x02\x00\x00\x00"
)

// ownSources give what the host itself sends by a tunnel that tunnel's address. The host chose another source if it meant to send
// elsewhere, and another program's rule, such as kube-proxy's for a service, redirected it to a workload. The answer to another address
// would come outside the tunnel, where reverse-path filters, or filters of the network between hosts, drop it.
func ownSources(t Tunnels) []table.Rule {
	var out []table.Rule
	for _, device := range t.devices() {
		out = append(out, table.Rule{Do: []table.Statement{
			table.Is{Field: outName, Value: table.NameBytes(device)},
			table.Is{Field: sourceType, Value: typeLocal}, table.Is{Field: sourceOut, Not: true, Value: typeLocal},
			table.Count{}, table.Masquerade{},
		}, Comment: "the host's own, by a tunnel, from an address that isn't the tunnel's"})
	}
	return out
}

// devices returns the names of the devices that may exist.
func (t Tunnels) devices() []string {
	var out []string
	for _, own := range plan.OwnTunnels("") {
		if own.Kind == plan.IPIP && t.IPIP || own.Kind != plan.IPIP && t.VXLANPort != 0 {
			out = append(out, own.Device)
		}
	}
	return out
}

const protocolIPIP = 4 // IP in IP, RFC 2003
