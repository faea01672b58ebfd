// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Engine works a host's State out step by step: it takes in changes with Update,
// SetLinks and Learn, and Flush gives what follows from them. The cost of a change
// depends on what it bears on, not on how many routes there are.
//
// What Flush gave depends on what is there, never on how it came about.
type Engine struct {
	self     string
	settings Settings
	handles  map[string]TunnelKind // of our tunnels' addresses

	objects map[model.Key]*object
	odd     map[model.Key]map[string]*object // at paths that aren't canonical

	hosts  map[string]host
	claims groups[netip.Addr, string] // hosts by the address they say they have
	// addrs are the keys of claims, sorted.
	addrs  []netip.Addr
	blocks index[*blockFact]
	owned  map[string]*[2]int         // how many blocks of IPv4 and IPv6 have affinity to a host
	holds  groups[string, heldAddr]   // addresses of our tunnels by handle
	ends   map[netip.Addr][]string    // hosts of the active endpoints with an address
	pools  index[poolFact]            // with those that can't be read
	peers  groups[netip.Addr, string] // hosts with an explicit peer of this address, "" = all

	learned index[bgpFact]
	links   links
	speaker Speaker
	fabric  []netip.Prefix // of the uplinks, addresses with their subnets
	tunnels map[TunnelKind]Tunnel
	overlap map[string]struct{} // pools reported to overlap a link's subnet

	// What routes were made from, to make them again when that changes.
	byHost    groups[string, netip.Prefix]
	byGateway groups[netip.Addr, netip.Prefix]
	byPeer    groups[netip.Addr, netip.Prefix]
	hopUsers  groups[netip.Addr, netip.Prefix] // those of byGateway that can't do without
	needs     map[netip.Prefix]needs
	reached   map[netip.Addr]reach // of all in byGateway

	dirty dirt
	told  State
	out   Changes
}

// heldAddr is an address of a tunnel of ours in a block.
type heldAddr struct {
	addr  netip.Addr
	block netip.Prefix
}

// dirt is what is to be looked at again.
type dirt struct {
	all        bool // everything: what all of it depends on has changed
	config     bool // tunnels, MTU, speaker
	neighbours bool // all of them
	prefixes   map[netip.Prefix]struct{}
	hosts      map[string]struct{}
	peers      map[netip.Addr]struct{}
}

func newDirt() dirt {
	return dirt{prefixes: map[netip.Prefix]struct{}{}, hosts: map[string]struct{}{}, peers: map[netip.Addr]struct{}{}}
}

// NewEngine makes the engine of the host of that name, which knows of nothing yet.
func NewEngine(self string, settings Settings) *Engine {
	e := &Engine{
		self: self, settings: settings.withDefaults(), handles: map[string]TunnelKind{},
		objects: map[model.Key]*object{}, odd: map[model.Key]map[string]*object{},
		hosts: map[string]host{}, claims: groups[netip.Addr, string]{},
		blocks: newIndex[*blockFact](), owned: map[string]*[2]int{}, holds: groups[string, heldAddr]{},
		ends: map[netip.Addr][]string{}, pools: newIndex[poolFact](), peers: groups[netip.Addr, string]{},
		learned: newIndex[bgpFact](),
		byHost:  groups[string, netip.Prefix]{}, byGateway: groups[netip.Addr, netip.Prefix]{},
		byPeer: groups[netip.Addr, netip.Prefix]{}, hopUsers: groups[netip.Addr, netip.Prefix]{}, needs: map[netip.Prefix]needs{}, reached: map[netip.Addr]reach{},
		dirty: newDirt(),
		told: State{
			Routes: map[netip.Prefix]Route{}, Remotes: map[RemoteID]Remote{}, Hosts: map[netip.Addr]string{},
			Neighbours: map[netip.Addr]Neighbour{}, Advertisements: map[netip.Prefix]Advertisement{},
			Problems: map[ProblemID]Problem{},
		},
	}
	for _, t := range tunnelTypes() {
		e.handles[t.handle(self)] = t.kind
	}
	e.links = newLinks(Links{})
	e.dirty.hosts[self] = struct{}{}
	e.dirty.config = true
	e.out = newChanges()
	return e
}

func newChanges() Changes {
	return Changes{
		Routes: map[netip.Prefix]*Route{}, Remotes: map[RemoteID]*Remote{}, Hosts: map[netip.Addr]string{},
		Neighbours: map[netip.Addr]*Neighbour{}, Advertisements: map[netip.Prefix]*Advertisement{},
		Problems: map[ProblemID]*Problem{},
	}
}

