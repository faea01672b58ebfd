// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

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

// chain is the group's. A packet comes back from it, marked if it is allowed.
func (g *group) chain(name string) Chain {
	return Chain{Name: name, Comment: g.text(), Rules: choices(g.verdicts, g.direction)}
}

// text says what is asked.
func (g *group) text() string {
	var parts []string
	for _, part := range [...]struct {
		one, many string
		ids       []policy.RulesID
	}{{"policy ", "policies ", g.verdicts.Policies}, {"profile ", "profiles ", g.verdicts.Profiles}} {
		var names []string
		for _, id := range part.ids {
			names = append(names, id.Name)
		}
		switch len(names) {
		case 0:
		case 1:
			parts = append(parts, part.one+names[0])
		default:
			parts = append(parts, part.many+strings.Join(names, ", "))
		}
	}
	if len(parts) == 0 {
		return "no policy and no profile"
	}
	return comment(strings.Join(parts, "; "), "")
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
			d.putChain(after, func() Chain { return g.chain(after) })
		}
		g.members++
		m.put(key, after)
	}
	if g := d.groups[before]; g != nil {
		if g.members--; g.members == 0 {
			delete(d.groups, before)
			d.removeChain(before)
		}
	}
}
