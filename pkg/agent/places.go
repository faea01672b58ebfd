// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// elsewhere is an interface of the host's own that no endpoint has by name.
const elsewhere = "?"

// places knows between which interfaces a tracked connection runs.
type places struct {
	state     *policy.State
	workloads map[netip.Addr]string         // interfaces by address
	on        map[string][]*policy.Endpoint // workloads by interface
	anywhere  []*policy.Endpoint            // those of the host, and those with outer addresses
	host      bool                          // there are host endpoints, or such as are shut: the host's own interfaces matter
	closable  []string                      // the host's own interfaces that an endpoint may be on
	others    map[way][]string
	ways      ways
	own       []policy.Interface // the host's
	mine      map[netip.Addr]struct{}
}

// way is from the host's address, the zero Addr for any, to another.
type way struct{ to, from netip.Addr }

// ways finds the host's interfaces that lead to an address: see hostnet.Ways.
type ways interface {
	To(to, from netip.Addr) ([]string, error)
	Close()
}

func newPlaces(st *policy.State, prefixes []string, own []policy.Interface, ways ways) *places {
	p := &places{state: st, workloads: map[netip.Addr]string{}, on: map[string][]*policy.Endpoint{}, others: map[way][]string{}, ways: ways, own: own, mine: map[netip.Addr]struct{}{}}
	for _, i := range own {
		for _, a := range i.Addrs {
			p.mine[a] = struct{}{}
		}
	}
	for _, ep := range st.Endpoints {
		if !ep.Workload && !ep.Wildcard {
			p.closable = append(p.closable, ep.Interface)
		}
		if !ep.Workload || len(ep.NAT) > 0 {
			p.anywhere = append(p.anywhere, ep)
		}
		if !ep.Workload {
			p.host = true
			continue
		}
		p.host = p.host || ep.Dropped != "" && params.BeginningOf(ep.Interface, prefixes) == "" // it is shut
		p.on[ep.Interface] = append(p.on[ep.Interface], ep)
		for _, a := range ep.Addrs {
			p.workloads[a] = ep.Interface
		}
	}
	return p
}

// began is the direction in which a connection began, as policy saw it after its
// destination was translated, whoever did that.
func began(c conntrack.Connection) nft.Flow {
	f := nft.Flow{Protocol: c.Protocol, Src: c.Src, Dst: c.ReplySrc}
	if c.Protocol.HasPorts() {
		f.SrcPort, f.DstPort = c.SrcPort, c.ReplySrcPort
	}
	return f
}

// answers is the other direction. Whatever the addresses on the wire, what comes
// so is what the tracker would have to see first to take the packets of f for answers.
func answers(f nft.Flow) nft.Flow {
	return nft.Flow{Protocol: f.Protocol, Src: f.Dst, Dst: f.Src, SrcPort: f.DstPort, DstPort: f.SrcPort}
}

// query is what ICMP asks by the first packet of what the tracker takes for a connection.
type query struct{ kind, code uint8 }

func queryOf(c conntrack.Connection) query { return query{c.ICMPType, c.ICMPCode} }

// packets are what the first packet of a connection may be: where it runs can be
// open. They are none where policy has nothing to do with it.
func (p *places) packets(f nft.Flow, q query) []policy.Packet {
	_, from := p.workloads[f.Src]
	_, to := p.workloads[f.Dst]
	if !from && !to && !p.host {
		return nil
	}
	packet := policy.Packet{
		Src: f.Src, Dst: f.Dst, Protocol: f.Protocol, SrcPort: f.SrcPort, DstPort: f.DstPort, ICMPType: q.kind, ICMPCode: q.code,
		Translated: f.Dst.IsLoopback(), // what a workload sends there as it is gets no connection
	}
	var out []policy.Packet
	add := func(in, to string) {
		packet.In, packet.Out = in, to
		out = append(out, packet)
	}
	if !from && !to && (f.Src.IsLinkLocalUnicast() || f.Dst.IsLinkLocalUnicast()) && f.Src.Is6() {
		for _, way := range p.onLink(f) {
			add(way[0], way[1])
		}
		return out
	}
	ins, outs := p.routed(f)
	for _, in := range ins {
		for _, to := range outs {
			add(in, to)
		}
	}
	return out
}

