// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// leastCut is the least time for which a cut flow can't begin a connection: the tracker forgets connections other than TCP before their
// ends give up.
const leastCut = 10 * time.Minute

// began returns the direction in which a connection began, as policy saw it after any translation of its destination.
func began(c conntrack.Connection) nft.Flow {
	f := nft.Flow{Protocol: c.Protocol, Src: c.Src, Dst: c.ReplySrc}
	if c.Protocol.HasPorts() {
		f.SrcPort, f.DstPort = c.SrcPort, c.ReplySrcPort
	}
	return f
}

// answers returns the other direction. Whatever the addresses on the wire, the tracker would have to see this one first to take the packets
// of f for answers.
func answers(f nft.Flow) nft.Flow {
	return nft.Flow{Protocol: f.Protocol, Src: f.Dst, Dst: f.Src, SrcPort: f.DstPort, DstPort: f.SrcPort}
}

// query is what else is known of a connection's first packet: the type and code of ICMP, and its original destination.
type query struct {
	kind, code uint8
	called     netip.AddrPort
}

// ephemeral is the first port that Linux assigns to a client (net.ipv4.ip_local_port_range in the kernel's networking/ip-sysctl).
const ephemeral = 32768

// isFromClient reports whether a flow's ports suggest that its source is the client.
func isFromClient(f nft.Flow) bool { return f.SrcPort >= ephemeral && f.DstPort < ephemeral }

// judge reports whether policy denies a connection. cut is the flow of its answers if policy would let that begin a connection: the denied
// side's packets would then pass as answers.
//
// Connections that policy doesn't concern are allowed. So are TCP connections older than the tracker whose answers seem to be for a
// fail-safe port: on a host that has had no firewall these are the agent's own to etcd and the operator's SSH. For other connections whose
// ports suggest that the side heard second began them, policy must allow both directions.
func (p *paths) judge(t conntrack.Tracked) (denied bool, cut *nft.Cut) {
	f := began(t.Connection)
	denied = p.denies(f, query{t.ICMPType, t.ICMPCode, netip.AddrPortFrom(t.Dst, t.DstPort)})
	if back := answers(f); t.PickedUp && !denied && isFromClient(back) {
		f, denied = back, p.denies(back, query{})
	}
	if !denied {
		return false, nil
	}
	back := answers(f)
	failsafe := p.failsafe(back)
	if t.PickedUp && failsafe {
		return false, nil // the other side may have begun it
	}
	if f.Protocol.HasPorts() && !failsafe && !p.denies(back, query{}) {
		cut = &nft.Cut{Flow: back, Lasts: max(t.Timeout, leastCut)}
	}
	return true, cut
}

// denies reports whether policy denies the first packet of a connection on all interfaces that it may take.
func (p *paths) denies(f nft.Flow, q query) bool {
	packets := p.packets(f, q)
	for _, packet := range packets {
		if p.evaluate(packet).Verdict != policy.Drop {
			return false
		}
	}
	return len(packets) > 0
}

// failsafe reports whether a fail-safe port lets the first packet of a connection pass.
func (p *paths) failsafe(f nft.Flow) bool {
	return slices.ContainsFunc(p.packets(f, query{}), func(packet policy.Packet) bool { return p.evaluate(packet).Failsafe })
}

// evaluate judges the first packet of a connection. policy.Evaluate looks through all endpoints that it is given, so it gets only those
// that the packet can concern.
func (p *paths) evaluate(packet policy.Packet) policy.Result {
	part := *p.State
	part.Endpoints = map[string]*policy.Endpoint{}
	for _, list := range [...][]*policy.Endpoint{p.anywhere, p.on[packet.In], p.on[packet.Out]} {
		for _, ep := range list {
			part.Endpoints[ep.Path] = ep
		}
	}
	return policy.Evaluate(p.Settings, &part, packet)
}
