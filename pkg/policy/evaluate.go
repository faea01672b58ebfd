// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Evaluate returns what this host does with a packet, and why. It defines the meaning of the programmed rules: the
// kernel must agree with it on every packet.
//
// A workload interface is one whose name begins with one of the settings' Prefixes, or one named by a workload endpoint
// that is Dropped because no prefix matches (except Loopback): such an interface is shut. Its endpoint is the workload
// endpoint with that Interface that is not Dropped. The host endpoint of any other interface except Loopback is the one
// with that Interface, else the wildcard: the one with Wildcard. "Neighbour discovery" is ICMPv6 130–136 and 143 (MLD
// and ND), without 134 (router advertisement) from workloads. None of it, 134 included, belongs to a connection.
//
// A host's packets to itself leave and arrive by Loopback, whichever of its addresses they are for. No endpoint applies
// to them: neither by their In and Out, which are "", nor if one of these is Loopback.
//
// A tunnel packet is UDP to Tunnels.VXLANPort, or IPv4 in IPv4 if Tunnels.IPIP is set. It is of the cluster if the
// other end is in Tunnels.Hosts.
//
// The steps are as follows. A packet leaves them where it is dropped, and where it says accept.
//
//  1. Before connection tracking, a packet from a workload interface:
//     (a) no endpoint: dropped, except UDP 68→67 from 0.0.0.0 if there is no endpoint that is Dropped: it asks for
//     the endpoint's address, and continues with 3.
//     (b) its source is one of the endpoint's Addrs: continue with 3.
//     (c) neighbour discovery from fe80::/10 or ::: continue with 3. UDP 68→67 from 0.0.0.0, and UDP 546→547 from
//     fe80::/10 to ff02::1:2 or a unicast address: untracked, continue with 3. What (a) lets pass is untracked too. An
//     interface may use a limited number of addresses of fe80::/10 per hour; packets from further ones are dropped, which
//     Evaluate doesn't know.
//     (d) else: dropped.
//  2. Before connection tracking, a packet for the host itself from an interface with a host endpoint, or from the host
//     itself to one:
//     (a) neighbour discovery: continue with 3.
//     (b) fail-safe ports and the answers from them: inbound, destination port in FailsafeInbound or source port in
//     FailsafeOutbound; outbound, the other way round: continue with 3.
//     (c) a tunnel packet of the cluster: continue with 3.
//     (d) UntrackedInbound or UntrackedOutbound, in order: deny drops, allow leaves the packet untracked and continues
//     with 5 or 6, next-tier continues with the next tier. After the last one, and without a decision: continue with 3.
//     Then, before any destination NAT, a tracked packet that arrives by an interface that is not a workload's and that
//     belongs to no connection yet: PreDNAT of the interface's host endpoint or of the wildcard, in order, evaluated for
//     Called if that is known. (e) As in (a) to (c), but with FailsafeInbound alone: continue. (f) deny drops; allow skips
//     Inbound and ForwardInbound of host endpoints, including the wildcard's; next-tier continues with the next tier.
//     Without a decision: continue with 3.
//  3. Destination NAT, in prerouting and in output, of new connections: from an ExtIP of a local endpoint to its IntIP.
//     All further steps see the new destination. If two endpoints have the same ExtIP, the one with the lower path gets it.
//  4. Forwarded packets:
//     (a) neither from nor to a workload interface, and no host endpoint Forwards: accept.
//     (b) established: accept. Related, such as an ICMP error about a connection: accept, but drop if from a workload
//     interface whose endpoint has none of Ends among its Addrs. When an endpoint goes, so do its connections: its routes
//     are removed, and its connections are deleted.
//     (c) to a workload interface without an endpoint: dropped. (d) invalid, or of a flow that was cut: dropped; a tunnel
//     packet from a workload interface to a destination outside of Pools.All, where it would be masqueraded and pass as this
//     host's: dropped.
//     (e) from a workload interface: no endpoint, or its source is none of the endpoint's Addrs: dropped; except for
//     neighbour discovery, if its endpoint has a MAC and the packet's differs: dropped; else Outbound of its endpoint. From
//     any other interface, unless 2(f) allowed it: ForwardInbound of its host endpoint.
//     (f) to a workload interface: Inbound of its endpoint; to any other: ForwardOutbound of its host endpoint.
//     (g) accept. Fail-safe ports are the host's own and don't count here.
//  5. Packets for the host itself. A tunnel packet that is not of the cluster: dropped, even if the host sends it to
//     itself. New connections to servers of the agent itself, before (b) and (c), and in (a) once Outbound of the endpoint
//     allows it: TCP to BGP.Port from none of BGP.Peers: dropped; to one of MetricsPorts that is not in FailsafeInbound:
//     Inbound of the endpoint of MetricsPath, if it exists.
//     (a) from a workload interface: invalid dropped; established accept; related as in 4(b); DHCP (UDP 68→67 over IPv4,
//     546→547 over IPv6) and neighbour discovery accept; to 127.0.0.0/8 and not Translated: dropped; not from the
//     endpoint's MAC, as in 4(e): dropped; with EndpointDNS UDP and TCP port 53 accept; EndpointToHost: DROP drops; ACCEPT
//     and RETURN evaluate Outbound of the endpoint, and accept.
//     (b) from an interface with a host endpoint: a tunnel packet of the cluster accept; untracked by 2(d) accept;
//     neighbour discovery accept; invalid dropped; established or related accept; allowed by 2(f) accept; destination port
//     in FailsafeInbound accept; Inbound; accept.
//     (c) from any other, and from the host itself: accept.
//  6. Packets from the host itself:
//     (a) to a workload interface: UDP 67→68 over IPv4, if there is no endpoint that is Dropped, accept; dropped if the
//     interface has no endpoint, else accept.
//     (b) to an interface with a host endpoint: as 5(b), with FailsafeOutbound and Outbound.
//     (c) to any other: accept.
//  7. Source NAT, in postrouting, of new connections that were accepted, except on lo:
//     (a) the source is one of a local endpoint's Addrs and the destination one of its IntIPs: to the lowest ExtIP of that
//     IntIP (hairpin).
//     (b) else the source is in Pools.Masquerade and the destination not in Pools.All: masqueraded.
//     (c) else the host itself sends it by a tunnel device, from an address other than that device's: it gets the device's
//     address. Evaluate doesn't report this, as it doesn't know the host's addresses.
//
// A connection that policy allowed when it began but now denies is cut: connection tracking forgets it. If policy would
// accept a packet of its answering side as the first packet of a connection, that flow is cut as well: 4(d), 5 and 6
// drop its packets unless they are established or related, before anything else except DHCP in 6(a), until policy
// allows the connection again.
//
// If a workload begins more connections than its Bound, the first packet of each further one that policy accepts in
// 4(e) or 5(a) is dropped. Evaluate doesn't know how many there are, and assumes that they are few.
//
// Inbound and Outbound of an endpoint are evaluated like this: Policies in order, tier by tier, each rule in order.
// allow continues with what comes next above, deny drops, log logs and continues, next-tier continues with the next
// tier. If no policy of a tier decides: continue with the next tier if the tier is one of Passing, else dropped. After
// the last tier: Profiles in order, where next-tier ends a profile without a decision; if none decides: dropped.
// ForwardInbound and ForwardOutbound are evaluated likewise, except that a packet which no tier drops continues. Rules
// that are Invalid or missing deny. A set also contains the addresses in its Nets, except for rules of which
// RulesID.PodsOnly is true. A rule applies to one IP version as Rule.Family says. One that can't be expressed as it is
// (Rule.Reduced, or a set that doesn't exist) drops everything that the rest of it matches.
func Evaluate(s Settings, st *State, p Packet) Result {
	e := evaluation{view: view{s, st}, p: p}
	e.r.Verdict = Drop
	if e.evaluate() {
		e.r.Verdict = Accept
		e.sourceNAT()
	}
	return e.r
}