// routed are the interfaces by which a flow may come, and go. What the host itself
// has one end of goes by the way from that address of it.
func (p *places) routed(f nft.Flow) (ins, outs []string) {
	_, from := p.workloads[f.Src]
	_, to := p.workloads[f.Dst]
	host := []string{""}
	switch {
	case from || to:
	case p.isMine(f.Dst):
		return p.arrives(f), host
	case p.isMine(f.Src):
		return host, p.other(way{f.Dst, f.Src})
	case slices.Equal(p.other(way{to: f.Dst}), host): // by a route alone
		return p.other(way{f.Src, f.Dst}), host
	case slices.Equal(p.other(way{to: f.Src}), host):
		return host, p.other(way{f.Dst, f.Src})
	}
	return p.interfacesOf(f.Src), p.interfacesOf(f.Dst)
}

// arrives are the interfaces by which comes what is for an address of the host: those that
// lead back, but where that is a tunnel and the address isn't the tunnel's. Others send into
// it what is for pods and tunnels alone, so that comes by the link that has the address, and
// the answers to a pod go by the tunnel.
func (p *places) arrives(f nft.Flow) []string {
	back := p.other(way{f.Src, f.Dst})
	near := slices.DeleteFunc(p.with(f.Dst), func(name string) bool { return name == policy.Loopback })
	if slices.ContainsFunc(near, link.IsTunnelName) || !slices.ContainsFunc(back, link.IsTunnelName) {
		return back
	}
	if len(near) == 0 {
		return p.unknown()
	}
	return near
}

func (p *places) isMine(a netip.Addr) bool {
	_, is := p.mine[a]
	return is
}

// onLink are the ways, from interface to interface, of what is not forwarded: a
// link-local address of IPv6 says nothing of where it is, and the tracker neither,
// unless it is the host's own on one interface.
func (p *places) onLink(f nft.Flow) [][2]string {
	src, dst := p.with(f.Src), p.with(f.Dst)
	if len(src) > 0 && len(dst) > 0 {
		return [][2]string{{"", ""}}
	}
	near, names := f.Src, src
	if len(src) == 0 {
		near, names = f.Dst, dst
	}
	if !near.IsLinkLocalUnicast() || len(names) == 0 {
		names = nil
		for _, i := range p.own {
			names = append(names, i.Name)
		}
	}
	var out [][2]string
	for _, name := range names {
		if len(src) > 0 {
			out = append(out, [2]string{"", name})
		} else {
			out = append(out, [2]string{name, ""})
		}
	}
	return out
}

// with are the host's interfaces that have an address.
func (p *places) with(a netip.Addr) (names []string) {
	for _, i := range p.own {
		if slices.Contains(i.Addrs, a) {
			names = append(names, i.Name)
		}
	}
	return names
}

// denies says whether policy denies what begins a connection, wherever it may run.
func (p *places) denies(s policy.Settings, f nft.Flow, q query) bool {
	packets := p.packets(f, q)
	for _, packet := range packets {
		if p.evaluate(s, packet).Verdict != policy.Drop {
			return false
		}
	}
	return len(packets) > 0
}

// failsafe says whether a fail-safe port lets pass what begins a connection.
func (p *places) failsafe(s policy.Settings, f nft.Flow) bool {
	return slices.ContainsFunc(p.packets(f, query{}), func(packet policy.Packet) bool { return p.evaluate(s, packet).Failsafe })
}

// evaluate judges what begins a connection. Evaluate looks through all endpoints
// that it is given: it gets those that the packet can concern.
func (p *places) evaluate(s policy.Settings, packet policy.Packet) policy.Result {
	part := *p.state
	part.Endpoints = map[string]*policy.Endpoint{}
	for _, list := range [...][]*policy.Endpoint{p.anywhere, p.on[packet.In], p.on[packet.Out]} {
		for _, ep := range list {
			part.Endpoints[ep.Path] = ep
		}
	}
	return policy.Evaluate(s, &part, packet)
}

func (p *places) interfacesOf(a netip.Addr) []string {
	if name, is := p.workloads[a]; is {
		return []string{name}
	}
	return p.other(way{to: a})
}

// unknown are the interfaces where nobody knows: all count that can be closed, as what is
// denied must not go on.
func (p *places) unknown() []string {
	if len(p.closable) == 0 {
		return []string{elsewhere}
	}
	return p.closable
}

// other are the host's own interfaces that lead to an address, "" where that is
// the host's.
func (p *places) other(w way) []string {
	if p.isMine(w.to) {
		return []string{""}
	}
	names, known := p.others[w]
	if !known {
		var err error
		if names, err = p.ways.To(w.to, w.from); err != nil {
			names = p.unknown()
		}
		p.others[w] = names
	}
	return names
}
