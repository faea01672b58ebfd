// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
)

// adopt leaves groups the chains that the kernel leads their members to already:
// another run of this program has given them names.
func (f *Firewall) adopt(t nfnl.Contents) error {
	for _, direction := range [...]model.Direction{model.Inbound, model.Outbound} {
		name := dispatchOf(direction)
		if _, there := t.Sets[name]; !there {
			continue
		}
		leads := make(map[string]string)
		if err := f.conn.ReadElements(&f.desired.sets[name].def, func(e nfnl.Element) { leads[e.Key] = e.Data }); err != nil {
			return err
		}
		f.desired.adopt(direction, func(key string) string {
			if at, there := t.Chains[leads[key]]; there && at == "" {
				return leads[key]
			}
			return ""
		})
	}
	return nil
}

// adopt is that for one direction. leads says which chain a key leads to, "" = none.
func (d *desired) adopt(direction model.Direction, leads func(key string) string) {
	var all []*group
	for _, g := range d.groups.named {
		if g.direction == direction {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b *group) int { return strings.Compare(a.key, b.key) })
	chains := make(map[string]*group)
	var moved []*group
	for _, g := range all {
		if name := d.adoptable(g, leads, chains); name != "" {
			chains[name] = g
			moved = append(moved, g)
		}
	}
	for _, g := range all {
		if by := chains[g.name]; by != nil && by != g && !slices.Contains(moved, g) {
			moved = append(moved, g)
		}
	}
	moved = slices.DeleteFunc(moved, func(g *group) bool { return chains[g.name] == g })
	for _, g := range moved {
		d.removeChain(g.name)
		delete(d.groups.named, g.name)
		g.name = ""
	}
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		if g := chains[name]; g.name == "" {
			d.nameGroup(g, name)
		}
	}
	for _, g := range moved {
		if g.name == "" {
			d.nameGroup(g, d.groups.free(groupChain(g.verdicts, g.direction)))
		}
	}
}

// adoptable is the chain of a group's first member whose chain no other group has
// taken, "" where there is none.
func (d *desired) adoptable(g *group, leads func(key string) string, taken map[string]*group) string {
	keys := make([]string, 0, len(g.members))
	for at := range g.members {
		keys = append(keys, at.key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		name := leads(key)
		if taken[name] == nil && isGroupChain(name, g.direction) {
			return name
		}
	}
	return ""
}
