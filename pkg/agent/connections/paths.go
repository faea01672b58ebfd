// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// Routes finds the host's interfaces that lead to an address: hostnet.Lookup.
type Routes interface {
	// To returns the interfaces that lead to an address from one of the host's own, the zero Addr for any; "" stands for an address of the
	// host's own.
	To(to, from netip.Addr) ([]string, error)
	Close()
}

// elsewhere stands for an interface of the host's own that no endpoint names.
const elsewhere = "?"

// paths finds the interfaces between which a tracked connection runs.
type paths struct {
	board.Enforced
	workloads map[netip.Addr]string         // interfaces by address
	on        map[string][]*policy.Endpoint // workloads by interface
	anywhere  []*policy.Endpoint            // those of the host, and those with outer addresses
	host      bool                          // an endpoint may be on one of the host's own interfaces
	closable  []string                      // the host's own interfaces that an endpoint is on, and elsewhere if one is on all
	mine      map[netip.Addr]string         // interfaces by the host's own addresses
	routes    Routes
	asked     map[lookup][]string
}

// lookup asks for the route to an address from one of the host's, the zero Addr for any.
type lookup struct{ to, from netip.Addr }

func newPaths(now board.Enforced, routes Routes) *paths {
	p := &paths{Enforced: now, workloads: map[netip.Addr]string{}, on: map[string][]*policy.Endpoint{}, mine: map[netip.Addr]string{}, routes: routes, asked: map[lookup][]string{}}
	for _, i := range now.Interfaces {
		for _, a := range i.Addrs {
			p.mine[a] = i.Name
		}
	}
	for _, ep := range now.State.Endpoints {
		if ep.Path == policy.MetricsPath {
			continue // it has no interface
		}
		if ep.Wildcard {
			p.closable = append(p.closable, elsewhere)
		} else if !ep.Workload {
			p.closable = append(p.closable, ep.Interface)
		}
		if !ep.Workload || len(ep.NAT) > 0 {
			p.anywhere = append(p.anywhere, ep)
		}
		if !ep.Workload {
			p.host = true
			continue
		}
		named := model.IsWorkloadInterface(ep.Interface, now.Settings.Prefixes)
		p.host = p.host || ep.Dropped != "" && !named // the firewall closes its interface
		p.on[ep.Interface] = append(p.on[ep.Interface], ep)
		for _, a := range ep.Addrs {
			p.workloads[a] = ep.Interface
		}
	}
	return p
}

// packets returns the forms that the first packet of a connection may have: one for each pair of interfaces that can be open. There are
// none if policy doesn't concern it.
func (p *paths) packets(f nft.Flow, q query) []policy.Packet {
	_, from := p.workloads[f.Src]
	_, to := p.workloads[f.Dst]
	metrics := slices.Contains(p.Settings.MetricsPorts, policy.ProtoPort{Protocol: f.Protocol, Port: f.DstPort})
	if !from && !to && !p.host && !metrics {
		return nil
	}
	packet := policy.Packet{
		Src: f.Src, Dst: f.Dst, Protocol: f.Protocol, SrcPort: f.SrcPort, DstPort: f.DstPort, ICMPType: q.kind, ICMPCode: q.code,
		Called:     q.called,
		Translated: f.Dst.IsLoopback(), // what a workload itself sends there gets no connection
	}
	var out []policy.Packet
	ins, outs := p.between(f)
	for _, packet.In = range ins {
		for _, packet.Out = range outs {
			out = append(out, packet)
		}
	}
	return out
}

// between returns the interfaces that a flow may enter and leave by. A flow that has the host itself at one end takes the route from the
// host's address.
func (p *paths) between(f nft.Flow) (ins, outs []string) {
	host := []string{""}
	local := func(a netip.Addr) bool {
		if _, is := p.workloads[a]; is {
			return false
		}
		return slices.Equal(p.lookup(lookup{to: a}), host)
	}
	_, from := p.workloads[f.Src]
	_, to := p.workloads[f.Dst]
	switch {
	case from || to:
		return p.interfaces(f.Src), p.interfaces(f.Dst)
	case local(f.Dst):
		return p.arrives(f), host
	case local(f.Src):
		return host, p.lookup(lookup{f.Dst, f.Src})
	}
	return p.lookup(lookup{to: f.Src}), p.lookup(lookup{to: f.Dst})
}

// arrives returns the interfaces by which packets for an address of the host come: those that lead back, unless they lead to a tunnel and
// the address isn't the tunnel's. Other hosts send only packets for pods and tunnels into a tunnel: such packets come by the link with the
// address, while the answers to a pod leave by the tunnel.
func (p *paths) arrives(f nft.Flow) []string {
	back := p.lookup(lookup{f.Src, f.Dst})
	near := p.mine[f.Dst]
	switch {
	case near == "" || link.IsTunnelName(near) || !slices.ContainsFunc(back, link.IsTunnelName):
		return back
	case near == policy.Loopback:
		return p.unknown()
	}
	return []string{near}
}

func (p *paths) interfaces(a netip.Addr) []string {
	if name, is := p.workloads[a]; is {
		return []string{name}
	}
	return p.lookup(lookup{to: a})
}

// lookup returns the host's own interfaces that lead to an address, "" if it is the host's.
func (p *paths) lookup(l lookup) []string {
	if _, own := p.mine[l.to]; own {
		return []string{""}
	}
	names, known := p.asked[l]
	if !known {
		var err error
		if names, err = p.routes.To(l.to, l.from); err != nil {
			names = p.unknown()
		}
		p.asked[l] = names
	}
	return names
}

// unknown returns the interfaces of an address without a route: all that can be closed, as denied connections must not go on.
func (p *paths) unknown() []string {
	if len(p.closable) == 0 {
		return []string{elsewhere}
	}
	return p.closable
}
