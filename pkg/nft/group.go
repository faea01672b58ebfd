// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// groups are the chains that workload endpoints share: those that ask the same policies
// and profiles in one direction go to one chain. The kernel walks all rules that a hook can
// reach with every change of one: that is what a change costs, and endpoints are many
// where what they ask is not.
//
// A group's chain is named after what is in it, and never changes. A packet that is
// judged while a transaction commits may find an element as it is after it, and a chain's rules as they
// were before: so it finds the rules of its endpoint, old or new, and never those of another.
type groups struct {
	ruleset *ruleset
	rules   *ruleChains
	asking  map[string]*group // by what is asked, as groupKey says
	joined  map[slot]*group   // by the element that leads there
}

func newGroups(rs *ruleset, rc *ruleChains) *groups {
	return &groups{ruleset: rs, rules: rc, asking: make(map[string]*group), joined: make(map[slot]*group)}
}

// group is the chain of one direction that endpoints share.
type group struct {
	verdicts  policy.Verdicts
	direction model.Direction
	key       string
	chain     string            // its name
	members   map[slot]struct{} // the interfaces' elements
}

// groupKey stands for what is asked.
func groupKey(b []byte, v *policy.Verdicts, d model.Direction) []byte {
	b = append(append(b, d...), 0)
	for _, list := range [...][]policy.RulesID{v.Policies, v.Profiles} {
		for _, id := range list {
			b = strconv.AppendInt(b, int64(len(id.Name)), 10)
			b = append(append(append(append(append(b, ' '), id.Kind...), ' '), id.Name...), ',')
		}
		b = append(b, 0)
	}
	return b
}

// dispatchOf is the map that leads to the groups' chains.
func dispatchOf(d model.Direction) string {
	if d == model.Outbound {
		return render.MapFrom
	}
	return render.MapTo
}

// join sends a workload interface to the group of its verdicts, and away from
// the one that it was sent to before; nil = to none.
func (gs *groups) join(name string, v *policy.Verdicts, direction model.Direction) {
	at := slot{dispatchOf(direction), table.NameBytes(name)}
	before := gs.joined[at]
	var after *group
	if v != nil {
		after = gs.of(v, direction)
	}
	if before == after {
		return
	}
	if after == nil {
		delete(gs.joined, at)
		gs.ruleset.remove(at)
	} else {
		gs.joined[at], after.members[at] = after, struct{}{}
		gs.ruleset.put(at, after.chain)
	}
	if before != nil {
		if delete(before.members, at); len(before.members) == 0 {
			gs.drop(before)
		}
	}
}

// of is the group of what is asked, made where there is none.
func (gs *groups) of(v *policy.Verdicts, direction model.Direction) *group {
	var space [1024]byte
	key := groupKey(space[:0], v, direction)
	g := gs.asking[string(key)]
	if g == nil {
		g = &group{verdicts: *v, direction: direction, key: string(key), members: make(map[slot]struct{})}
		gs.asking[g.key] = g
		gs.rules.use(v.Policies, 1)
		gs.rules.use(v.Profiles, 1)
		gs.name(g)
	}
	return g
}

func (gs *groups) drop(g *group) {
	delete(gs.asking, g.key)
	gs.ruleset.removeChain(g.chain)
	gs.rules.use(g.verdicts.Policies, -1)
	gs.rules.use(g.verdicts.Profiles, -1)
}

// name gives a group the chain of what it asks, and leads its members there.
func (gs *groups) name(g *group) {
	sum := sha256.New()
	sum.Write([]byte(g.key))
	for _, list := range [...][]policy.RulesID{g.verdicts.Policies, g.verdicts.Profiles} {
		for _, id := range list {
			sum.Write([]byte{byte(gs.rules.effect(id, g.direction))})
		}
	}
	prefix := "to-"
	if g.direction == model.Outbound {
		prefix = "from-"
	}
	if g.chain != "" {
		gs.ruleset.removeChain(g.chain)
	}
	g.chain = prefix + hex.EncodeToString(sum.Sum(nil)[:8])
	gs.ruleset.putChain(g.chain, func() table.Chain { return gs.render(g) })
	for at := range g.members {
		gs.ruleset.put(at, g.chain)
	}
}

// renameUsers gives other chains to the groups that ask a policy or profile whose
// effect has changed.
func (gs *groups) renameUsers(id policy.RulesID, direction model.Direction) {
	for _, g := range gs.asking {
		if g.direction == direction && (slices.Contains(g.verdicts.Policies, id) || slices.Contains(g.verdicts.Profiles, id)) {
			gs.name(g)
		}
	}
}

// render asks the group's policies and profiles. A packet comes back from its chain marked if it is
// allowed, or not at all.
func (gs *groups) render(g *group) table.Chain {
	c := table.Chain{Name: g.chain, Comment: "shared by what @" + dispatchOf(g.direction) + " leads here"}
	effect := func(id policy.RulesID) render.Effect { return gs.rules.effect(id, g.direction) }
	for _, a := range render.Choices(g.verdicts, g.direction == model.Inbound, effect) {
		c.Rules = append(c.Rules, a.Rule(g.direction))
	}
	return c
}
