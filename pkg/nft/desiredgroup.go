// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// Workload endpoints that ask the same policies and profiles in one direction
// go to one chain, a group's. The kernel walks all rules that a hook can reach
// with every change of one: that is what a change costs, and endpoints are many
// where what they ask is not.

// groups are all of them.
type groups struct {
	asking  map[string]*group // by what is asked, as groupKey says
	named   map[string]*group // by the chain
	joined  map[slot]*group   // by the element that leads there
	changed map[*group]bool   // new ones, and those without members
	shifts  map[shift]*shifted
	asked   map[policy.RulesID]*asked
}

// asked is what the chains of groups need of one policy or profile. It is made anew
// when that changes.
type asked struct {
	effects [2]render.Effect // inbound, outbound
	jumps   []jumpRule
}

// jumpRule is a rule that asks it.
type jumpRule struct {
	direction model.Direction
	mark      table.MarkIs
	rule      *nfnl.Rule
}

func newGroups() groups {
	return groups{
		asking: make(map[string]*group), named: make(map[string]*group), joined: make(map[slot]*group),
		changed: make(map[*group]bool), shifts: make(map[shift]*shifted), asked: make(map[policy.RulesID]*asked),
	}
}

// group is the chain of one direction that endpoints share.
type group struct {
	verdicts  policy.Verdicts
	direction model.Direction
	key       string
	name      string            // of the chain; "" until nameGroups
	members   map[slot]struct{} // the interfaces' elements
	from      *group            // whose last member came here
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

// groupChain is the name of a group's chain when it is made.
func groupChain(v policy.Verdicts, d model.Direction) string {
	sum := sha256.Sum256(groupKey(nil, &v, "")[1:])
	return groupPrefix(d) + hex.EncodeToString(sum[:8])
}

// isGroupChain says whether a chain is named as a group's are.
func isGroupChain(name string, d model.Direction) bool {
	rest, ok := strings.CutPrefix(name, groupPrefix(d))
	sum, _, _ := strings.Cut(rest, "-")
	_, err := hex.DecodeString(sum)
	return ok && err == nil && len(sum) == 16
}

func groupPrefix(d model.Direction) string {
	if d == model.Outbound {
		return "from-"
	}
	return "to-"
}

func dispatchOf(d model.Direction) string {
	if d == model.Outbound {
		return render.MapFrom
	}
	return render.MapTo
}

// header is a group's chain without its rules. The comment is every group's: what
// a chain asks may change, its comment can't.
func (g *group) header() table.Chain {
	return table.Chain{Name: g.name, Comment: "shared by what @" + dispatchOf(g.direction) + " leads here"}
}

// asks are a group's questions. A packet comes back from them, marked if it is
// allowed, or not at all.
func (d *desired) asks(g *group) []render.Ask {
	at := 0
	if g.direction == model.Outbound {
		at = 1
	}
	return render.Choices(g.verdicts, g.direction == model.Inbound, func(id policy.RulesID) render.Effect { return d.asked(id).effects[at] })
}

func (d *desired) asked(id policy.RulesID) *asked {
	a := d.groups.asked[id]
	if a == nil {
		r := d.rules[id]
		a = &asked{effects: [2]render.Effect{render.EffectOf(r, model.Inbound), render.EffectOf(r, model.Outbound)}}
		d.groups.asked[id] = a
	}
	return a
}

// jump is the rule of an ask. It is the same in all chains, which are many where a
// policy comes to all endpoints.
func (a *asked) jump(x render.Ask, direction model.Direction) (*nfnl.Rule, error) {
	for i := range a.jumps {
		if j := &a.jumps[i]; j.mark == x.Mark && j.direction == direction {
			return j.rule, nil
		}
	}
	rule, err := nfnl.EncodeRule(x.Rule(direction))
	if err == nil {
		a.jumps = append(a.jumps, jumpRule{direction, x.Mark, rule})
	}
	return rule, err
}

func (d *desired) renderGroup(g *group) table.Chain {
	c := g.header()
	for _, a := range d.asks(g) {
		c.Rules = append(c.Rules, a.Rule(g.direction))
	}
	return c
}

// encodeGroup is renderGroup, encoded.
func (d *desired) encodeGroup(g *group) (table.Chain, []*nfnl.Rule, error) {
	list := d.asks(g)
	out := make([]*nfnl.Rule, len(list))
	for i, a := range list {
		rule, err := d.asked(a.ID).jump(a, g.direction)
		if err != nil {
			return table.Chain{}, nil, err
		}
		out[i] = rule
	}
	return g.header(), out, nil
}

// dirtyGroups renders again the chains that ask a policy or profile.
func (d *desired) dirtyGroups(id policy.RulesID, direction model.Direction) {
	for name, g := range d.groups.named {
		if g.direction == direction && (slices.Contains(g.verdicts.Policies, id) || slices.Contains(g.verdicts.Profiles, id)) {
			d.dirty[name] = true
		}
	}
}

// join sends a workload interface to the group of its verdicts, and away from
// the one that it was sent to before; nil = to none. nameGroups must follow.
func (d *desired) join(name string, v *policy.Verdicts, direction model.Direction) {
	at := slot{dispatchOf(direction), table.NameBytes(name)}
	before := d.groups.joined[at]
	var after *group
	if v != nil {
		var space [1024]byte
		key := groupKey(space[:0], v, direction)
		if after = d.groups.asking[string(key)]; after == nil {
			after = &group{verdicts: *v, direction: direction, key: string(key), members: make(map[slot]struct{})}
			d.groups.asking[after.key], d.groups.changed[after] = after, true
		}
	}
	if before == after {
		return
	}
	d.changed[at.set] = true
	switch {
	case after == nil:
		delete(d.groups.joined, at)
		d.sets[at.set].remove(at.key)
	default:
		d.groups.joined[at], after.members[at] = after, struct{}{}
		if after.name != "" {
			d.sets[at.set].put(at.key, after.name)
		}
	}
	if before == nil {
		return
	}
	delete(before.members, at)
	if len(before.members) == 0 {
		d.groups.changed[before] = true
		if after != nil {
			after.from = before
		}
	}
}

// nameGroups gives the groups that are new their chains, and takes them from those
// that nobody goes to any more. Of these the new ones have them first: where a
// policy comes to all endpoints their chains get one rule more, and the maps stay
// as they are.
func (d *desired) nameGroups() {
	d.shiftGroups()
	var fresh []*group
	for g := range d.groups.changed {
		switch {
		case len(g.members) == 0:
			delete(d.groups.asking, g.key)
		case g.name == "":
			fresh = append(fresh, g)
		}
	}
	slices.SortFunc(fresh, func(a, b *group) int { return strings.Compare(a.key, b.key) })
	for _, g := range fresh {
		if b := g.from; b != nil && len(b.members) == 0 && b.name != "" {
			d.nameGroup(g, b.name)
			b.name = ""
		}
	}
	for g := range d.groups.changed {
		if len(g.members) == 0 && g.name != "" {
			d.removeChain(g.name)
			delete(d.groups.named, g.name)
		}
	}
	for _, g := range fresh {
		if g.name == "" {
			d.nameGroup(g, d.groups.free(groupChain(g.verdicts, g.direction)))
		}
		g.from = nil
	}
	clear(d.groups.changed)
}

// free is the name, or where a group that asked this before has it, one like it.
func (gs *groups) free(name string) string {
	out := name
	for n := 2; gs.named[out] != nil; n++ {
		out = fmt.Sprintf("%s-%d", name, n)
	}
	return out
}

// nameGroup gives a group a chain, and leads its members there.
func (d *desired) nameGroup(g *group, name string) {
	g.name, d.groups.named[name] = name, g
	d.putChain(name, func() table.Chain { return d.renderGroup(g) })
	d.chains[name].encode = func() (table.Chain, []*nfnl.Rule, error) { return d.encodeGroup(g) }
	for at := range g.members {
		d.sets[at.set].put(at.key, name)
		d.changed[at.set] = true
	}
}
