// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Evaluate tells what this host does with a packet, and why. It is the meaning
// of the rules that are programmed: the kernel must agree with it on every packet.
//
// A workload interface is one whose name begins with one of the settings'
// Prefixes, or that a workload endpoint names which is Dropped as it doesn't (but Loopback): such
// an interface is shut. Its endpoint is the workload endpoint of that Interface that is not
// Dropped. The host endpoint of any other interface but Loopback is the one of that
// Interface, else the wildcard: the one with Wildcard. "Neighbour
// discovery" is ICMPv6 130–136 and 143 (MLD and ND), without 134 (router
// advertisement) from workloads. None of it, 134 neither, is of a connection.
//
// What a host sends to itself goes out by Loopback and comes in there, whichever of
// its addresses it is for. No endpoint is asked about it: not by its In and Out,
// which are "", nor where one of them is Loopback.
//
// A tunnel's packet is UDP to Tunnels.VXLANPort, or IPv4 in IPv4 where there is
// Tunnels.IPIP. It is one of the cluster where the other end is in Tunnels.Hosts.
//
// The order is this. A packet leaves it where it is dropped, and where it says accept.
//
//  1. Before connection tracking, a packet from a workload interface:
//     (a) no endpoint: dropped, but for UDP 68→67 from 0.0.0.0, where there is none that is Dropped: it asks for
//     the endpoint's address, and goes on to 3.
//     (b) its source is one of the endpoint's Addrs: on to 3.
//     (c) neighbour discovery from fe80::/10 or ::: on to 3. UDP 68→67 from 0.0.0.0, UDP 546→547 from fe80::/10 to ff02::1:2 or no
//     multicast address: untracked, on to 3. So is what (a) lets go on. An interface may come with some
//     addresses of fe80::/10 in an hour; what is from more of them, which Evaluate doesn't know, is dropped.
//     (d) else: dropped.
//  2. Before connection tracking, a packet for the host itself from an interface
//     with a host endpoint, or from the host itself to one:
//     (a) neighbour discovery: on to 3.
//     (b) fail-safe ports and what answers from them: destination port in
//     FailsafeInbound or source port in FailsafeOutbound where it comes in, the
//     other way round where it goes out: on to 3.
//     (c) a tunnel's of the cluster: on to 3.
//     (d) UntrackedInbound or UntrackedOutbound, in order: deny drops, allow
//     leaves the packet untracked and goes on to 5 or 6, next-tier goes on to the next tier.
//     After the last, and without a decision: on to 3.
//     Then, before any translation of destinations, a packet that comes in by an interface that is no workload's, of
//     no connection yet, tracked: PreDNAT of the interface's host endpoint, and of the wildcard, in order,
//     each by Called where that is known. (e) As in (a) to (c), by FailsafeInbound alone: go on. (f) deny drops; allow has
//     Inbound and ForwardInbound of host endpoints, the wildcard's too, not asked; next-tier goes on to the next tier. Without
//     a decision: on to 3.
//  3. Destination NAT, in prerouting and in output, of new connections: from an
//     ExtIP of a local endpoint to its IntIP. All that follows sees the new
//     destination. Of two endpoints with one ExtIP, the lower path has it.
//  4. Forwarded packets:
//     (a) neither from nor to a workload interface, and no host endpoint Forwards: accept.
//     (b) established: accept. Related, such as an ICMP error about a connection: accept,
//     but dropped from a workload interface whose endpoint has none of Ends among its
//     Addrs. What an endpoint was connected to is
//     over when it goes: its routes go, and its connections are deleted.
//     (c) to a workload interface without an endpoint: dropped. (d) invalid, or
//     of a flow that was cut: dropped; a tunnel's, from a workload interface to outside of
//     Pools.All, where it would be masqueraded and pass as this host's: dropped.
//     (e) from a workload interface: no endpoint, or its source none of the endpoint's Addrs:
//     dropped; not neighbour discovery, its endpoint has a MAC and the packet's is another: dropped; else Outbound of
//     its endpoint. From any other interface, unless 2(f) allowed it: ForwardInbound of
//     its host endpoint.
//     (f) to a workload interface: Inbound of its endpoint; to any other: ForwardOutbound of its host endpoint.
//     (g) accept. Fail-safe ports are the host's own and don't count here.
//  5. Packets for the host itself. A tunnel's, and not of the cluster: dropped, what
//     the host sends to itself as well. What begins a connection with a server of the agent's own, before (b) and (c), and
//     in (a) once Outbound of the endpoint allows it: TCP to BGP.Port from none of BGP.Peers: dropped;
//     to one of MetricsPorts that is none of FailsafeInbound: Inbound of the endpoint of MetricsPath, where there is one.
//     (a) from a workload interface: invalid dropped; established accept; related as
//     in 4(b); DHCP (UDP 68→67 over IPv4, 546→547 over IPv6) and neighbour discovery accept; to 127.0.0.0/8 and not Translated:
//     dropped; not from the
//     endpoint's MAC, as in 4(e): dropped; with EndpointDNS UDP and TCP port 53
//     accept; EndpointToHost: DROP drops; ACCEPT and RETURN ask Outbound of the
//     endpoint, and accept.
//     (b) from an interface with a host endpoint: a tunnel's of the cluster accept;
//     untracked by 2(d) accept;
//     neighbour discovery accept; invalid dropped; established or related
//     accept; allowed by 2(f) accept; destination port in FailsafeInbound accept; Inbound; accept.
//     (c) from any other, and from the host itself: accept.
//  6. Packets from the host itself:
//     (a) to a workload interface: UDP 67→68 over IPv4, where there is no endpoint that is Dropped, accept;
//     dropped where it has no endpoint, else accept.
//     (b) to an interface with a host endpoint: as 5(b), with FailsafeOutbound
//     and Outbound.
//     (c) to any other: accept.
//  7. Source NAT, in postrouting, of new connections that were accepted, not on lo:
//     (a) the source is one of a local endpoint's Addrs and the destination one
//     of its IntIPs: to the lowest ExtIP of that IntIP (hairpin).
//     (b) else the source is in Pools.Masquerade and the destination not in
//     Pools.All: masqueraded.
//     (c) else the host itself sends it by a tunnel's device, from an address that isn't that device's: it
//     gets the device's. Evaluate, which doesn't know the host's addresses, doesn't tell this.
//
// A connection that policy allowed when it began and has come to deny is cut:
// connection tracking forgets it. Where policy would accept what its answering
// side sends as the first packet of a connection, that flow is cut as well: in
// 4(d), 5 and 6 its packets are dropped where they are not established or
// related, before anything is asked but 6(a) about DHCP, until policy allows the connection again.
//
// Where a workload begins more connections than its Bound, the first packet of each is dropped that policy
// accepts in 4(e) and 5(a). Evaluate doesn't know how many there are: it takes them for few.
//
// Inbound and Outbound of an endpoint are asked like this: Policies in order, tier by
// tier, each rule in order. allow goes on to what comes next above, deny drops, log
// logs and goes on, next-tier goes on to the next tier. None of a tier decides: on to the
// next tier if it is one of Passing, else dropped. After the last tier: Profiles in order, of which
// next-tier ends one without a decision; none decides: dropped. ForwardInbound and ForwardOutbound are asked likewise, but
// that what no tier drops goes on. Rules that are
// Invalid or missing deny. A rule holds for one IP version as Rule.Family says.
// One that can't be expressed as it is (Rule.Reduced, or a set that isn't there)
// drops all that the rest of it matches.
func Evaluate(s Settings, st *State, p Packet) Result {
	e := evaluation{view: view{s, st}, p: p}
	e.r.Verdict = Drop
	if e.evaluate() {
		e.r.Verdict = Accept
		e.sourceNAT()
	}
	return e.r
}

