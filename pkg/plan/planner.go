// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

const (
	// statusGrace is how long a host still counts as live after its live status has gone. If hosts were cut off from
	// etcd for longer than their leases last, each learns that the others' leases have ended, and a moment later that
	// they live.
	statusGrace = 5 * time.Second
	// openTime is how long a new tunnel only receives before anything is sent through it: as long as other hosts may
	// need to create theirs.
	openTime = 250 * time.Millisecond
	// lingerTime is how long a tunnel that is no longer needed still receives: other hosts use theirs until they learn
	// of the change.
	lingerTime = 10 * time.Second
	// awaitTime is how long a route keeps using a tunnel that its pool no longer needs, until BGP provides another
	// route. Other hosts' tunnels linger longer.
	awaitTime = 5 * time.Second
	// directTime is how long a route of a pool that lost its encapsulation leads straight to the other host, until BGP
	// provides the same.
	directTime = 30 * time.Second
	// meshTime is how long BGP still advertises a prefix to the mesh after its pool got an encapsulation: a host that
	// sees the withdrawal before the change in etcd would have no route. A host that has seen the change ignores it.
	meshTime = 2 * time.Second
)

// Planner moves a host to the state that its engine computes, in steps where changing everything at once would lose
// packets: when pools gain or lose an encapsulation, no two hosts learn of it at the same time.
type Planner struct {
	*engine
	state      State // what should be programmed: the sum of what Plan returned
	programmed bool

	missing   map[model.StatusKey]time.Time // live statuses that have gone, and until when they still count
	opening   time.Time                     // until when new tunnels only receive; zero = there are none
	awaiting  time.Time                     // until when routes through tunnels wait for BGP's; zero = none does
	held      Changes                       // routes, and removals of hosts, that wait for these
	devices   Devices                       // as computed by the engine
	lingering map[TunnelKind]lingering
	direct    map[netip.Prefix]direct
	meshed    map[netip.Prefix]time.Time // until when they are advertised to the mesh
}

// lingering is a tunnel that is no longer needed.
type lingering struct {
	tunnel Tunnel
	until  time.Time
}

// direct is a route that leads straight to a host.
type direct struct {
	host  string
	until time.Time
}

// NewPlanner returns an empty planner for the host named self.
func NewPlanner(self string, settings Settings) *Planner {
	return &Planner{
		engine: newEngine(self, settings), missing: map[model.StatusKey]time.Time{}, held: newChanges(),
		lingering: map[TunnelKind]lingering{}, direct: map[netip.Prefix]direct{}, meshed: map[netip.Prefix]time.Time{},
	}
}

// Take processes an update of etcd.
func (p *Planner) Take(u model.Update, now time.Time) {
	if u.Resync {
		for _, gone := range p.absent(u.Entries) {
			p.take(gone, now)
		}
	}
	for _, entry := range u.Entries {
		p.take(entry, now)
	}
}

func (p *Planner) take(entry model.Entry, now time.Time) {
	if key, ok := entry.Key.(model.StatusKey); ok && entry.Exists() {
		delete(p.missing, key)
	} else if ok {
		if _, waits := p.missing[key]; !waits && p.objects.byKey[key] != nil {
			p.missing[key] = now.Add(statusGrace)
		}
		return
	}
	p.Update(entry)
}

// Programmed says that the host is in the state that Plan returned. From then on changes are made in steps.
func (p *Planner) Programmed() { p.programmed = true }

// State returns what should be programmed now. It must not be modified, and changes with the next Plan.
func (p *Planner) State() *State { return &p.state }

// Devices returns the tunnels that are needed, without those that only linger. Addresses are released once no route
// uses them.
func (p *Planner) Devices() Devices {
	return Devices{Tunnels: p.devices.Tunnels, Releases: p.state.Releases}
}

// Plan returns what to change now. Call it again at the time that Next returns.
func (p *Planner) Plan(now time.Time) Changes {
	for key, until := range p.missing {
		if !now.Before(until) {
			delete(p.missing, key)
			p.Update(model.Entry{Path: key.Path(), Key: key})
		}
	}
	c := p.compute()
	p.holdRoutes(&c, now)
	p.keepTunnels(&c, now)
	p.leadDirectly(&c, now)
	p.keepInMesh(&c, now)
	p.state.Apply(c)
	return c
}

// Next returns when Plan has something to do even without new input; zero = never.
func (p *Planner) Next() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	sooner(p.opening)
	sooner(p.awaiting)
	for _, t := range p.missing {
		sooner(t)
	}
	for _, l := range p.lingering {
		sooner(l.until)
	}
	for _, d := range p.direct {
		sooner(d.until)
	}
	for _, t := range p.meshed {
		sooner(t)
	}
	return next
}

