// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/calico-go/calico/pkg/model"

// hostSide returns the host endpoint whose interface the packet passes on its way to or from the host itself, or nil.
func (e *evaluation) hostSide() (*Endpoint, model.Direction) {
	switch {
	case e.p.Out == "" && !e.isWorkload(e.p.In):
		return e.host(e.p.In), model.Inbound
	case e.p.In == "" && !e.isWorkload(e.p.Out):
		return e.host(e.p.Out), model.Outbound
	}
	return nil, model.Inbound
}

// untracked is step 2. It returns false for a dropped packet.
func (e *evaluation) untracked(ep *Endpoint, d model.Direction) bool {
	ids, there, back := ep.UntrackedInbound, e.s.FailsafeInbound, e.s.FailsafeOutbound
	if d == model.Outbound {
		ids, there, back = ep.UntrackedOutbound, back, there
	}
	if len(ids) == 0 || e.isClusterTunnel(d) || e.p.isNeighbour(false) || e.hasPort(there, e.p.DstPort) || e.hasPort(back, e.p.SrcPort) {
		return true
	}
	for _, tier := range ByTier(ids) {
		switch e.tier(ep, d, tier, true) {
		case model.ActionAllow:
			e.r.Untracked = true
			return true
		case model.ActionDeny:
			return false
		}
	}
	return true
}

// preDNAT is what comes before step 3. It returns false for a dropped packet.
func (e *evaluation) preDNAT() bool {
	if isHost(e.p.In) || e.isWorkload(e.p.In) || e.r.Untracked || e.p.Conn == ConnEstablished || e.p.Conn == ConnRelated {
		return true
	}
	translated := e.p
	if e.p.Called.IsValid() {
		e.p.Dst, e.p.DstPort = e.p.Called.Addr(), e.p.Called.Port()
	}
	defer func() { e.p = translated }()
	if e.isClusterTunnel(model.Inbound) || e.p.isNeighbour(false) || e.hasPort(e.s.FailsafeInbound, e.p.DstPort) {
		return true
	}
	ep := e.host(e.p.In)
	if ep == nil {
		return true
	}
	for _, tier := range ByTier(ep.PreDNAT) {
		switch e.tier(ep, model.Inbound, tier, false) {
		case model.ActionAllow:
			e.admitted = true
			return true
		case model.ActionDeny:
			return false
		}
	}
	return true
}

// anyForwards reports whether any host endpoint applies to forwarded packets.
func (e *evaluation) anyForwards() bool {
	return e.find(func(ep *Endpoint) bool { return !ep.Workload && ep.Dropped == "" && ep.Forwards() }) != nil
}

// forwarded applies the host endpoint of an interface to a forwarded packet. It returns false for a dropped packet.
func (e *evaluation) forwarded(name string, d model.Direction) bool {
	ep := e.host(name)
	if ep == nil {
		return true
	}
	v := ep.ForwardInbound
	if d == model.Outbound {
		v = ep.ForwardOutbound
	}
	allowed, decided := e.policies(ep, d, v)
	return allowed || !decided
}

// hostEndpoint is steps 5(b), 5(c), 6(b) and 6(c).
func (e *evaluation) hostEndpoint(ep *Endpoint, d model.Direction) bool {
	if ep == nil {
		e.note("no host endpoint there: accept")
		return true
	}
	verdicts, ports := ep.Inbound, e.s.FailsafeInbound
	if d == model.Outbound {
		verdicts, ports = ep.Outbound, e.s.FailsafeOutbound
	}
	switch {
	case e.isClusterTunnel(d):
		e.of(ep, d, "a tunnel between hosts of the cluster: accept")
		return true
	case e.r.Untracked:
		return true
	case e.p.isNeighbour(false):
		e.of(ep, d, "neighbour discovery: accept")
		return true
	}
	if accepted, decided := e.tracked(); decided {
		return accepted
	}
	if e.admitted && d == model.Inbound {
		e.of(ep, d, "allowed by a policy before DNAT: accept")
		return true
	}
	if e.hasPort(ports, e.p.DstPort) {
		e.of(ep, d, "fail-safe port %d: accept", e.p.DstPort)
		e.r.Failsafe = true
		return true
	}
	return e.asks(ep, d, verdicts)
}