// Update takes in what became of some keys: what they hold now, or that they are
// gone. Keys that don't bear on routes are ignored, and so are paths that are no
// key at all.
func (e *Engine) Update(entries ...model.Entry) {
	for _, entry := range entries {
		e.update(entry)
	}
}

func (e *Engine) update(entry model.Entry) {
	if entry.Key == nil {
		key, err := model.ParseKey(entry.Path)
		if err != nil {
			return
		}
		entry.Key = key
	}
	fresh, relevant := e.fact(entry)
	if !relevant {
		return
	}
	bad := ""
	if entry.Exists() && fresh.err != nil {
		bad = fmt.Sprintf("%v: correct or delete it", fresh.err)
	}
	e.report(BadValue, entry.Path, bad)
	before := e.objects[entry.Key]
	var now *object
	if entry.Exists() {
		now = &fresh
	}
	now = e.one(entry.Key, entry.Path, now)
	if now != before {
		e.changed(entry.Key, before, now)
	}
}

// valueOf gives what an object holds, of type T; the zero value where there is
// none or it cannot be read.
func valueOf[T any](o *object) T {
	var v T
	if o != nil {
		v, _ = o.value.(T)
	}
	return v
}

// changed follows from one object, to what depends on it.
func (e *Engine) changed(key model.Key, before, now *object) {
	switch key := key.(type) {
	case model.WorkloadEndpointKey:
		e.changedEndpoint(key.Host, valueOf[endpointFact](before), valueOf[endpointFact](now))
	case model.BlockKey:
		e.changedBlock(key.CIDR, valueOf[*blockFact](before), valueOf[*blockFact](now))
	case model.PoolKey:
		e.changedPool(key.CIDR, before, now)
	case model.HostMetadataKey:
		e.dirty.hosts[key.Host] = struct{}{}
	case model.StatusKey:
		e.dirty.hosts[key.Host] = struct{}{}
	case model.LastStatusKey:
		e.dirty.hosts[key.Host] = struct{}{}
	case model.HostBirdIPKey:
		e.dirty.hosts[key.Host] = struct{}{}
	case model.BGPHostKey:
		e.dirty.hosts[key.Host] = struct{}{}
	case model.BGPGlobalASKey, model.BGPMeshKey:
		e.dirty.config, e.dirty.neighbours = true, true
	case model.BGPPeerKey:
		e.changedPeer(key)
	}
}

func (e *Engine) changedEndpoint(host string, before, now endpointFact) {
	for _, a := range before {
		if slices.Contains(now, a) {
			continue
		}
		hosts := e.ends[a]
		i := slices.Index(hosts, host)
		if hosts = slices.Delete(slices.Clone(hosts), i, i+1); len(hosts) == 0 {
			delete(e.ends, a)
		} else {
			e.ends[a] = hosts
		}
		e.touch(single(a))
	}
	for _, a := range now {
		if !slices.Contains(before, a) {
			e.ends[a] = append(slices.Clone(e.ends[a]), host)
			e.touch(single(a))
		}
	}
}

func (e *Engine) touch(p netip.Prefix) { e.dirty.prefixes[p] = struct{}{} }

func (e *Engine) changedBlock(p netip.Prefix, before, now *blockFact) {
	if before == now || before != nil && now != nil && before.equal(now) {
		return
	}
	if before != nil {
		e.own(before.affinity, p, -1)
		for handle, addrs := range before.held {
			for _, a := range addrs {
				e.holds.remove(handle, heldAddr{a, p})
			}
		}
		e.dirty.config = e.dirty.config || len(before.held) > 0
	}
	if now == nil {
		e.touchBlock(p, before)
		e.blocks.remove(p)
		return
	}
	e.own(now.affinity, p, 1)
	for handle, addrs := range now.held {
		for _, a := range addrs {
			e.holds.add(handle, heldAddr{a, p})
		}
	}
	e.dirty.config = e.dirty.config || len(now.held) > 0
	e.blocks.set(p, now)
	if before == nil || before.affinity != now.affinity {
		e.touchBlock(p, before)
		return
	}
	a := p.Addr()
	for i := range 1 << (a.BitLen() - p.Bits()) {
		if before.isTaken(i) != now.isTaken(i) || before.others[a] != now.others[a] {
			e.touch(single(a))
		}
		a = a.Next()
	}
}

