// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// elsewhere is an interface that no host endpoint has by name.
const elsewhere = "?"

// places knows between which interfaces a tracked connection runs.
type places struct {
	workloads map[netip.Addr]string // interfaces by address
	host      bool                  // there are host endpoints: the host's own interfaces matter
	others    map[netip.Addr]string
	lookup    func(netip.Addr) (string, error)
}

func newPlaces(st *policy.State, lookup func(netip.Addr) (string, error)) *places {
	p := &places{workloads: map[netip.Addr]string{}, others: map[netip.Addr]string{}, lookup: lookup}
	for _, ep := range st.Endpoints {
		if !ep.Workload {
			p.host = true
			continue
		}
		for _, a := range ep.Addrs {
			p.workloads[a] = ep.Interface
		}
	}
	return p
}

// packet is the first packet of a connection, as policy saw it after its
// destination was translated, whoever did that. ok is false where policy has
// nothing to do with it.
func (p *places) packet(c kernel.Connection) (packet policy.Packet, ok bool) {
	_, from := p.workloads[c.Src]
	_, to := p.workloads[c.ReplySrc]
	if !from && !to && !p.host {
		return policy.Packet{}, false
	}
	packet = policy.Packet{
		In: p.interfaceOf(c.Src), Out: p.interfaceOf(c.ReplySrc), Src: c.Src, Dst: c.ReplySrc,
		Protocol: c.Protocol, SrcPort: c.SrcPort, DstPort: c.ReplySrcPort,
	}
	// What the tracker knows of ICMP are questions and their answers.
	switch c.Protocol {
	case model.ProtocolICMP:
		packet.ICMPType = 8
	case model.ProtocolICMPv6:
		packet.ICMPType = 128
	}
	return packet, true
}

// answer is a packet of the other direction as policy would see it if the tracker
// didn't know the connection. begins is false where it could begin none: the
// tracker calls an answer of ICMP that nobody asked for invalid.
func (p *places) answer(c kernel.Connection) (packet policy.Packet, begins bool) {
	if c.Protocol == model.ProtocolICMP || c.Protocol == model.ProtocolICMPv6 {
		return policy.Packet{}, false
	}
	return policy.Packet{
		In: p.interfaceOf(c.ReplySrc), Out: p.interfaceOf(c.ReplyDst), Src: c.ReplySrc, Dst: c.ReplyDst,
		Protocol: c.Protocol, SrcPort: c.ReplySrcPort, DstPort: c.ReplyDstPort,
	}, true
}

func (p *places) interfaceOf(a netip.Addr) string {
	if name, is := p.workloads[a]; is {
		return name
	}
	return p.other(a)
}

// other is the host's own interface that leads to an address, "" where that is
// the host's.
func (p *places) other(a netip.Addr) string {
	name, known := p.others[a]
	if !known {
		var err error
		if name, err = p.lookup(a); err != nil {
			name = elsewhere
		}
		p.others[a] = name
	}
	return name
}
