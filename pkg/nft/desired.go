// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"maps"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// desired is the table as policy wants it, and beside each part what the kernel
// is known to hold. It is pure.
type desired struct {
	settings  policy.Settings
	endpoints map[string]*policy.Endpoint
	rules     map[policy.RulesID]*policy.Rules
	users     map[policy.RulesID]int                       // endpoints' references
	setUsers  map[policy.SetID]map[policy.RulesID]struct{} // rules that ask a set
	known     map[policy.SetID]policy.SetKind
	pools     policy.Pools
	tunnels   render.Tunnels
	uses      render.Uses

	interfaces map[string][]string // paths of those that claim a workload interface, sorted
	indexes    map[string]int      // of their links, 0 = it is not known
	hosts      map[string][]string // the same of a host's interface
	wildcards  []string
	groups     groups
	claims     map[slot][]claim  // elements that endpoints claim, the first has it
	claimed    map[string][]slot // by path

	there   bool // the kernel has the table
	rebuild bool // and it must be made anew
	total   totals
	chains  map[string]*chain
	sets    map[string]*set
	dirty   map[string]bool // names of chains to render again
	changed map[string]bool // names of sets with something to write
	touched map[string]bool // paths of endpoints to report on
}

func newDesired() *desired {
	d := &desired{
		endpoints: make(map[string]*policy.Endpoint), rules: make(map[policy.RulesID]*policy.Rules),
		users: make(map[policy.RulesID]int), setUsers: make(map[policy.SetID]map[policy.RulesID]struct{}),
		known: make(map[policy.SetID]policy.SetKind), interfaces: make(map[string][]string), indexes: make(map[string]int), hosts: make(map[string][]string),
		groups: newGroups(), claims: make(map[slot][]claim), claimed: make(map[string][]slot),
		chains: make(map[string]*chain), sets: make(map[string]*set),
		dirty: make(map[string]bool), changed: make(map[string]bool), touched: make(map[string]bool),
	}
	for _, s := range render.Sets() {
		d.addSet(s)
	}
	return d
}

// chain is one that shall be, or one that is still to be removed.
type chain struct {
	render func() table.Chain // nil = it is no longer wanted
	want   []nfnl.Hash        // of its rules, as last rendered
	there  bool               // the kernel has it
	have   []nfnl.Installed   // rules that the kernel has
	// encode renders and encodes at once, the chain without its rules; nil = as
	// render says.
	encode func() (table.Chain, []*nfnl.Rule, error)
}

// totals are of what the kernel holds.
type totals struct{ rules, sets, members int }

// holds notes the rules that the kernel has in a chain.
func (d *desired) holds(c *chain, rules []nfnl.Installed) {
	d.total.rules += len(rules) - len(c.have)
	c.have = rules
}

func (d *desired) renderer() render.Renderer {
	return render.Renderer{Settings: d.settings, Tunnels: d.tunnels, Fits: nfnl.Fits, Known: func(id policy.SetID) bool { _, ok := d.known[id]; return ok }}
}

// putChain says how a chain is rendered.
func (d *desired) putChain(name string, render func() table.Chain) {
	c := d.chains[name]
	if c == nil {
		c = &chain{}
		d.chains[name] = c
	}
	c.render, c.encode = render, nil
	d.dirty[name] = true
}

func (d *desired) removeChain(name string) {
	if c := d.chains[name]; c != nil {
		c.render = nil
		d.dirty[name] = true
	}
}

// configure takes new settings, on which every chain may depend.
func (d *desired) configure(s policy.Settings) {
	prefixes := !slices.Equal(d.settings.Prefixes, s.Prefixes)
	d.settings = s
	for name := range d.chains {
		d.dirty[name] = true
	}
	if prefixes {
		for _, path := range slices.Sorted(maps.Keys(d.endpoints)) {
			d.putEndpoint(path, d.endpoints[path])
		}
		d.nameGroups()
		d.putUses()
	}
	d.putBase()
}

func (d *desired) putBase() {
	needed := make(map[string]bool)
	for _, c := range d.renderer().Base(d.uses) {
		needed[c.Name] = true
		d.putChain(c.Name, func() table.Chain {
			all := d.renderer().Base(d.uses)
			return all[slices.IndexFunc(all, func(o table.Chain) bool { return o.Name == c.Name })]
		})
	}
	for _, c := range d.renderer().Everything() {
		if !needed[c.Name] {
			d.removeChain(c.Name)
		}
	}
}

