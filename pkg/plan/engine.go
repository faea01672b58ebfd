// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// engine works out what a host must hold. It takes in changes with Update, SetSettings,
// SetLinks, SetEtcd, Learn and Retain; Compute returns what follows from them.
//
// A change of a block, an endpoint or a learned route costs as much as the prefixes that it
// bears on; any other change has everything worked out anew. What Compute returns depends on
// what there is, never on how it came about.
type engine struct {
	self     string
	settings Settings
	handles  map[string]TunnelKind // of this host's tunnels' addresses

	objects     objects
	said        map[string]host            // what etcd says of each host that there is
	peers       groups[netip.Addr, string] // hosts with an explicit peer of this address, "" = all
	pools       index[poolFact]            // with those that can't be read
	allocations allocations
	learned     index[learnedRoute]
	etcd        map[netip.Addr]bool // as SetEtcd has them
	links       *links

	changed bool                      // what view is worked out from
	touched map[netip.Prefix]struct{} // what to decide anew

	view      *view
	decisions map[netip.Prefix]decision // those that say more than a route
	raised    map[ProblemID]int         // how many decisions raise a problem
	told      State
	out       Changes
}

// newEngine makes the engine of the host of that name, which knows of nothing yet.
func newEngine(self string, settings Settings) *engine {
	e := &engine{
		self: self, settings: settings.withDefaults(), handles: map[string]TunnelKind{},
		objects: newObjects(), said: map[string]host{}, peers: groups[netip.Addr, string]{}, pools: newIndex[poolFact](),
		learned: newIndex[learnedRoute](), links: newLinks(Links{}),
		changed: true, touched: map[netip.Prefix]struct{}{}, view: &view{},
		decisions: map[netip.Prefix]decision{}, raised: map[ProblemID]int{},
		told: State{
			Routes: map[netip.Prefix]Route{}, Remotes: map[RemoteID]Remote{}, Hosts: map[netip.Addr]string{},
			Neighbours: map[netip.Addr]Neighbour{}, Advertisements: map[netip.Prefix]Advertisement{},
			Problems: map[ProblemID]Problem{},
		},
		out: newChanges(),
	}
	e.allocations = newAllocations(self, func(host string) bool {
		h := e.said[host]
		return h.alive || !h.exists
	})
	for _, t := range tunnelTypes() {
		e.handles[t.handle(self)] = t.kind
	}
	e.said[self] = e.objects.readHost(self, self)
	return e
}

func newChanges() Changes {
	return Changes{
		Routes: map[netip.Prefix]*Route{}, Remotes: map[RemoteID]*Remote{}, Hosts: map[netip.Addr]string{},
		Neighbours: map[netip.Addr]*Neighbour{}, Advertisements: map[netip.Prefix]*Advertisement{},
		Problems: map[ProblemID]*Problem{},
	}
}

func (s Settings) withDefaults() Settings {
	s.VXLANPort = cmp.Or(s.VXLANPort, 4789)
	s.VXLANVNI = cmp.Or(s.VXLANVNI, 4096)
	s.ListenPort = cmp.Or(s.ListenPort, 179)
	// BGP tells whole seconds (RFC 4271, 4.2; RFC 4724, 3).
	s.HoldTime = cmp.Or(s.HoldTime, 90*time.Second).Truncate(time.Second)
	s.KeepaliveTime = cmp.Or(s.KeepaliveTime, s.HoldTime/3).Truncate(time.Second)
	s.RestartTime = max(0, cmp.Or(s.RestartTime, 120*time.Second)).Truncate(time.Second)
	s.MaxPrefixes = cmp.Or(s.MaxPrefixes, 50000)
	s.Listen, s.TunnelMTU = slices.Clone(s.Listen), maps.Clone(s.TunnelMTU)
	return s
}

// SetSettings replaces the settings.
func (e *engine) SetSettings(settings Settings) {
	if settings = settings.withDefaults(); !reflect.DeepEqual(settings, e.settings) {
		e.settings, e.changed = settings, true
	}
}

// SetLinks replaces what is known of the host's own links and routes. Of routes
// to one destination the first counts.
func (e *engine) SetLinks(given Links) {
	if !reflect.DeepEqual(given, e.links.given) {
		e.links, e.changed = newLinks(clone(given)), true
	}
}

