// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/calico-go/calico/pkg/model"

// hostSide is the host endpoint whose interface the packet passes on its way to
// or from the host itself, nil where there is none.
func (e *evaluation) hostSide() (*Endpoint, model.Direction) {
	switch {
	case e.p.Out == "" && !e.isWorkload(e.p.In):
		return e.host(e.p.In), model.Inbound
	case e.p.In == "" && !e.isWorkload(e.p.Out):
		return e.host(e.p.Out), model.Outbound
	}
	return nil, model.Inbound
}

// untracked is step 2; false = dropped.
func (e *evaluation) untracked(ep *Endpoint, d model.Direction) bool {
	ids, there, back := ep.UntrackedInbound, e.s.FailsafeInbound, e.s.FailsafeOutbound
	if d == model.Outbound {
		ids, there, back = ep.UntrackedOutbound, back, there
	}
	if len(ids) == 0 || e.isClusterTunnel(d) || e.p.isNeighbour(false) || e.hasPort(there, e.p.DstPort) || e.hasPort(back, e.p.SrcPort) {
		return true
	}
	for _, id := range ids {
		switch e.rules(ep, d, id, true) {
		case model.ActionAllow:
			e.r.Untracked = true
			return true
		case model.ActionDeny:
			return false
		case model.ActionNextTier:
			return true
		}
	}
	return true
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
	if e.hasPort(ports, e.p.DstPort) {
		e.of(ep, d, "fail-safe port %d: accept", e.p.DstPort)
		e.r.Failsafe = true
		return true
	}
	return e.asks(ep, d, verdicts)
}
