// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// Workload endpoints that ask the same policies and profiles in one direction
// go to one chain, a group's. The kernel walks all rules that a hook can reach
// with every change of one: that is what a change costs, and endpoints are many
// where what they ask is not.

// group is the chain of one direction that endpoints share.
type group struct {
	verdicts  policy.Verdicts
	direction model.Direction
	members   int
}

// groupChain names the chain by what is asked in it.
func groupChain(v policy.Verdicts, d model.Direction) string {
	h := sha256.New()
	for _, list := range [...][]policy.RulesID{v.Policies, v.Profiles} {
		for _, id := range list {
			fmt.Fprintf(h, "%d %s %s,", len(id.Name), id.Kind, id.Name)
		}
		h.Write([]byte{0})
	}
	return groupPrefix(d) + hex.EncodeToString(h.Sum(nil)[:8])
}

func groupPrefix(d model.Direction) string {
	if d == model.Outbound {
		return "from-"
	}
	return "to-"
}

// renderGroup is a group's chain. A packet comes back from it, marked if it is allowed, or
// not at all. The comment is every group's: a chain that is renamed keeps it.
func (d *desired) renderGroup(name string, g *group) Chain {
	passes := func(id policy.RulesID) bool { return passes(d.rules[id], g.direction) }
	c := Chain{Name: name, Comment: "shared by what @" + mapTo + " leads here", Rules: choices(g.verdicts, g.direction, g.direction == model.Inbound, passes)}
	if g.direction == model.Outbound {
		c.Comment = "shared by what @" + mapFrom + " leads here"
	}
	return c
}

// passes says whether a rule of a policy may send a packet on to the profiles.
func passes(r *policy.Rules, d model.Direction) bool {
	if r == nil {
		return false
	}
	list := r.Inbound
	if d == model.Outbound {
		list = r.Outbound
	}
	return slices.ContainsFunc(list, func(r policy.Rule) bool { return r.Action == model.ActionNextTier })
}

// dirtyGroups renders again the chains that ask a policy.
func (d *desired) dirtyGroups(id policy.RulesID, direction model.Direction) {
	for name, g := range d.groups {
		if g.direction == direction && slices.Contains(g.verdicts.Policies, id) {
			d.dirty[name] = true
		}
	}
}

// join sends a workload interface to the group of its verdicts, and away from
// the one that it was sent to before; nil = to none.
func (d *desired) join(dispatch, name string, v *policy.Verdicts, direction model.Direction) {
	m, key := d.sets[dispatch], nameBytes(name)
	before, after := m.elems[key], ""
	if v != nil {
		after = groupChain(*v, direction)
	}
	if before == after {
		return
	}
	d.changed[dispatch] = true
	if v == nil {
		m.remove(key)
	} else {
		g := d.groups[after]
		if g == nil {
			g = &group{verdicts: *v, direction: direction}
			d.groups[after] = g
			d.putChain(after, func() Chain { return d.renderGroup(after, g) })
		}
		g.members++
		m.put(key, after)
	}
	if g := d.groups[before]; g != nil {
		if g.members--; g.members == 0 {
			delete(d.groups, before)
			d.removeChain(before)
			if v != nil && d.heirs[after] == "" {
				d.heirs[after] = before
			}
		}
	}
}

// renames are the chains, by their new names, that need not be made, for there is
// one that nobody goes to any more: where a policy comes to all endpoints their
// chains get one rule more, and the maps stay as they are.
func (d *desired) renames() map[string]string {
	out := make(map[string]string)
	used := make(map[string]bool)
	for _, after := range slices.Sorted(maps.Keys(d.heirs)) {
		before := d.heirs[after]
		old, now := d.chains[before], d.chains[after]
		if old != nil && old.render == nil && old.there && now != nil && now.render != nil && !now.there && !used[before] {
			out[after], used[before] = before, true
		}
	}
	return out
}