// SetEtcd replaces the addresses of etcd that are known. Of each it says whether
// packets to it went by a route of ours while etcd answered: only then may etcd be a
// workload of the cluster, at the address of an endpoint. That an endpoint has the
// address is not enough: in a pool over the hosts' own network one gets it by mistake.
func (e *engine) SetEtcd(addrs map[netip.Addr]bool) {
	if !maps.Equal(addrs, e.etcd) {
		e.etcd, e.changed = maps.Clone(addrs), true
	}
}

// Learn takes in what BGP knows now of some prefixes. A prefix with host bits, or
// of IPv4 written as IPv6, is ignored.
func (e *engine) Learn(routes ...Learned) {
	for _, l := range routes {
		if f := e.learned.all[l.Prefix]; isDestination(l.Prefix) && !slices.Equal(f.paths, l.Paths) {
			f.paths = slices.Clone(l.Paths)
			slices.SortStableFunc(f.paths, func(a, b Path) int { return cmp.Compare(a.Rank, b.Rank) })
			e.setLearned(l.Prefix, f)
		}
	}
}

// Retain says which routes BGP had brought into the kernel before the agent started
// anew; they replace those that it said before. They stay as they are, unless they
// must not be taken, until their prefix is learned again or they are no longer
// retained: say so, with none, when the neighbours have told all that they know.
func (e *engine) Retain(routes ...Route) {
	for p, f := range e.learned.all {
		if f.retained != nil {
			f.retained = nil
			e.setLearned(p, f)
		}
	}
	for _, r := range routes {
		if r.Kind != Unicast || len(r.Hops) == 0 || !isDestination(r.Destination) {
			continue
		}
		r.Hops, r.Origin, r.Host = slices.Clone(r.Hops), FromBGP, ""
		f := e.learned.all[r.Destination]
		f.retained = &r
		e.setLearned(r.Destination, f)
	}
}

func isDestination(p netip.Prefix) bool { return p.IsValid() && p == p.Masked() && !p.Addr().Is4In6() }

func (e *engine) setLearned(p netip.Prefix, f learnedRoute) {
	if len(f.paths) == 0 && f.retained == nil {
		e.learned.remove(p)
	} else {
		e.learned.set(p, f)
	}
	e.touch(p)
}

// Update takes in what became of some keys: what they hold now, or that they are
// gone. Keys that don't bear on routes are ignored, and so are paths that are not of the data model
// at all.
func (e *engine) Update(entries ...model.Entry) {
	for _, entry := range entries {
		e.update(entry)
	}
}