// holdRoutes holds back routes while new tunnels only receive, and while BGP has not yet provided routes for a pool
// that lost its encapsulation. It also keeps the hosts at the other ends of the tunnels that routes still use.
func (p *Planner) holdRoutes(c *Changes, now time.Time) {
	if c.Devices != nil && p.programmed && slices.ContainsFunc(c.Devices.Tunnels, func(t Tunnel) bool {
		return !slices.ContainsFunc(p.state.Tunnels, func(have Tunnel) bool { return have.Kind == t.Kind && have.Port == t.Port })
	}) {
		p.opening = now.Add(openTime)
	}
	maps.Copy(p.held.Routes, c.Routes)
	for id, r := range c.Remotes {
		delete(p.held.Remotes, id)
		if r == nil {
			p.held.Remotes[id] = nil
			delete(c.Remotes, id)
		}
	}
	if now.Before(p.opening) {
		c.Routes = map[netip.Prefix]*Route{}
		return
	}
	p.opening = time.Time{}
	c.Routes, p.held.Routes = p.held.Routes, map[netip.Prefix]*Route{}
	for prefix, r := range c.Routes {
		if host, bare := p.unencapsulated(prefix, r); bare && !p.reach(host, prefix).direct {
			p.held.Routes[prefix] = nil
		}
	}
	switch {
	case len(p.held.Routes) == 0:
		p.awaiting = time.Time{}
	case p.awaiting.IsZero():
		p.awaiting = now.Add(awaitTime)
	case !now.Before(p.awaiting):
		p.awaiting, p.held.Routes = time.Time{}, map[netip.Prefix]*Route{}
	}
	for prefix := range p.held.Routes {
		delete(c.Routes, prefix)
	}
	if p.awaiting.IsZero() {
		maps.Copy(c.Remotes, p.held.Remotes)
		p.held.Remotes = map[RemoteID]*Remote{}
	}
}

// unencapsulated reports whether a route from etcd goes away in a pool whose routes come from BGP from now on, and the
// host that it led to.
func (p *Planner) unencapsulated(prefix netip.Prefix, r *Route) (host string, bare bool) {
	was := p.state.Routes[prefix]
	return was.Host, r == nil && was.Origin == FromHost && p.programmed &&
		slices.ContainsFunc(p.view.speaker.Import, func(i netip.Prefix) bool { return i.Overlaps(prefix) })
}

// reach returns how packets get to a host's address of a prefix's family.
func (p *Planner) reach(host string, prefix netip.Prefix) reach {
	return p.links.reach(p.view.hosts.byName[host].mine[familyOf(prefix.Addr())])
}

// keepTunnels makes tunnels that are no longer needed linger. They lose their address, which may then be assigned to
// another, once no route uses it: the kernel drops such routes along with the address.
func (p *Planner) keepTunnels(c *Changes, now time.Time) {
	if c.Devices != nil {
		if p.programmed {
			for _, t := range p.devices.Tunnels {
				p.lingering[t.Kind] = lingering{t, now.Add(lingerTime)}
			}
		}
		for _, t := range c.Devices.Tunnels {
			delete(p.lingering, t.Kind)
		}
		p.devices = *c.Devices
	}
	next := Devices{slices.Clone(p.devices.Tunnels), p.devices.Releases}
	holds := !p.opening.IsZero() || !p.awaiting.IsZero()
	if holds {
		next.Releases = p.state.Releases
	}
	for kind, l := range p.lingering {
		if !now.Before(l.until) {
			delete(p.lingering, kind)
			continue
		}
		if !holds {
			l.tunnel.Addr = netip.Addr{}
		}
		next.Tunnels = append(next.Tunnels, l.tunnel)
	}
	slices.SortFunc(next.Tunnels, func(a, b Tunnel) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
	c.Devices = nil
	if !slices.EqualFunc(next.Tunnels, p.state.Tunnels, Tunnel.equal) || !slices.Equal(next.Releases, p.state.Releases) {
		c.Devices = &next
	}
}

// leadDirectly keeps packets flowing when pools have lost their encapsulation: the routes from etcd are gone then, and
// BGP takes a moment to advertise the blocks. Until it has, the routes lead straight to the hosts that etcd named, if
// these are on one of our links.
func (p *Planner) leadDirectly(c *Changes, now time.Time) {
	for prefix, r := range c.Routes {
		delete(p.direct, prefix)
		if host, bare := p.unencapsulated(prefix, r); bare {
			p.direct[prefix] = direct{host, now.Add(directTime)}
		}
	}
	for prefix, d := range p.direct {
		by := p.reach(d.host, prefix)
		if !by.direct || !now.Before(d.until) {
			delete(p.direct, prefix)
			c.Routes[prefix] = nil
			continue
		}
		r := &Route{Destination: prefix, Kind: Unicast, Hops: by.hops, Origin: FromBGP}
		tellBy(c.Routes, p.state.Routes, prefix, r, Route.equal)
	}
}

// keepInMesh makes BGP advertise a prefix to the mesh for a while after its pool got an encapsulation.
func (p *Planner) keepInMesh(c *Changes, now time.Time) {
	for prefix, ad := range c.Advertisements {
		delete(p.meshed, prefix)
		was, had := p.state.Advertisements[prefix]
		if ad == nil || !ad.NoMesh || !had || was.NoMesh || !p.programmed {
			continue
		}
		p.meshed[prefix] = now.Add(meshTime)
		still := *ad
		still.NoMesh = false
		tell(c.Advertisements, p.state.Advertisements, prefix, &still)
	}
	for prefix, until := range p.meshed {
		if !now.Before(until) {
			delete(p.meshed, prefix)
			ad := p.state.Advertisements[prefix]
			ad.NoMesh = true
			c.Advertisements[prefix] = &ad
		}
	}
}
