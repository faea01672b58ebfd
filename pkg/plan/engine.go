// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"net/netip"

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
	mine   map[netip.Prefix]struct{}  // of blocks, those with affinity to this host
	owned  map[string]*[2]int         // how many blocks of IPv4 and IPv6 have affinity to a host
	holds  groups[string, heldAddr]   // addresses of our tunnels by handle
	ends   map[netip.Addr][]end       // the active endpoints with an address
	pools  index[poolFact]            // with those that can't be read
	peers  groups[netip.Addr, string] // hosts with an explicit peer of this address, "" = all

	// awaited are the holders of what only BGP can lead to, by family; sessions counts the
	// neighbours of each.
	awaited  [2]map[netip.Prefix]string
	sessions [2]int

	learned index[bgpFact]
	etcd    map[netip.Addr]bool // as SetEtcd has them
	fixed   []netip.Addr        // those, and the explicit peers of this host, sorted
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
	passed    map[netip.Prefix]struct{} // of which the best paths are not used
	reached   map[netip.Addr]reach      // of all in byGateway

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
	awaited    bool // whether there is a neighbour for what is awaited
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
		blocks: newIndex[*blockFact](), mine: map[netip.Prefix]struct{}{}, owned: map[string]*[2]int{}, holds: groups[string, heldAddr]{},
		ends: map[netip.Addr][]end{}, pools: newIndex[poolFact](), peers: groups[netip.Addr, string]{},
		learned: newIndex[bgpFact](), awaited: [2]map[netip.Prefix]string{{}, {}},
		byHost: groups[string, netip.Prefix]{}, byGateway: groups[netip.Addr, netip.Prefix]{},
		byPeer: groups[netip.Addr, netip.Prefix]{}, hopUsers: groups[netip.Addr, netip.Prefix]{}, needs: map[netip.Prefix]needs{}, passed: map[netip.Prefix]struct{}{}, reached: map[netip.Addr]reach{},
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
// gone. Keys that don't bear on routes are ignored, and so are paths that are not of the data model
// at all.
func (e *Engine) Update(entries ...model.Entry) {
	for _, entry := range entries {
		e.update(entry)
	}
}

func (e *Engine) update(entry model.Entry) {
	if entry.Key == nil {
		key, err := model.ParseKey(entry.Path)
		if err != nil {
			bad := ""
			if entry.Exists() && !errors.Is(err, model.ErrUnknownKey) {
				bad = fmt.Sprintf("%v: delete it, and write one whose name is right", err)
			}
			e.report(BadValue, entry.Path, bad)
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
		bad = fmt.Sprintf("%v: %s", fresh.err, model.Remedy(entry.Path))
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
	if e.dirty.awaited || e.dirty.config {
		e.reportAwaited()
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