func (e *engine) update(entry model.Entry) {
	if entry.Key == nil {
		key, err := model.ParseKey(entry.Path)
		if err != nil {
			bad := ""
			if entry.Exists() && !errors.Is(err, model.ErrUnknownKey) {
				bad = fmt.Sprintf("%v: delete it, and write one whose name is right", err)
			}
			e.reportValue(entry.Path, bad)
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
	e.reportValue(entry.Path, bad)
	var o *object
	if entry.Exists() {
		o = &fresh
	}
	before, now := e.objects.put(entry.Key, entry.Path, o)
	if !reflect.DeepEqual(before, now) {
		e.follow(entry.Key, before, now)
	}
}

// reportValue says what is wrong with the value of a key, "" = nothing.
func (e *engine) reportValue(path, reason string) {
	id := ProblemID{BadValue, path}
	var p *Problem
	if reason != "" {
		p = &Problem{id, reason}
	}
	tell(e.out.Problems, e.told.Problems, id, p)
}

// compute returns what changed since the last time.
func (e *engine) compute() Changes {
	if e.changed {
		e.look()
	}
	for p := range e.touched {
		e.decide(p)
	}
	e.changed, e.touched = false, map[netip.Prefix]struct{}{}
	out := e.out
	e.told.Apply(out)
	e.out = newChanges()
	return out
}

// look works out the view anew, and has everything that may be routed decided anew.
func (e *engine) look() {
	was, now := e.view, e.newView()
	e.view = now
	for id := range was.problems {
		if _, still := now.problems[id]; !still {
			tell(e.out.Problems, e.told.Problems, id, nil)
		}
	}
	for id, p := range now.problems {
		tell(e.out.Problems, e.told.Problems, id, &p)
	}
	for a, name := range e.told.Hosts {
		if now.hosts.other(a) != name {
			e.out.Hosts[a] = ""
		}
	}
	for a := range now.hosts.claims {
		if name := now.hosts.other(a); name != e.told.Hosts[a] {
			e.out.Hosts[a] = name
		}
	}
	compare(e.out.Remotes, e.told.Remotes, now.remotes, func(a, b Remote) bool { return a == b })
	compare(e.out.Neighbours, e.told.Neighbours, now.neighbours, Neighbour.equal)
	if !slices.EqualFunc(now.devices.Tunnels, e.told.Tunnels, Tunnel.equal) || !slices.Equal(now.devices.Releases, e.told.Releases) {
		e.out.Devices = &now.devices
	}
	if now.mtu != e.told.MTU {
		e.out.MTU = &now.mtu
	}
	if !now.speaker.equal(e.told.Speaker) {
		e.out.Speaker = &now.speaker
	}
	e.touchAll()
}

// decide works out all that is said of one prefix.
func (e *engine) decide(p netip.Prefix) {
	d := e.view.decide(p, &e.allocations, e.learned.all[p])
	tellBy(e.out.Routes, e.told.Routes, p, d.route, Route.equal)
	tell(e.out.Advertisements, e.told.Advertisements, p, d.advertisement)
	for _, problem := range e.decisions[p].problems {
		if e.raised[problem.ProblemID]--; e.raised[problem.ProblemID] == 0 {
			delete(e.raised, problem.ProblemID)
			tell(e.out.Problems, e.told.Problems, problem.ProblemID, nil)
		}
	}
	for _, problem := range d.problems {
		e.raised[problem.ProblemID]++
		tell(e.out.Problems, e.told.Problems, problem.ProblemID, &problem)
	}
	if len(d.problems) == 0 && len(d.peers) == 0 && !d.passed {
		delete(e.decisions, p)
	} else {
		d.route, d.advertisement = nil, nil
		e.decisions[p] = d
	}
}

// tell notes what became of k, unless that is what was told before.
func tell[K, V comparable](out map[K]*V, told map[K]V, k K, v *V) {
	tellBy(out, told, k, v, func(a, b V) bool { return a == b })
}

func tellBy[K comparable, V any](out map[K]*V, told map[K]V, k K, v *V, equal func(a, b V) bool) {
	was, ok := told[k]
	if v == nil && !ok || v != nil && ok && equal(was, *v) {
		delete(out, k)
	} else {
		out[k] = v
	}
}

// compare notes all that is other than it was told.
func compare[K comparable, V any](out map[K]*V, told, now map[K]V, equal func(a, b V) bool) {
	for k := range told {
		if _, still := now[k]; !still {
			out[k] = nil
		}
	}
	for k, v := range now {
		tellBy(out, told, k, &v, equal)
	}
}

// Passed returns prefixes, so many at most, of which the best paths are not used, or none: BGP
// tells by itself only of what becomes of the best ones.
func (e *engine) Passed(most int) []netip.Prefix {
	var list []netip.Prefix
	for p, d := range e.decisions {
		if d.passed && len(list) < most {
			list = append(list, p)
		}
	}
	return list
}

// Used counts, by neighbour, the routes of the last Compute by paths that it sent.
func (e *engine) Used() map[netip.Addr]int {
	used := map[netip.Addr]int{}
	for _, d := range e.decisions {
		for _, a := range d.peers {
			used[a]++
		}
	}
	return used
}

// Leftovers are this host's blocks that are empty and that no pool around them is sure to want: one that gives
// addresses out to every host, and has blocks of that size. Whether it is somebody's all the same is for
// ipam.GiveBack to say.
func (e *engine) Leftovers() []netip.Prefix {
	var all []netip.Prefix
	for p, block := range e.allocations.blocks.all {
		if block.affinity != e.self || !block.empty() {
			continue
		}
		wanted := false
		for at, pool := range e.pools.around(p) {
			_, later := e.view.later[at]
			wanted = wanted || pool.gives && pool.pods && !pool.picks && !later && pool.size == p.Bits()
		}
		if !wanted {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}
