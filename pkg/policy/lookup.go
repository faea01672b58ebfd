// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

func (ep *Endpoint) enforcedWorkload() bool {
	return ep.Workload && ep.Interface != "" && ep.Dropped == ""
}

// isWorkload knows the settings' prefixes, and what is shut.
func (e *evaluation) isWorkload(name string) bool {
	return e.hasPrefix(name) || name != "" && name != Loopback && e.isClosed(name)
}

func (e *evaluation) hasPrefix(name string) bool {
	return name != "" && slices.ContainsFunc(e.s.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// workload is the endpoint of a workload interface, nil where none is active.
func (e *evaluation) workload(name string) *Endpoint {
	return e.find(func(ep *Endpoint) bool { return ep.enforcedWorkload() && ep.Interface == name })
}

// isClosed: a workload interface has an endpoint that is Dropped.
func (e *evaluation) isClosed(name string) bool {
	return e.find(func(ep *Endpoint) bool { return ep.Workload && ep.Interface == name && ep.Dropped != "" }) != nil
}

func (e *evaluation) host(name string) *Endpoint {
	return e.find(func(ep *Endpoint) bool {
		return !ep.Workload && ep.Dropped == "" && !ep.Wildcard && ep.Interface == name
	})
}

func (e *evaluation) wildcard() *Endpoint {
	return e.find(func(ep *Endpoint) bool { return !ep.Workload && ep.Dropped == "" && ep.Wildcard })
}

// find is the endpoint of the lowest path that is wanted.
func (e *evaluation) find(wanted func(*Endpoint) bool) *Endpoint {
	var found *Endpoint
	for _, ep := range e.st.Endpoints {
		if wanted(ep) && (found == nil || ep.Path < found.Path) {
			found = ep
		}
	}
	return found
}

// isHost reports whether In or Out is the host itself.
func isHost(name string) bool { return name == "" || name == Loopback }

func (e *evaluation) isTunnel() bool {
	t, p := &e.st.Tunnels, &e.p
	return t.VXLANPort != 0 && p.Protocol == model.ProtocolUDP && p.DstPort == t.VXLANPort || t.IPIP && p.Protocol == protocolIPIP && p.Src.Is4()
}

const protocolIPIP model.Protocol = 4 // IP in IP, RFC 2003

// isClusterTunnel: it is a tunnel's, and its other end is another host's.
func (e *evaluation) isClusterTunnel(d model.Direction) bool {
	if d == model.Outbound {
		return e.isTunnel() && e.isOtherHost(e.p.Dst)
	}
	return e.isTunnel() && e.isOtherHost(e.p.Src)
}

func (e *evaluation) isOtherHost(a netip.Addr) bool {
	return slices.ContainsFunc(e.st.Tunnels.Hosts, func(h netip.Addr) bool { return h.Unmap().WithZone("") == a })
}

func (e *evaluation) isDHCP() bool {
	return e.isUDP4(68, 67) || !e.p.Src.Is4() && e.p.Protocol == model.ProtocolUDP && e.p.SrcPort == 546 && e.p.DstPort == 547
}

// isUDP4: it is UDP over IPv4 between these ports.
func (e *evaluation) isUDP4(from, to uint16) bool {
	p := &e.p
	return p.Protocol == model.ProtocolUDP && p.Src.Is4() && p.SrcPort == from && p.DstPort == to
}

// isNeighbour knows neighbour discovery and MLD. A workload is no router.
func (e *evaluation) isNeighbour(workload bool) bool {
	p := &e.p
	if p.Protocol != model.ProtocolICMPv6 || p.Src.Is4() {
		return false
	}
	return p.ICMPType >= 130 && p.ICMPType <= 136 && (p.ICMPType != 134 || !workload) || p.ICMPType == 143
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
