// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// groups are the chains that workload endpoints share: endpoints with the same policies and profiles in one direction share a chain. With
// each change of a rule, the kernel walks all rules that a hook can reach, so their number is the cost of a change; endpoints are many,
// but their combinations of policies are few.
//
// A group's chain is named after its policies and profiles at creation. A packet judged during a commit may see an element as it is after
// it, and a chain's rules as before it. So a chain passes from one group to another only if all elements of the latter led to just that
// chain: when a policy is added to all endpoints, or removed, each chain gains or loses a rule, and no element changes.
type groups struct {
	ruleset *ruleset
	rules   *ruleChains
	asking  map[string]*group // by groupKey
	joined  map[slot]*group   // by the element that leads there
	left    map[slot]*group   // what elements that moved since settle led to before; nil = nothing
	fresh   map[*group]bool   // those without a chain until settle
}

func newGroups(rs *ruleset, rc *ruleChains) *groups {
	return &groups{ruleset: rs, rules: rc, asking: make(map[string]*group), joined: make(map[slot]*group), left: make(map[slot]*group), fresh: make(map[*group]bool)}
}

// group is a chain of one direction that endpoints share.
type group struct {
	verdicts  policy.Verdicts
	direction model.Direction
	key       string
	chain     string            // the chain's name; "" until settle
	members   map[slot]struct{} // the interfaces' elements
}

// groupKey appends a key for the policies and profiles in v to b.
func groupKey(b []byte, v *policy.Verdicts, d model.Direction) []byte {
	name := func(s string) {
		b = append(append(strconv.AppendInt(b, int64(len(s)), 10), ' '), s...)
	}
	b = append(append(b, d...), 0)
	for tier, ids := range policy.ByTier(v.Policies) {
		name(tier)
		if v.Passes(tier) {
			b = append(b, " pass"...)
		}
		b = append(b, ':')
		for _, id := range ids {
			name(id.Name)
		}
		b = append(b, ',')
	}
	b = append(b, 0)
	for _, id := range v.Profiles {
		name(id.Name)
	}
	return b
}

// dispatchOf returns the map that leads to the groups' chains.
func dispatchOf(d model.Direction) string {
	if d == model.Outbound {
		return render.MapFrom
	}
	return render.MapTo
}

// join moves a workload interface to the group of its verdicts; nil = to none. settle must follow.
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
	if _, noted := gs.left[at]; !noted {
		gs.left[at] = before
	}
	if after == nil {
		delete(gs.joined, at)
		gs.ruleset.remove(at)
	} else {
		gs.joined[at], after.members[at] = after, struct{}{}
		if after.chain != "" {
			gs.ruleset.put(at, after.chain)
		}
	}
	if before != nil {
		delete(before.members, at)
	}
}

// settle gives new groups their chains, and removes the groups that nothing leads to any more.
func (gs *groups) settle() {
	for _, g := range slices.SortedFunc(maps.Keys(gs.fresh), func(a, b *group) int { return strings.Compare(a.key, b.key) }) {
		if len(g.members) == 0 {
			gs.drop(g)
			continue
		}
		if from := gs.origin(g); from != nil {
			gs.give(g, from.chain)
			from.chain = ""
		} else {
			gs.give(g, gs.free(chainName(g)))
		}
	}
	for _, g := range gs.left {
		if g != nil && len(g.members) == 0 && gs.asking[g.key] == g {
			gs.drop(g)
		}
	}
	clear(gs.fresh)
	clear(gs.left)
}

// origin returns the group that all members of a new one come from; nil if there isn't exactly one, or if it keeps other members.
func (gs *groups) origin(g *group) *group {
	var from *group
	for at := range g.members {
		b := gs.left[at]
		if b == nil || from != nil && from != b {
			return nil
		}
		from = b
	}
	if from.chain == "" || len(from.members) > 0 {
		return nil
	}
	for key, was := range gs.ruleset.sets[dispatchOf(g.direction)].was { // an element whose own new chain waits still leads there
		if _, comes := g.members[slot{dispatchOf(g.direction), key}]; was.there && was.data == from.chain && !comes {
			return nil
		}
	}
	return from
}

// of returns the group for the verdicts, created if missing.
func (gs *groups) of(v *policy.Verdicts, direction model.Direction) *group {
	var space [1024]byte
	key := groupKey(space[:0], v, direction)
	g := gs.asking[string(key)]
	if g == nil {
		g = &group{verdicts: *v, direction: direction, key: string(key), members: make(map[slot]struct{})}
		gs.asking[g.key], gs.fresh[g] = g, true
		gs.rules.use(v.Policies, 1)
		gs.rules.use(v.Profiles, 1)
	}
	return g
}

func (gs *groups) drop(g *group) {
	delete(gs.asking, g.key)
	if g.chain != "" {
		gs.ruleset.removeChain(g.chain)
	}
	gs.rules.use(g.verdicts.Policies, -1)
	gs.rules.use(g.verdicts.Profiles, -1)
}

// give makes a chain the group's, and leads its members there.
func (gs *groups) give(g *group, chain string) {
	g.chain = chain
	gs.ruleset.putChain(chain, func() table.Chain { return gs.render(g) })
	gs.ruleset.chains[chain].owner = ownerOf(slices.Concat(g.verdicts.Profiles, g.verdicts.Policies, []policy.RulesID{{Name: chain}})[0])
	for at := range g.members {
		gs.ruleset.put(at, chain)
	}
}

// chainName returns the initial name of a group's chain.
func chainName(g *group) string {
	sum := sha256.Sum256([]byte(g.key))
	if g.direction == model.Outbound {
		return "from-" + hex.EncodeToString(sum[:8])
	}
	return "to-" + hex.EncodeToString(sum[:8])
}

// free returns the name, with a suffix if a chain has it already.
func (gs *groups) free(name string) string {
	out := name
	for n := 2; gs.ruleset.chains[out] != nil; n++ {
		out = name + "-" + strconv.Itoa(n)
	}
	return out
}

// separate gives other chains to the groups whose chains the kernel has with other rules, from an earlier run of this program: elements
// that led there had other policies.
func (gs *groups) separate() {
	for _, g := range gs.asking {
		c := gs.ruleset.chains[g.chain]
		if c == nil || !c.there {
			continue
		}
		if err := c.encode(); err != nil || slices.EqualFunc(c.have, c.rules, func(have nfnl.Installed, want *nfnl.Rule) bool { return have.Hash == want.Hash }) {
			continue
		}
		gs.ruleset.removeChain(g.chain)
		gs.give(g, gs.free(g.chain))
	}
}

// renderUsers renders the groups with a policy or profile whose effect has changed.
func (gs *groups) renderUsers(id policy.RulesID, direction model.Direction) {
	for _, g := range gs.asking {
		if g.chain != "" && g.direction == direction && (slices.Contains(g.verdicts.Policies, id) || slices.Contains(g.verdicts.Profiles, id)) {
			gs.ruleset.renderAgain(g.chain)
		}
	}
}

// render renders the group's policies and profiles. A packet returns from the chain marked if it is allowed, or not at all.
func (gs *groups) render(g *group) table.Chain {
	c := table.Chain{Name: g.chain, Comment: "shared by what @" + dispatchOf(g.direction) + " leads here"}
	effect := func(id policy.RulesID) render.Effect { return gs.rules.effect(id, g.direction) }
	c.Rules = render.Choices(g.verdicts, g.direction, effect)
	return c
}
