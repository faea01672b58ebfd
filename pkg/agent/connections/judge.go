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

// leastCut is how long a cut flow can't begin a connection at least: the tracker forgets
// what is no TCP sooner than those who talk give it up.
const leastCut = 10 * time.Minute

// began is the direction in which a connection began, as policy saw it after its
// destination was translated, whatever did that.
func began(c conntrack.Connection) nft.Flow {
	f := nft.Flow{Protocol: c.Protocol, Src: c.Src, Dst: c.ReplySrc}
	if c.Protocol.HasPorts() {
		f.SrcPort, f.DstPort = c.SrcPort, c.ReplySrcPort
	}
	return f
}

// answers is the other direction. Whatever the addresses on the wire, this is
// what the tracker would have to see first to take the packets of f for answers.
func answers(f nft.Flow) nft.Flow {
	return nft.Flow{Protocol: f.Protocol, Src: f.Dst, Dst: f.Src, SrcPort: f.DstPort, DstPort: f.SrcPort}
}

// query is what else is known of the first packet of what the tracker takes for a connection: what ICMP asks by it, and
// what it was sent to.
type query struct {
	kind, code uint8
	called     netip.AddrPort
}

// ephemeral is the first of the ports that Linux gives to who begins a connection
// (net.ipv4.ip_local_port_range in the kernel's networking/ip-sysctl).
const ephemeral = 32768

// isFromClient says whether a flow's ports are such as those of who begins a connection.
func isFromClient(f nft.Flow) bool { return f.SrcPort >= ephemeral && f.DstPort < ephemeral }

// judge says whether policy denies a connection. cut is the flow of its answers where
// policy would let that begin a connection: the packets of the side that is denied would
// then pass as answers.
//
// Connections on which policy has no say are allowed. So are those of TCP that ran before
// the tracker did and whose answers, so it seems, are for a fail-safe port: on a host that
// has had no firewall these are the agent's own to etcd and the operator's by SSH. Of
// others, whose ports say that the side that was heard second began them, policy must
// allow both directions.
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

// denies says whether policy denies what begins a connection, whichever interfaces it
// may take.
func (p *paths) denies(f nft.Flow, q query) bool {
	packets := p.packets(f, q)
	for _, packet := range packets {
		if p.evaluate(packet).Verdict != policy.Drop {
			return false
		}
	}
	return len(packets) > 0
}

// failsafe says whether a fail-safe port lets pass what begins a connection.
func (p *paths) failsafe(f nft.Flow) bool {
	return slices.ContainsFunc(p.packets(f, query{}), func(packet policy.Packet) bool { return p.evaluate(packet).Failsafe })
}

// evaluate judges what begins a connection. Evaluate looks through all endpoints
// that it is given: it gets those that the packet can concern.
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