// own counts a host's blocks.
func (e *Engine) own(host string, p netip.Prefix, n int) {
	if host == "" {
		return
	}
	count := e.owned[host]
	if count == nil {
		count = &[2]int{}
		e.owned[host] = count
	}
	family := familyOf(p.Addr())
	was := count[family]
	if count[family] += n; count[family] == 0 || was == 0 {
		e.dirty.hosts[host] = struct{}{}
	}
	if *count == [2]int{} {
		delete(e.owned, host)
	}
}

// familyOf is 0 for IPv4, 1 for IPv6.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// touchBlock has everything looked at again that may lie in a block: the block
// was or is in the index. before may be nil.
func (e *Engine) touchBlock(p netip.Prefix, before *blockFact) {
	e.touch(p)
	for inner := range e.learned.inside(p) {
		e.touch(inner)
	}
	if before != nil {
		for a := range before.others {
			e.touch(single(a))
		}
	}
	for _, b := range e.blocks.around(p) {
		for a := range b.others {
			if p.Contains(a) {
				e.touch(single(a))
			}
		}
	}
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		if _, ok := e.ends[a]; ok {
			e.touch(single(a))
		}
	}
}

func (e *Engine) changedPool(p netip.Prefix, before, now *object) {
	was, is := valueOf[poolFact](before), valueOf[poolFact](now)
	if (before != nil) == (now != nil) && was == is {
		return
	}
	if now == nil {
		e.pools.remove(p)
	} else {
		e.pools.set(p, is)
	}
	e.dirty.config = true
	was.gives, is.gives = false, false
	was.device, is.device = "", ""
	if (before != nil) != (now != nil) || was != is {
		e.touchInside(p)
	}
}

// touchInside has all that is inside a prefix looked at again, however much.
func (e *Engine) touchInside(p netip.Prefix) {
	for b, fact := range e.blocks.all {
		if p.Overlaps(b) {
			e.touch(b)
			for a := range fact.others {
				e.touch(single(a))
			}
		}
	}
	for a := range e.ends {
		if p.Contains(a) {
			e.touch(single(a))
		}
	}
	for l := range e.learned.all {
		if p.Overlaps(l) {
			e.touch(l)
		}
	}
}

func (e *Engine) changedPeer(key model.BGPPeerKey) {
	_, host := e.peerAt(key.Host, key.IP)
	if host {
		e.peers.add(key.IP, key.Host)
	} else {
		e.peers.remove(key.IP, key.Host)
	}
	e.dirty.peers[key.IP] = struct{}{}
	switch {
	case key.Host == "":
		if e.isSelf(key.IP) {
			e.dirty.neighbours = true
		}
	case key.Host != e.self:
		e.dirty.hosts[key.Host] = struct{}{}
	}
}

// peerAt is the explicit peer of a host, "" of all, at an address: the canonical
// place comes before the older one.
func (e *Engine) peerAt(host string, a netip.Addr) (*object, bool) {
	if o := e.objects[model.BGPPeerKey{Host: host, IP: a}]; o != nil {
		return o, true
	}
	o := e.objects[model.BGPPeerKey{Host: host, IP: a, Legacy: true}]
	return o, o != nil
}

// Flush returns what changed since the last Flush.
func (e *Engine) Flush() Changes {
	e.flushHosts()
	if e.dirty.config || e.dirty.all {
		e.flushConfig()
	}
	if e.dirty.all {
		e.touchAll()
	}
	e.flushNeighbours()
	for p := range e.dirty.prefixes {
		e.refresh(p)
	}
	e.dirty = newDirt()
	out := e.out
	e.told.Apply(out)
	e.out = newChanges()
	return out
}

func (e *Engine) touchAll() {
	e.touchInside(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	e.touchInside(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
}

// report says that there is a problem, or none any more: reason "".
func (e *Engine) report(kind ProblemKind, subject, reason string) {
	id := ProblemID{kind, subject}
	var p *Problem
	if reason != "" {
		p = &Problem{id, reason}
	}
	tell(e.out.Problems, e.told.Problems, id, p)
}

// tell notes what became of k, unless that is what was told before.
func tell[K comparable, V any](out map[K]*V, told map[K]V, k K, v *V) {
	tellBy(out, told, k, v, func(a, b V) bool { return any(a) == any(b) })
}

func tellBy[K comparable, V any](out map[K]*V, told map[K]V, k K, v *V, equal func(a, b V) bool) {
	was, ok := told[k]
	if v == nil && !ok || v != nil && ok && equal(was, *v) {
		delete(out, k)
	} else {
		out[k] = v
	}
}