// evaluation is the evaluation of one packet.
type evaluation struct {
	view
	p Packet
	r Result
	// admitted says that a policy before DNAT allowed the packet.
	admitted bool
}

func (e *evaluation) isTunnel() bool { return e.st.Tunnels.isTunnel(&e.p) }

// isClusterTunnel reports whether it is a tunnel packet whose other end is another host of the cluster.
func (e *evaluation) isClusterTunnel(d model.Direction) bool {
	other := e.p.Src
	if d == model.Outbound {
		other = e.p.Dst
	}
	return e.isTunnel() && e.st.Tunnels.isOtherHost(other)
}

func (e *evaluation) hasPort(list []ProtoPort, port uint16) bool {
	return slices.Contains(list, ProtoPort{e.p.Protocol, port})
}

func (e *evaluation) note(format string, args ...any) {
	e.r.Trail = append(e.r.Trail, Step{Rule: -1, What: fmt.Sprintf(format, args...)})
}

func (e *evaluation) of(ep *Endpoint, d model.Direction, format string, args ...any) {
	e.r.Trail = append(e.r.Trail, Step{Endpoint: ep.Path, Direction: d, Rule: -1, What: fmt.Sprintf(format, args...)})
}

func (e *evaluation) evaluate() bool {
	p := &e.p
	if owner, _ := e.outer(); owner != nil {
		p.Out = owner.Interface // there is a route for each ExtIP
	}
	if isHost(p.In) && isHost(p.Out) {
		p.In, p.Out = "", ""
		if e.isTunnel() && !e.isClusterTunnel(model.Inbound) {
			e.note("a tunnel's packet from no other host of the cluster: drop")
			return false
		}
		e.note("from the host to itself: accept")
		return true
	}
	if e.isWorkload(p.In) && !e.admit(e.workload(p.In)) {
		return false
	}
	host, direction := e.hostSide()
	if host != nil && !e.untracked(host, direction) {
		return false
	}
	if !e.preDNAT() {
		return false
	}
	e.destinationNAT()
	if accepted, decided := e.metadata(); decided {
		return accepted
	}
	switch {
	case p.In != "" && p.Out != "":
		return e.forward()
	case p.Out == "":
		return e.input(host)
	default:
		return e.output(host)
	}
}

