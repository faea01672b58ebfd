// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// meshMultihop lets eBGP sessions of the mesh cross routers: hosts may be in different racks.
const meshMultihop = 255

// setSpeaker determines how this host speaks BGP.
func (v *view) setSpeaker(e *engine) {
	me := v.hosts.byName[e.self]
	s := Speaker{
		Listen: e.settings.Listen, ListenPort: e.settings.ListenPort, HoldTime: e.settings.HoldTime,
		KeepaliveTime: e.settings.KeepaliveTime, RestartTime: e.settings.RestartTime, ClusterID: me.cluster,
		Communities: e.settings.Communities,
	}
	if me.mine[0].IsValid() || me.mine[1].IsValid() {
		s.AS = e.asOf(me)
	}
	// A router ID in use is kept: it need not be an address, and changing it ends all sessions. But no two hosts may
	// have the same (RFC 6286), and a host that starts with the address takes it.
	inUse := e.settings.RouterID
	holder := v.hosts.at(inUse)
	switch {
	case inUse.IsValid() && (holder == "" || holder == e.self):
		s.RouterID = inUse
	case me.mine[0].IsValid():
		s.RouterID = me.mine[0]
	default:
		s.RouterID = routerID(e.self)
	}
	var open []netip.Prefix
	for p, pool := range v.pools.all {
		if pool.tunnel == "" {
			open = append(open, p)
		}
	}
	slices.SortFunc(open, comparePrefixes)
	for _, p := range open {
		if n := len(s.Import); n == 0 || !s.Import[n-1].Overlaps(p) {
			s.Import = append(s.Import, p)
		}
	}
	v.speaker = s
}

// routerID returns the router ID of a host without IPv4: any 32 bits that no other host has are fine (RFC 6286).
func routerID(host string) netip.Addr {
	sum := sha256.Sum256([]byte("router " + host))
	sum[0] = sum[0]%223 + 1
	return netip.AddrFrom4([4]byte(sum[:4]))
}

// asOf returns a host's AS number. One that can't be read counts as not set: if instead it meant none, a typo in the
// number for all hosts would end all sessions between them.
func (e *engine) asOf(h host) model.ASNumber {
	return cmp.Or(h.as, valueOf[model.ASNumber](e.objects.byKey[model.BGPGlobalASKey{}]), defaultAS)
}

// isPeer reports whether this host has an explicit peer with this address, other than by a peer selector.
func (v *view) isPeer(e *engine, a netip.Addr) bool {
	hosts := e.peers[a]
	_, own := hosts[e.self]
	_, all := hosts[""]
	return own || all || slices.ContainsFunc(v.named, func(p namedPeer) bool { return p.IP == a && p.isOf(e, e.self) })
}

// setNeighbours determines the sessions with other hosts and peers.
func (v *view) setNeighbours(e *engine) {
	addrs := slices.AppendSeq(slices.Collect(maps.Keys(e.peers)), maps.Keys(v.hosts.claims))
	for _, p := range v.named {
		if p.IP.IsValid() {
			addrs = append(addrs, p.IP)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, a := range slices.Compact(addrs) {
		v.addNeighbour(e, a)
	}
}

func (v *view) addNeighbour(e *engine, a netip.Addr) {
	if n, ok := v.neighbour(e, a); ok {
		v.neighbours[a] = n
		v.sessions[familyOf(a)]++
	}
}

// neighbour returns the session with an address, if there is one. An explicit peer takes precedence over the mesh, and
// one of this host over one of all hosts. One that cannot be read makes no session, so that none runs without its
// filters.
func (v *view) neighbour(e *engine, a netip.Addr) (Neighbour, bool) {
	me, local := v.hosts.byName[e.self], v.hosts.me()[familyOf(a)]
	if v.isSelf(a) {
		if own, ok := e.objects.peer(model.BGPPeerKey{Host: e.self, IP: a}); ok {
			v.report(selfPeer, own.path, fmt.Sprintf("peer %s of host %s is that host itself, so there is no session: delete it", a, e.self))
		}
		return Neighbour{}, false
	}
	if v.speaker.AS == 0 || !local.IsValid() {
		return Neighbour{}, false
	}
	name := v.hosts.at(a)
	other := v.hosts.byName[name]
	n := Neighbour{Address: a, Local: local, Host: name, MaxPrefixes: e.settings.MaxPrefixes}
	file, named := "", false
	if me.cluster.IsValid() {
		file, named = v.namedBy(e, name, local)
	}
	switch explicit := v.peerings(e, a); {
	case len(explicit) > 0:
		n.use(e, v, explicit[0])
		v.reportSame(e, n, explicit)
	case name == "":
		return Neighbour{}, false
	case named:
		n.Kind, n.AS, n.Multihop, n.PasswordFile = FromReflects, e.asOf(other), meshMultihop, file
	case e.objects.mesh():
		n.Kind, n.AS, n.Multihop = FromMesh, e.asOf(other), meshMultihop
	}
	if n.isInternal(v.speaker.AS) {
		n.Multihop = 0 // iBGP allows any number of hops
		n.Reflector = me.cluster.IsValid() && other.cluster.IsValid()
		n.Client = me.cluster.IsValid() && n.Kind != FromMesh && !n.Reflector
	}
	return n, n.AS != 0
}

// namedBy reports whether another host has an explicit peer with our address local, and returns the file with its password:
// both ends sign with it. Its own peer comes before one of all hosts, and peers by name last.
func (v *view) namedBy(e *engine, name string, local netip.Addr) (file string, ok bool) {
	for _, host := range []string{name, ""} {
		if o, ok := e.objects.peer(model.BGPPeerKey{Host: host, IP: local}); ok {
			return valueOf[model.BGPPeer](o).PasswordFile, true
		}
	}
	for _, p := range v.named {
		if p.IP == local && p.isOf(e, name) {
			return p.PasswordFile, true
		}
	}
	return "", false
}

// takes reports whether a neighbour may send a prefix. A filter with conditions that only BGP knows may accept it.
func (n *Neighbour) takes(p netip.Prefix, imports []netip.Prefix) bool {
	if p.Addr().Is4() != n.Address.Is4() {
		return false
	}
	for _, f := range n.Import {
		if accept, knows := f.Action == "accept", f.Community == "" && f.ASPath == ""; f.Matches(p) && (accept || knows) {
			return accept
		}
	}
	return slices.ContainsFunc(imports, func(outer netip.Prefix) bool { return within(p, outer) })
}

func (s Speaker) equal(o Speaker) bool {
	return s.AS == o.AS && s.RouterID == o.RouterID && slices.Equal(s.Listen, o.Listen) && s.ListenPort == o.ListenPort &&
		s.HoldTime == o.HoldTime && s.KeepaliveTime == o.KeepaliveTime && s.RestartTime == o.RestartTime &&
		s.ClusterID == o.ClusterID && slices.Equal(s.Import, o.Import) && slices.Equal(s.Communities, o.Communities)
}

func (n Neighbour) equal(o Neighbour) bool {
	return n.Address == o.Address && n.AS == o.AS && n.Local == o.Local && n.Kind == o.Kind && n.Host == o.Host &&
		n.PasswordFile == o.PasswordFile && n.Multihop == o.Multihop && n.Options == o.Options && n.Client == o.Client && n.Reflector == o.Reflector &&
		slices.Equal(n.Import, o.Import) && slices.Equal(n.Export, o.Export) && n.MaxPrefixes == o.MaxPrefixes
}
