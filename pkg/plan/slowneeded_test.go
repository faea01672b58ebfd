// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// hitHosts reports whether hosts' own addresses, or of what they need, would be led astray.
func (s *slow) hitHosts(p netip.Prefix) bool {
	for _, name := range s.names {
		for f := range 2 {
			if a, _ := s.claimed(name, f); p.Contains(a) {
				return true
			}
		}
	}
	for a, byRoutes := range s.etcd {
		if p.Contains(a) && (!byRoutes || len(s.ends(a)) == 0) {
			return true
		}
	}
	for key := range s.objects {
		if k, ok := key.(model.BGPPeerKey); ok && k.Name == "" && (k.Host == "" || k.Host == s.self) && p.Contains(k.IP) && len(s.ends(k.IP)) == 0 {
			return true
		}
	}
	return slices.ContainsFunc(s.named(), func(e model.Entry) bool {
		peer := e.Value.(model.BGPPeer)
		return p.Contains(peer.IP) && len(s.ends(peer.IP)) == 0 && s.hasPeer(peer, s.self)
	})
}

// hit reports whether these or hosts' subnets would be.
func (s *slow) hit(p netip.Prefix) bool {
	if s.hitHosts(p) {
		return true
	}
	for _, l := range s.uplinks() {
		for _, subnet := range l.Addrs {
			if p.Contains(subnet.Addr()) || within(p, subnet.Masked()) {
				return true
			}
		}
	}
	return false
}

// astray reports whether what comes from a host, "" = from none, by a next hop leads elsewhere
// than to the holder.
func (s *slow) astray(holder string, hop netip.Addr, from string) bool {
	var all []string
	for _, name := range s.names {
		for f := range 2 {
			if a, _ := s.claimed(name, f); a == hop && a.IsValid() {
				all = append(all, name)
			}
		}
	}
	if len(all) == 0 && from != "" {
		all = []string{from}
	}
	return holder != "" && len(all) > 0 && !slices.Contains(all, holder)
}

func (s *slow) strange(p netip.Prefix) bool {
	for _, r := range s.links.Routes {
		if r.Destination == p {
			return true
		}
	}
	for _, l := range s.links.Links {
		for _, subnet := range l.Addrs {
			if l.Up && subnet.Masked() == p && !p.IsSingleIP() {
				return true
			}
		}
	}
	for _, l := range s.uplinks() {
		for _, subnet := range l.Addrs {
			if within(p, subnet.Masked()) {
				return true
			}
		}
	}
	a := p.Addr()
	if byRoutes, ok := s.etcd[a]; p.IsSingleIP() && ok && (!byRoutes || len(s.ends(a)) == 0) {
		return true
	}
	for _, name := range s.names {
		for f := range 2 {
			if c, _ := s.claimed(name, f); p.IsSingleIP() && c == a {
				return true
			}
		}
	}
	return a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.Is4() && a.As4()[0] >= 224 && p.Bits() > 2
}