// update folds changes in.
func (d *desired) update(c policy.Changes) {
	for id, change := range c.Sets {
		d.changeSet(id, change)
	}
	for id, r := range c.Rules {
		d.putRules(id, r)
	}
	var asking []*policy.Endpoint
	for path, ep := range c.Endpoints {
		if d.asksOther(d.endpoints[path], ep) {
			asking = append(asking, ep) // unless another wants its interface
		} else {
			d.putEndpoint(path, ep)
		}
	}
	for _, ep := range asking {
		d.putEndpoint(ep.Path, ep)
	}
	d.nameGroups()
	if c.Pools != nil {
		d.pools = *c.Pools
		for _, version := range [...]int{4, 6} {
			d.replace(render.Versioned(render.SetPools, version), intervals(d.pools.All, version))
			d.replace(render.Versioned(render.SetMasquerade, version), intervals(d.pools.Masquerade, version))
		}
	}
	d.dropUnused(c)
	d.putUses()
}

// putUses renders the chains that every packet passes again where others are needed.
func (d *desired) putUses() {
	u := render.Uses{
		Wildcard: len(d.wildcards) > 0, Hosts: len(d.hosts) > 0,
		NAT:        len(d.sets[render.Versioned(render.MapDNAT, 4)].elems)+len(d.sets[render.Versioned(render.MapDNAT, 6)].elems) > 0,
		Untracked:  len(d.sets[render.MapUntrackIn].elems)+len(d.sets[render.MapUntrackOut].elems) > 0,
		Masquerade: len(d.pools.Masquerade) > 0,
		Shut:       len(d.sets[render.SetShut].elems) > 0,
		Tunnels:    d.tunnels,
	}
	u.Translated = d.uses.Translated || u.NAT || u.Masquerade
	if u != d.uses {
		d.uses = u
		d.putBase()
	}
}

// keepTranslating has connections go on as they are that another run of this program translated.
func (d *desired) keepTranslating(t nfnl.Contents) {
	if _, there := t.Chains[render.ChainSNAT]; there && !d.uses.Translated {
		d.uses.Translated = true
		d.putBase()
	}
}

// putRules takes the rules of a policy or profile; nil = there are none any more.
func (d *desired) putRules(id policy.RulesID, r *policy.Rules) {
	for s := range setsOf(d.rules[id]) {
		delete(d.setUsers[s], id)
	}
	for _, direction := range [...]model.Direction{model.Inbound, model.Outbound} {
		if render.EffectOf(d.rules[id], direction) != render.EffectOf(r, direction) {
			d.dirtyGroups(id, direction)
		}
	}
	if r == nil {
		delete(d.rules, id)
	} else {
		d.rules[id] = r
	}
	delete(d.groups.asked, id)
	for s := range setsOf(r) {
		if d.setUsers[s] == nil {
			d.setUsers[s] = make(map[policy.RulesID]struct{})
		}
		d.setUsers[s][id] = struct{}{}
	}
	d.putRulesChains(id)
}

// putRulesChains renders the chains of a policy or profile. Where an endpoint
// asks what isn't there, they drop.
func (d *desired) putRulesChains(id policy.RulesID) {
	for _, direction := range [...]model.Direction{model.Inbound, model.Outbound} {
		d.putChain(render.RulesChain(id, direction), func() table.Chain { return d.renderer().Rules(id, d.rules[id], direction) })
	}
}

// dropUnused removes what neither is given nor asked for any more.
func (d *desired) dropUnused(c policy.Changes) {
	for id, r := range c.Rules {
		if r == nil {
			d.dropRules(id)
		}
	}
	for id := range c.Sets {
		if len(d.setUsers[id]) == 0 {
			delete(d.setUsers, id)
		}
	}
}

func (d *desired) dropRules(id policy.RulesID) {
	if d.rules[id] != nil || d.users[id] > 0 {
		return
	}
	delete(d.groups.asked, id)
	d.removeChain(render.RulesChain(id, model.Inbound))
	d.removeChain(render.RulesChain(id, model.Outbound))
}

// setsOf are the sets that rules ask.
func setsOf(r *policy.Rules) map[policy.SetID]struct{} {
	out := make(map[policy.SetID]struct{})
	if r == nil {
		return out
	}
	for _, rules := range [...][]policy.Rule{r.Inbound, r.Outbound} {
		for i := range rules {
			for _, c := range [...]*policy.Criteria{&rules[i].Match, &rules[i].Not} {
				for _, list := range [...][]policy.SetID{c.SrcSets, c.DstSets, c.SrcPortSets, c.DstPortSets} {
					for _, id := range list {
						out[id] = struct{}{}
					}
				}
			}
		}
	}
	return out
}
