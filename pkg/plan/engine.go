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

// engine computes the state that a host should have. Update, SetSettings, SetLinks, SetEtcd, Learn and Retain pass
// changes to it; compute returns what follows from them.
//
// The cost of changing a block, an endpoint or a learned route is proportional to the number of prefixes affected; any
// other change causes everything to be recomputed. The result of compute depends on the current input, never on how it
// came about.
type engine struct {
	self     string
	settings Settings
	handles  map[string]TunnelKind // of this host's tunnels' addresses

	objects     objects
	said        map[string]host            // what etcd says about each existing host
	peers       groups[netip.Addr, string] // hosts with an explicit peer at this address, "" = all hosts
	named       map[string]struct{}        // peers by name
	pools       index[poolFact]            // including pools that can't be read
	allocations allocations
	learned     index[learnedRoute]
	etcd        map[netip.Addr]bool // as passed to SetEtcd
	links       *links

	changed bool                      // the input of view changed
	touched map[netip.Prefix]struct{} // prefixes to decide again

	view      *view
	decisions map[netip.Prefix]decision // those with more content than a route
	raised    map[ProblemID]int         // number of decisions that raise a problem
	told      State
	out       Changes
}

// newEngine returns an empty engine for the host named self.
func newEngine(self string, settings Settings) *engine {
	e := &engine{
		self: self, settings: settings.withDefaults(), handles: map[string]TunnelKind{},
		objects: newObjects(), said: map[string]host{}, peers: groups[netip.Addr, string]{}, named: map[string]struct{}{}, pools: newIndex[poolFact](),
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
	// BGP uses whole seconds (RFC 4271, 4.2; RFC 4724, 3).
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

// SetLinks replaces the host's own links and routes. If there are several routes to a destination, the first one
// counts.
func (e *engine) SetLinks(given Links) {
	if !reflect.DeepEqual(given, e.links.given) {
		e.links, e.changed = newLinks(clone(given)), true
	}
}

// SetEtcd replaces the known addresses of etcd. The value says whether packets to the address used one of our routes
// while etcd answered. Only then may etcd be a workload of the cluster, at an endpoint's address. An endpoint with the
// address is not enough: in a pool over the hosts' own network it may have it by mistake.
func (e *engine) SetEtcd(addrs map[netip.Addr]bool) {
	if !maps.Equal(addrs, e.etcd) {
		e.etcd, e.changed = maps.Clone(addrs), true
	}
}

// Learn passes what BGP currently knows about some prefixes. It ignores prefixes with host bits and IPv4 written as
// IPv6.
func (e *engine) Learn(routes ...Learned) {
	for _, l := range routes {
		if f := e.learned.all[l.Prefix]; isDestination(l.Prefix) && !slices.Equal(f.paths, l.Paths) {
			f.paths = slices.Clone(l.Paths)
			slices.SortStableFunc(f.paths, func(a, b Path) int { return cmp.Compare(a.Rank, b.Rank) })
			e.setLearned(l.Prefix, f)
		}
	}
}

// Retain passes the routes that BGP had installed in the kernel before the agent restarted; they replace those of an
// earlier call. Unless they are refused, they are kept until their prefix is learned again or they are no longer
// retained: call Retain without routes once the neighbours have sent everything they know.
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

// Update processes the new state of some keys: their values, or that they are gone. It ignores keys that don't affect
// routes and paths outside of the data model.
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

// reportValue reports the problem with the value of a key, or that there is none if reason is "".
func (e *engine) reportValue(path, reason string) {
	id := ProblemID{BadValue, path}
	var p *Problem
	if reason != "" {
		p = &Problem{id, reason}
	}
	tell(e.out.Problems, e.told.Problems, id, p)
}

// compute returns what changed since the last call.
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

// look recomputes the view and marks everything that may be routed to be decided again.
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

// decide computes everything about one prefix.
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

// tell records the new value of k, unless it equals what was told before.
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

// compare records all differences from what was told.
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

// Passed returns up to most prefixes whose best paths are not used, or that have no usable path: BGP by itself reports
// only changes of the best ones.
func (e *engine) Passed(most int) []netip.Prefix {
	var list []netip.Prefix
	for p, d := range e.decisions {
		if d.passed && len(list) < most {
			list = append(list, p)
		}
	}
	return list
}

// Used returns, by neighbour, how many routes of the last compute use paths that it sent.
func (e *engine) Used() map[netip.Addr]int {
	used := map[netip.Addr]int{}
	for _, d := range e.decisions {
		for _, a := range d.peers {
			used[a]++
		}
	}
	return used
}

// Leftovers returns this host's empty blocks that no pool around them certainly needs, that is, no pool that assigns
// addresses to every host and has blocks of that size. Whether a block is needed all the same is for ipam.GiveBack to
// decide.
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