// admit is step 1. It returns false for a dropped packet.
func (e *evaluation) admit(ep *Endpoint) bool {
	p := &e.p
	switch {
	case ep == nil && p.Src.Is4() && p.asksDHCP() && !e.isClosed(p.In):
		e.r.Untracked = true
		e.note("from workload interface %s, DHCP before it has an endpoint: go on", p.In)
	case ep == nil:
		return e.fromNone()
	case slices.Contains(ep.Addrs, p.Src):
	case p.asksDHCP():
		e.r.Untracked = true
		e.of(ep, model.Outbound, "DHCP: not checked for spoofing")
	case e.p.isNeighbour(true) && (p.Src.IsLinkLocalUnicast() || p.Src.IsUnspecified()):
		e.of(ep, model.Outbound, "neighbour discovery from a link-local address, or before there is an address")
	default:
		return e.foreign(ep)
	}
	return true
}

// foreign drops a packet whose source is not one of the endpoint's addresses.
func (e *evaluation) foreign(ep *Endpoint) bool {
	e.of(ep, model.Outbound, "source %s is not an address of the endpoint: drop", e.p.Src)
	return false
}

// fromNone drops a packet from a workload interface without an endpoint.
func (e *evaluation) fromNone() bool {
	if !e.hasPrefix(e.p.In) {
		e.note("from interface %s, which is shut: drop", e.p.In)
		return false
	}
	e.note("from workload interface %s, which no endpoint has: drop", e.p.In)
	return false
}

// ownMAC checks the MAC address as in 4(e) and 5(a). It returns false for a dropped packet.
func (e *evaluation) ownMAC(ep *Endpoint) bool {
	if ep.MAC.IsZero() || e.p.MAC.IsZero() || ep.MAC == e.p.MAC || e.p.isNeighbour(true) {
		return true
	}
	e.of(ep, model.Outbound, "source %s is not the MAC address of the endpoint: drop", e.p.MAC)
	return false
}

