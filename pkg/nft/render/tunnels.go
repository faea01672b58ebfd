// SPDX-License-Identifier: Apache-2.0

package render

import (
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/plan"
)

// Tunnels are those that rules are made for.
type Tunnels struct {
	VXLANPort uint16 // 0 = there is none
	IPIP      bool
}

// strangers drops what would come out of a tunnel and wasn't put in by a host of
// the cluster: its sender could have any source address, and pass as
// any endpoint. It is looked at where packets for the host itself come by, when
// fragments have been put together and before the tunnel's device has them, so
// that what is forwarded pays nothing.
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

// imitations drops what a workload sends to where it would be masqueraded, by us or
// by somebody else, as if a tunnel of this host had sent it: with the host's address
// as its source the other hosts would take it for that.
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

// between lets pass what tunnels carry between hosts, from them or to them, before a
// host endpoint's policy is asked: that is about the host itself, and what is inside
// has policies of its own.
func between(t Tunnels, toHosts bool, kind table.VerdictKind) []table.Rule {
	var out []table.Rule
	for _, p := range t.packets() {
		host := table.InSet{Fields: []table.Field{address(p.version, toHosts)}, Set: Versioned(SetHosts, p.version)}
		out = append(out, accept(kind, p.kind+" between hosts of the cluster", p.match, host))
	}
	return out
}

// tunnelPackets are those of one kind of tunnel over one version of IP.
type tunnelPackets struct {
	kind    string
	version int
	match   table.Statement
}

// packets are those of the tunnels that there are.
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

// Types of addresses, in the host's order as linux/rtnetlink.h has them.
const (
	typeUnicast = "\x01\x00\x00\x00"
	typeLocal   = "\x02\x00\x00\x00"
)

// ownSources give what the host itself sends by a tunnel that tunnel's address. It chose another where it meant to
// send elsewhere, and a rule of somebody else's, such as kube-proxy's for a service, led it to a workload. The answer to another
// address would come by no tunnel, where a filter of return paths or of the network between hosts drops it.
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

// devices are the names of those that there may be.
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
