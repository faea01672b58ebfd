// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// ruleChains are the chains of policies and profiles, and the sets that their rules look up.
type ruleChains struct {
	ruleset  *ruleset
	renderer func() render.Renderer
	rules    map[policy.RulesID]*policy.Rules
	users    map[policy.RulesID]int                       // how many lists of groups and host endpoints name them
	setUsers map[policy.SetID]map[policy.RulesID]struct{} // rules that look up a set
	known    map[policy.SetID]policy.SetKind
	nets     map[policy.SetID][]netip.Prefix // of sets that have any
}

func newRuleChains(rs *ruleset, renderer func() render.Renderer) *ruleChains {
	return &ruleChains{
		ruleset: rs, renderer: renderer, rules: make(map[policy.RulesID]*policy.Rules), users: make(map[policy.RulesID]int),
		setUsers: make(map[policy.SetID]map[policy.RulesID]struct{}), known: make(map[policy.SetID]policy.SetKind),
		nets: make(map[policy.SetID][]netip.Prefix),
	}
}

func (rc *ruleChains) effect(id policy.RulesID, d model.Direction) render.Effect {
	return render.EffectOf(rc.rules[id], d)
}

// put sets the rules of a policy or profile; nil = they are gone.
func (rc *ruleChains) put(id policy.RulesID, r *policy.Rules) {
	before := setsOf(rc.rules[id])
	for s := range before {
		if delete(rc.setUsers[s], id); len(rc.setUsers[s]) == 0 {
			delete(rc.setUsers, s)
		}
	}
	for s := range setsOf(r) {
		if rc.setUsers[s] == nil {
			rc.setUsers[s] = make(map[policy.RulesID]struct{})
		}
		rc.setUsers[s][id] = struct{}{}
	}
	if r == nil {
		delete(rc.rules, id)
	} else {
		rc.rules[id] = r
	}
	maps.Copy(before, setsOf(r))
	for s := range before {
		if len(rc.nets[s]) > 0 && rc.asksNets(s) != (rc.hasNets(s, 4) || rc.hasNets(s, 6)) {
			rc.putNets(s)
		}
	}
	rc.render(id)
}

// render puts the chains of a policy or profile that exists or is used: if it doesn't exist, they drop. Otherwise it removes the chains.
func (rc *ruleChains) render(id policy.RulesID) {
	for _, direction := range directions {
		name := render.RulesChain(id, direction)
		if rc.rules[id] == nil && rc.users[id] == 0 {
			rc.ruleset.removeChain(name)
		} else {
			rc.ruleset.putChain(name, func() table.Chain { return rc.renderer().Rules(id, rc.rules[id], direction) })
			c := rc.ruleset.chains[name]
			c.owner = ownerOf(id)
			c.asks = func() (sets []string) { // of both IP versions, even if this direction's rules don't use them
				for s := range setsOf(rc.rules[id]) {
					for _, version := range versions {
						if sets = append(sets, render.PolicySetName(version, s, rc.known[s])); rc.hasNets(s, version) {
							sets = append(sets, render.NetSetName(version, s))
						}
					}
				}
				return sets
			}
		}
	}
}

// use changes by n the count of lists that name policies and profiles.
func (rc *ruleChains) use(ids []policy.RulesID, n int) {
	for _, id := range ids {
		before := rc.users[id]
		rc.users[id] += n
		if rc.users[id] == 0 {
			delete(rc.users, id)
		}
		if rc.rules[id] == nil && (before == 0 || rc.users[id] == 0) {
			rc.render(id)
		}
	}
}

// setsOf returns the sets that rules look up.
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

// changeSet applies a change of a policy's set, which is one of ours for each IP version.
func (rc *ruleChains) changeSet(id policy.SetID, c *policy.SetChange) {
	kind, there := rc.known[id]
	if !there {
		kind = c.Kind
	}
	if !slices.Equal(rc.nets[id], c.Nets) {
		if rc.nets[id] = c.Nets; len(c.Nets) == 0 {
			delete(rc.nets, id)
		}
		rc.putNets(id)
	}
	if c.Gone {
		delete(rc.known, id)
		for _, version := range versions {
			rc.ruleset.removeSet(render.PolicySetName(version, id, kind))
		}
		rc.renderUsers(id)
		return
	}
	if !there {
		rc.known[id] = kind
		rc.renderUsers(id)
		for _, version := range versions {
			rc.ruleset.addSet(render.PolicySet(version, id, kind, c.Text))
		}
	}
	for _, m := range c.Removed {
		if at, ok := member(id, kind, m); ok {
			rc.ruleset.remove(at)
		}
	}
	for _, m := range c.Added {
		if at, ok := member(id, kind, m); ok {
			rc.ruleset.put(at, "")
		}
	}
}

// hasNets reports whether a set's networks of an IP version are looked up.
func (rc *ruleChains) hasNets(id policy.SetID, version int) bool {
	s := rc.ruleset.sets[render.NetSetName(version, id)]
	return s != nil && s.wanted
}

// asksNets reports whether rules look up a set's networks. Those of Kubernetes' policies don't.
func (rc *ruleChains) asksNets(id policy.SetID) bool {
	for user := range rc.setUsers[id] {
		if !user.PodsOnly() {
			return true
		}
	}
	return false
}

// putNets puts the networks of a set into a set of their own for each IP version that has any, if rules look them up: addresses still come
// and go one by one, and may be in a network.
func (rc *ruleChains) putNets(id policy.SetID) {
	asked := rc.asksNets(id)
	for _, version := range versions {
		elements := map[string]string{}
		if asked {
			elements = intervals(rc.nets[id], version)
		}
		name, had := render.NetSetName(version, id), rc.hasNets(id, version)
		switch {
		case len(elements) > 0:
			rc.ruleset.addSet(render.NetSet(version, id))
			rc.ruleset.replace(name, elements)
		case had:
			rc.ruleset.removeSet(name)
		}
		if had != (len(elements) > 0) {
			rc.renderUsers(id)
		}
	}
}

// member returns the element for a member.
func member(id policy.SetID, kind policy.SetKind, m policy.Member) (slot, bool) {
	if !m.Addr.IsValid() {
		return slot{}, false
	}
	a := m.Addr.Unmap()
	at := slot{render.PolicySetName(versionOf(a), id, kind), table.AddrBytes(a)}
	if kind == policy.KindPorts {
		at.key = table.Concat(at.key, string([]byte{byte(m.Protocol)}), table.PortBytes(m.Port))
	}
	return at, true
}

// renderUsers renders the users of a set that has come or gone.
func (rc *ruleChains) renderUsers(id policy.SetID) {
	for user := range rc.setUsers[id] {
		rc.render(user)
	}
}
