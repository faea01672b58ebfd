// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// meshMultihop lets eBGP sessions of the mesh cross routers: hosts may be in
// racks of their own.
const meshMultihop = 255

// flushNeighbours works out what there is one of for an address of another host
// or a peer: neighbours, remotes, who may use tunnels.
func (e *Engine) flushNeighbours() {
	work := e.dirty.peers
	if e.dirty.neighbours {
		for a := range e.told.Neighbours {
			work[a] = struct{}{}
		}
		for a := range e.claims {
			work[a] = struct{}{}
		}
		for a := range e.peers {
			work[a] = struct{}{}
		}
	}
	delete(work, netip.Addr{})
	for a := range work {
		e.flushAddr(a)
	}
}

func (e *Engine) flushAddr(a netip.Addr) {
	name := e.hostAt(a)
	if name == e.self {
		name = ""
	}
	if name == e.told.Hosts[a] {
		delete(e.out.Hosts, a)
	} else {
		e.out.Hosts[a] = name
	}
	for _, t := range tunnelTypes() {
		var r *Remote
		if _, on := e.tunnels[t.kind]; on && t.kind != IPIP && familyOf(a) == t.family && name != "" && e.hosts[name].alive {
			r = remote(t.kind, name, a)
		}
		tell(e.out.Remotes, e.told.Remotes, RemoteID{t.kind, a}, r)
	}
	before, was := e.neighbourNow(a)
	n := e.neighbour(a, name)
	tellBy(e.out.Neighbours, e.told.Neighbours, a, n, Neighbour.equal)
	if (n != nil) != was {
		e.dirty.awaited = true
		if was {
			e.sessions[familyOf(a)]--
		} else {
			e.sessions[familyOf(a)]++
		}
	}
	if (n != nil) != was || n != nil && (n.Kind != before.Kind || n.Host != before.Host || !slices.Equal(n.Import, before.Import)) {
		for p := range e.byPeer[a] {
			e.touch(p)
		}
	}
}

// neighbourNow is the neighbour at an address as it was last worked out.
func (e *Engine) neighbourNow(a netip.Addr) (Neighbour, bool) {
	if n, changed := e.out.Neighbours[a]; changed {
		if n == nil {
			return Neighbour{}, false
		}
		return *n, true
	}
	n, ok := e.told.Neighbours[a]
	return n, ok
}

func (n Neighbour) equal(o Neighbour) bool {
	return n.Address == o.Address && n.AS == o.AS && n.Local == o.Local && n.Kind == o.Kind && n.Host == o.Host &&
		n.PasswordFile == o.PasswordFile && n.Multihop == o.Multihop && n.Client == o.Client && n.Reflector == o.Reflector &&
		slices.Equal(n.Import, o.Import) && slices.Equal(n.Export, o.Export) && n.MaxPrefixes == o.MaxPrefixes
}

// neighbour works out the session with an address, which is that of the host of
// that name, "" = of none. An explicit peer comes before what the mesh says, one
// of this host before one of all; one that cannot be read is none, so that no
// session does without its filters.
func (e *Engine) neighbour(a netip.Addr, name string) *Neighbour {
	own, isOwn := e.peerAt(e.self, a)
	global, isGlobal := e.peerAt("", a)
	e.reportSelfPeer(a, own)
	me := e.hosts[e.self]
	local := me.mine[familyOf(a)]
	if e.speaker.AS == 0 || !local.IsValid() || e.isSelf(a) {
		return nil
	}
	n := &Neighbour{Address: a, Local: local, Host: name, MaxPrefixes: e.settings.MaxPrefixes}
	switch {
	case isOwn:
		n.Kind = FromOwn
		n.explicit(valueOf[model.BGPPeer](own))
	case isGlobal:
		n.Kind = FromGlobal
		n.explicit(valueOf[model.BGPPeer](global))
	case name == "":
		return nil
	case me.cluster.IsValid() && e.forPeer(name, local) != nil:
		n.Kind, n.AS, n.Multihop = FromReflects, e.asOf(e.hosts[name]), meshMultihop
		n.PasswordFile = valueOf[model.BGPPeer](e.forPeer(name, local)).PasswordFile
	case e.mesh():
		n.Kind, n.AS, n.Multihop = FromMesh, e.asOf(e.hosts[name]), meshMultihop
	}
	if n.AS == 0 {
		return nil
	}
	if n.AS == e.speaker.AS {
		n.Multihop = 0 // iBGP takes any number
		n.Reflector = me.cluster.IsValid() && e.hosts[name].cluster.IsValid()
		n.Client = me.cluster.IsValid() && n.Kind != FromMesh && !n.Reflector
	}
	return n
}

func (n *Neighbour) explicit(p model.BGPPeer) {
	n.AS, n.PasswordFile, n.Multihop = p.AS, p.PasswordFile, p.EBGPMultihop
	n.Import, n.Export = slices.Clone(p.Import), slices.Clone(p.Export)
}

func (e *Engine) reportSelfPeer(a netip.Addr, own *object) {
	for _, legacy := range []bool{false, true} {
		key := model.BGPPeerKey{Host: e.self, IP: a, Legacy: legacy}
		reason := ""
		if own != nil && e.objects[key] == own && e.isSelf(a) {
			reason = fmt.Sprintf("peer %s of host %s is that host itself, so there is no session: delete it", a, e.self)
		}
		e.report(SelfPeer, key.Path(), reason)
	}
}

// forPeer is the peer by which a host has an address of ours for its explicit peer, its own
// before that of all; nil where it hasn't. Both ends sign with the password that it names.
func (e *Engine) forPeer(name string, local netip.Addr) *object {
	if own, ok := e.peerAt(name, local); ok {
		return own
	}
	global, _ := e.peerAt("", local)
	return global
}

// mesh reports whether all hosts have sessions with all others: where nothing
// that can be read says otherwise.
func (e *Engine) mesh() bool {
	o := e.objects[model.BGPMeshKey{}]
	if o == nil {
		o = e.objects[model.BGPMeshKey{Legacy: true}]
	}
	return o == nil || o.value == nil || valueOf[model.Mesh](o).Enabled
}

// await notes that only BGP can lead to a prefix of another host, "" = it needn't.
func (e *Engine) await(p netip.Prefix, holder string) {
	list := e.awaited[familyOf(p.Addr())]
	if list[p] == holder {
		return
	}
	e.dirty.awaited = true
	if list[p] = holder; holder == "" {
		delete(list, p)
	}
}

// reportAwaited says of a family that this host has no neighbour for what it awaits. A session
// carries one family: a peer of the other one doesn't help.
func (e *Engine) reportAwaited() {
	for f, list := range e.awaited {
		reason := ""
		if e.sessions[f] == 0 && e.hosts[e.self].mine[f].IsValid() {
			for p, holder := range list {
				if e.hosts[holder].mine[f].IsValid() && !e.hasOwnWay(p) {
					reason = fmt.Sprintf("other hosts hold %s blocks in pools without encapsulation, and no BGP neighbour of that family tells this host the way to them: make one at /calico/bgp/v1/global/peer_v%d/<address>, switch the mesh on, or give the pools an encapsulation",
						familyName(f), 4+2*f)
					break
				}
			}
		}
		e.report(NoNeighbour, familyName(f), reason)
	}
}

// hasOwnWay reports whether a route of the host's own, other than its default one, leads to a prefix.
func (e *Engine) hasOwnWay(p netip.Prefix) bool {
	for to, hops := range e.links.routes.around(p) {
		if to.Bits() > 0 && e.by(hops, p.Addr()).ok() {
			return true
		}
	}
	return false
}
