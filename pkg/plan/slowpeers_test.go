// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// slowPeer is an explicit peer at one address.
type slowPeer struct {
	path string
	peer model.BGPPeer
	kind NeighbourKind
}

// named are the peers by name, by path.
func (s *slow) named() (all []model.Entry) {
	for _, path := range slices.Sorted(maps.Keys(s.entries)) {
		k, _ := s.entries[path].Key.(model.BGPPeerKey)
		if p, ok := s.entries[path].Value.(model.BGPPeer); ok && k.Name != "" && p.AS|model.ASNumber(len(p.PeerSelector)) != 0 {
			all = append(all, s.entries[path])
		}
	}
	return all
}

func (s *slow) selects(text, host string) bool {
	m, _ := s.objects[model.HostMetadataKey{Host: host}].Value.(model.HostMetadata)
	sel, err := selector.Parse(text)
	return err == nil && host != "" && sel.Matches(func(name string) (string, bool) { v, ok := m.Labels[name]; return v, ok })
}

func (s *slow) hasPeer(p model.BGPPeer, host string) bool {
	return s.selects(p.NodeSelector, host) && (p.Host == "" || p.Host == host)
}

// explicitAt lists the explicit peers at the address of a host, the one in use first.
func (s *slow) explicitAt(a netip.Addr, name string) (all []slowPeer) {
	for _, kind := range []NeighbourKind{FromOwn, FromGlobal, FromBack} {
		host := map[NeighbourKind]string{FromOwn: s.self}[kind]
		if entry, ok := s.explicit(host, a); ok && kind != FromBack {
			p, _ := entry.Value.(model.BGPPeer)
			all = append(all, slowPeer{entry.Path, p, kind})
		}
		for _, entry := range s.named() {
			p := entry.Value.(model.BGPPeer)
			ahead := p.PeerSelector == "" && p.IP == a || p.PeerSelector != "" && s.selects(p.PeerSelector, name)
			some := p.Host != "" || p.NodeSelector != ""
			suits := s.hasPeer(p, s.self) && ahead && some == (kind == FromOwn)
			if kind == FromBack {
				suits = p.PeerSelector != "" && !p.OneWay && s.selects(p.PeerSelector, s.self) && s.hasPeer(p, name)
			}
			if p.PeerSelector != "" {
				p.AS = s.as(name)
				if p.EBGPMultihop == 0 && p.Options.TTLSecurity == 0 {
					p.EBGPMultihop = 255
				}
			}
			if suits {
				all = append(all, slowPeer{entry.Path, p, kind})
			}
		}
	}
	return all
}

// session is what an explicit peer makes of a neighbour.
func (s *slow) session(n Neighbour, from slowPeer) Neighbour {
	p := from.peer
	n.Kind, n.AS, n.PasswordFile, n.Multihop, n.Options = from.kind, p.AS, p.PasswordFile, p.EBGPMultihop, p.Options
	n.Import, n.Export = slices.Clone(p.Import), slices.Clone(p.Export)
	switch {
	case p.Options.Source.Any:
		n.Local = netip.Addr{}
	case p.Options.Source.Address.IsValid():
		n.Local = p.Options.Source.Address
	}
	for _, name := range p.Filters {
		f, ok := s.objects[model.BGPFilterKey{Name: name}].Value.(model.BGPFilter)
		if !ok {
			s.problem(noFilter, from.path)
			n.AS = 0
			return n
		}
		lists := [][]model.RouteFilter{f.ImportV4, f.ExportV4}
		if n.Address.Is6() {
			lists = [][]model.RouteFilter{f.ImportV6, f.ExportV6}
		}
		for i, to := range []*[]model.RouteFilter{&n.Import, &n.Export} {
			for _, rule := range lists[i] {
				us := s.st.Speaker.AS
				if p.Options.LocalAS != 0 {
					us = p.Options.LocalAS
				}
				if rule.PeerType == "" || (rule.PeerType == model.InternalPeer) == (us == n.AS) {
					rule.PeerType = ""
					*to = append(*to, rule)
				}
			}
		}
	}
	return n
}

// sameAs reports each of the others that makes another session.
func (s *slow) sameAs(n Neighbour, all []slowPeer) {
	first := s.session(n, all[0])
	for _, other := range all[1:] {
		o := s.session(n, other)
		o.Import, o.Export = slices.Clip(o.Import), slices.Clip(o.Export)
		if other.kind == all[0].kind && other.kind != FromBack && !reflect.DeepEqual(first, o) {
			s.problem(samePeer, other.path)
		}
	}
}