// evaluation is of one packet.
type evaluation struct {
	view
	p Packet
	r Result
	// admitted: a policy before DNAT allowed it.
	admitted bool
}

func (e *evaluation) isTunnel() bool { return e.st.Tunnels.isTunnel(&e.p) }

// isClusterTunnel says whether it is a tunnel's whose other end is another host's.
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

// admit is step 1.
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

// foreign drops a packet that isn't from one of the endpoint's addresses.
func (e *evaluation) foreign(ep *Endpoint) bool {
	e.of(ep, model.Outbound, "source %s is not an address of the endpoint: drop", e.p.Src)
	return false
}

// fromNone drops a packet from a workload interface that no endpoint has.
func (e *evaluation) fromNone() bool {
	if !e.hasPrefix(e.p.In) {
		e.note("from interface %s, which is shut: drop", e.p.In)
		return false
	}
	e.note("from workload interface %s, which no endpoint has: drop", e.p.In)
	return false
}

// ownMAC is what 4(e) and 5(a) say of MAC addresses; false = dropped.
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

// isEnd says whether an endpoint is at an end of the connection that the packet is about.
func (e *evaluation) isEnd(ep *Endpoint) bool {
	return ep != nil && (slices.Contains(ep.Addrs, e.p.Ends[0]) || slices.Contains(ep.Addrs, e.p.Ends[1]))
}
