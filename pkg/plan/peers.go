// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// namedPeer is a peer by name that can be read.
type namedPeer struct {
	path string
	model.BGPPeer
	nodes, peers *selector.Selector
}

// peering is an explicit peer of this host at one address.
type peering struct {
	path string
	kind NeighbourKind
	peer model.BGPPeer // zero if it can't be read
}

// namedPeers returns the peers by name, sorted by it.
func (e *engine) namedPeers() []namedPeer {
	var all []namedPeer
	for _, name := range slices.Sorted(maps.Keys(e.named)) {
		o := e.objects.byKey[model.BGPPeerKey{Name: name}]
		p := valueOf[model.BGPPeer](o)
		nodes, bad := selector.Parse(p.NodeSelector)
		peers, worse := selector.Parse(p.PeerSelector)
		if o.value != nil && bad == nil && worse == nil {
			all = append(all, namedPeer{o.path, p, nodes, peers})
		}
	}
	return all
}

// kind is FromOwn for a peer of some hosts, else FromGlobal.
func (p *namedPeer) kind() NeighbourKind {
	if p.Host != "" || p.NodeSelector != "" {
		return FromOwn
	}
	return FromGlobal
}

// picks reports whether a selector picks a host.
func (e *engine) picks(s *selector.Selector, host string) bool {
	labels := valueOf[map[string]string](e.objects.byKey[model.HostMetadataKey{Host: host}])
	return s.Matches(func(name string) (string, bool) { v, ok := labels[name]; return v, ok })
}

// isOf reports whether a host has the peer.
func (p *namedPeer) isOf(e *engine, host string) bool {
	return host != "" && (p.Host == "" || p.Host == host) && e.picks(p.nodes, host)
}

// leadsTo reports whether the peer is at an address, that of a host or of none ("").
func (p *namedPeer) leadsTo(e *engine, a netip.Addr, host string) bool {
	if p.PeerSelector == "" {
		return p.IP == a
	}
	return host != "" && e.picks(p.peers, host)
}

// peerings returns the explicit peers of this host at an address. The first one counts: one of this host before one of
// all hosts, and last those of other hosts that this host peers back with.
func (v *view) peerings(e *engine, a netip.Addr) []peering {
	var all []peering
	keyed := func(kind NeighbourKind, host string) {
		if o, ok := e.objects.peer(model.BGPPeerKey{Host: host, IP: a}); ok {
			all = append(all, peering{o.path, kind, valueOf[model.BGPPeer](o)})
		}
	}
	name := v.hosts.at(a)
	named := func(kind NeighbourKind) {
		for _, p := range v.named {
			if p.kind() == kind && p.isOf(e, e.self) && p.leadsTo(e, a, name) {
				all = append(all, v.peering(e, p, kind, name))
			}
		}
	}
	keyed(FromOwn, e.self)
	named(FromOwn)
	keyed(FromGlobal, "")
	named(FromGlobal)
	for _, p := range v.named {
		if p.PeerSelector != "" && !p.OneWay && p.isOf(e, name) && e.picks(p.peers, e.self) {
			all = append(all, v.peering(e, p, FromBack, name))
		}
	}
	return all
}

// peering returns a named peer as one at the address of a host.
func (v *view) peering(e *engine, p namedPeer, kind NeighbourKind, host string) peering {
	if p.PeerSelector != "" {
		if p.AS = e.asOf(v.hosts.byName[host]); p.Options.TTLSecurity == 0 {
			p.EBGPMultihop = cmp.Or(p.EBGPMultihop, meshMultihop)
		}
	}
	return peering{p.path, kind, p.BGPPeer}
}

// use makes a neighbour that of an explicit peer. Without one of its filters, it is none: AS is 0.
func (n *Neighbour) use(e *engine, v *view, from peering) {
	p := from.peer
	n.Kind, n.AS, n.PasswordFile, n.Multihop, n.Options = from.kind, p.AS, p.PasswordFile, p.EBGPMultihop, p.Options
	if source := p.Options.Source; source != (model.PeerSource{}) {
		n.Local = source.Address // invalid means any
	}
	n.Import, n.Export = slices.Clone(p.Import), slices.Clone(p.Export)
	for _, name := range p.Filters {
		o := e.objects.byKey[model.BGPFilterKey{Name: name}]
		if o == nil || o.value == nil {
			v.report(noFilter, from.path, fmt.Sprintf("BGP filter %s does not exist, or can't be read, so the peer is not used: write the filter, or remove it from the peer", name))
			n.AS = 0
			return
		}
		f := valueOf[model.BGPFilter](o)
		in, out := f.ImportV4, f.ExportV4
		if n.Address.Is6() {
			in, out = f.ImportV6, f.ExportV6
		}
		n.Import, n.Export = append(n.Import, n.rules(in, v.speaker.AS)...), append(n.Export, n.rules(out, v.speaker.AS)...)
	}
}

// rules returns those that are for peers of the neighbour's type.
func (n *Neighbour) rules(list []model.RouteFilter, as model.ASNumber) (all []model.RouteFilter) {
	kind := model.ExternalPeer
	if n.isInternal(as) {
		kind = model.InternalPeer
	}
	for _, f := range list {
		if f.PeerType == "" || f.PeerType == kind {
			f.PeerType = ""
			all = append(all, f)
		}
	}
	return all
}

// isInternal reports whether the neighbour is of the AS that this host, of the given one, has in the session.
func (n *Neighbour) isInternal(as model.ASNumber) bool { return n.AS == cmp.Or(n.Options.LocalAS, as) }

// reportSame reports peers of the same kind as the one in use, n, if the session would be another one with them.
func (v *view) reportSame(e *engine, n Neighbour, all []peering) {
	for _, other := range all[1:] {
		o := Neighbour{Address: n.Address, Local: v.hosts.me()[familyOf(n.Address)], Host: n.Host, MaxPrefixes: n.MaxPrefixes}
		if o.use(e, v, other); other.kind == all[0].kind && other.kind != FromBack && !n.equal(o) {
			v.report(samePeer, other.path, fmt.Sprintf("the peers %s and %s, of other settings, both lead from host %s to %s: the first is used; delete one, or choose other nodes for it", all[0].path, other.path, e.self, n.Address))
		}
	}
}