// forward is step 4.
func (e *evaluation) forward() bool {
	p := &e.p
	fromWorkload, toWorkload := e.isWorkload(p.In), e.isWorkload(p.Out)
	if !fromWorkload && !toWorkload && !e.anyForwards() {
		e.note("from %s to %s, which are no endpoints: accept", p.In, p.Out)
		return true
	}
	to := e.workload(p.Out)
	accepted, decided := e.tracked()
	if toWorkload && to == nil && !accepted {
		e.note("to workload interface %s, which no endpoint has: drop", p.Out)
		return false
	}
	if decided {
		return accepted
	}
	if fromWorkload {
		if e.isTunnel() && !contains(e.st.Pools.All, p.Dst) {
			e.note("a tunnel's packet, and from workload interface %s, not to a pool: drop", p.In)
			return false
		}
		from := e.workload(p.In)
		if from == nil {
			return e.fromNone()
		}
		if !slices.Contains(from.Addrs, p.Src) {
			return e.foreign(from)
		}
		if !e.ownMAC(from) || !e.asks(from, model.Outbound, from.Outbound) {
			return false
		}
	} else if !e.admitted && !e.forwarded(p.In, model.Inbound) {
		return false
	}
	if toWorkload {
		return e.asks(to, model.Inbound, to.Inbound)
	}
	return e.forwarded(p.Out, model.Outbound)
}

// input is step 5.
func (e *evaluation) input(host *Endpoint) bool {
	p := &e.p
	if e.isTunnel() && !e.isClusterTunnel(model.Inbound) {
		e.note("a tunnel's packet from no other host of the cluster: drop")
		return false
	}
	if !e.isWorkload(p.In) {
		return e.services() && e.hostEndpoint(host, model.Inbound)
	}
	if accepted, decided := e.tracked(); decided {
		return accepted
	}
	if e.p.isDHCP() || e.p.isNeighbour(true) {
		e.note("from workload interface %s, DHCP or neighbour discovery to the host: accept", p.In)
		return true
	}
	from := e.workload(p.In)
	if p.Dst.Is4() && p.Dst.IsLoopback() && !p.Translated {
		e.of(from, model.Outbound, "to the host's loopback: drop")
		return false
	}
	if !e.ownMAC(from) {
		return false
	}
	if e.s.EndpointDNS && p.DstPort == 53 && (p.Protocol == model.ProtocolUDP || p.Protocol == model.ProtocolTCP) {
		e.of(from, model.Outbound, "DNS to the host: accept")
		return true
	}
	if e.s.EndpointToHost != ToHostAccept && e.s.EndpointToHost != ToHostReturn {
		e.of(from, model.Outbound, "to the host, endpoint to host action %s: drop", ToHostDrop)
		return false
	}
	if !e.asks(from, model.Outbound, from.Outbound) || !e.services() {
		return false
	}
	e.of(from, model.Outbound, "to the host, endpoint to host action %s: accept", e.s.EndpointToHost)
	return true
}

// output is step 6.
func (e *evaluation) output(host *Endpoint) bool {
	if !e.isWorkload(e.p.Out) {
		return e.hostEndpoint(host, model.Outbound)
	}
	if e.p.isUDP4(67, 68) && !e.isClosed(e.p.Out) {
		e.note("to workload interface %s, DHCP's answer from the host: accept", e.p.Out)
		return true
	}
	to := e.workload(e.p.Out)
	if to == nil {
		e.note("to workload interface %s, which no endpoint has: drop", e.p.Out)
		return false
	}
	e.of(to, model.Inbound, "from its own host: accept")
	return true
}

// tracked decides by the state of the connection alone.
func (e *evaluation) tracked() (accepted, decided bool) {
	switch {
	case e.p.Conn == ConnNew, e.r.Untracked:
		return false, false
	case e.p.Conn == ConnRelated && e.isWorkload(e.p.In) && !e.isEnd(e.workload(e.p.In)):
		e.note("from workload interface %s, about a connection of others: drop", e.p.In)
		return false, true
	case e.p.Conn == ConnEstablished, e.p.Conn == ConnRelated:
		e.note("%s connection: accept", e.p.Conn)
		return true, true
	}
	e.note("%s: drop", e.p.Conn)
	return false, true
}

// isEnd reports whether an endpoint is an end of the connection that the packet is about.
func (e *evaluation) isEnd(ep *Endpoint) bool {
	return ep != nil && (slices.Contains(ep.Addrs, e.p.Ends[0]) || slices.Contains(ep.Addrs, e.p.Ends[1]))
}
