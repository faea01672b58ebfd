// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// turnRules is, unless a test says otherwise, how many rules an Apply writes of policies and of what asks them, beside those of one chain however many it
// has. The others wait for the next: what came meanwhile may go before.
const turnRules = 512

// errWaits is why an endpoint is not programmed yet.
var errWaits = errors.New("a policy of its own is still being written, after smaller ones")

// choose notes what is to wait for another Apply: of the chains that may wait the largest, and what leads to a chain that waits. In every
// other Apply the one that has waited longest goes first, however large it is and however many small ones come. In a table that is made
// anew nothing waits, nor where as much as a turn is there to be removed, which no Apply does while anything waits.
func (rs *ruleset) choose() error {
	waited := rs.later
	rs.later = make(map[string]int)
	rs.turns++
	if !rs.there || rs.rebuild {
		return nil
	}
	type work struct {
		name  string
		rules int
	}
	var all []work
	for name := range rs.changed {
		if s := rs.sets[name]; s != nil && s.wanted && !s.there && s.def.Data == table.TypeVerdict {
			return nil // it is made with all that it has
		}
	}
	longest, gone := "", 0
	for name := range rs.dirty {
		c := rs.chains[name]
		if c.render == nil {
			gone++
			continue
		}
		if err := c.encode(); err != nil {
			return fmt.Errorf("chain %s: %w", name, err)
		}
		before, after := common(c.have, c.rules)
		if n := len(c.rules) - before - after; c.waits && n > 0 {
			all = append(all, work{name, n})
			if since := waited[name]; since > 0 && (longest == "" || cmp.Or(cmp.Compare(since, waited[longest]), strings.Compare(name, longest)) < 0) {
				longest = name
			}
		}
	}
	if gone > rs.turn {
		return nil
	}
	if rs.turns%2 == 0 {
		longest = ""
	}
	first := func(name string) int {
		switch {
		case name == longest:
			return 0
		case slices.ContainsFunc(rs.chains[name].leads, func(to string) bool { return !rs.chains[to].there }):
			return 2 // what it leads to comes before
		}
		return 1
	}
	slices.SortFunc(all, func(a, b work) int {
		return cmp.Or(cmp.Compare(first(a.name), first(b.name)), cmp.Compare(a.rules, b.rules), strings.Compare(a.name, b.name))
	})
	for i, sum := 0, 0; i < len(all); i++ {
		if i > 0 && sum+all[i].rules > rs.turn {
			rs.later[all[i].name] = cmp.Or(waited[all[i].name], rs.turns)
		} else if i > 0 {
			sum += all[i].rules
		}
	}
	for more := len(rs.later) > 0; more; {
		more = false
		for name := range rs.dirty {
			c := rs.chains[name]
			if c.render != nil && rs.later[name] == 0 && slices.ContainsFunc(c.leads, func(to string) bool { return rs.later[to] > 0 && !rs.chains[to].there }) {
				rs.later[name], more = rs.turns, true
			}
		}
	}
	return nil
}

// waitsFor reports whether an element is to lead to a chain that waits.
func (rs *ruleset) waitsFor(s *set, key string) bool {
	return s.def.Data == table.TypeVerdict && rs.later[s.elems[key]] > 0
}

// waiting reports whether an endpoint asks a policy or profile that waits, or by a chain that does.
func (d *desired) waiting(path string) bool {
	ep, rs := d.interfaces.byPath[path], d.ruleset
	if len(rs.later) == 0 || ep == nil {
		return false
	}
	for _, direction := range directions {
		if g := d.interfaces.groups.joined[slot{dispatchOf(direction), table.NameBytes(ep.Interface)}]; g != nil && rs.later[g.chain] > 0 {
			return true
		}
		for _, ids := range ep.Lists() {
			if slices.ContainsFunc(ids, func(id policy.RulesID) bool { return rs.later[render.RulesChain(id, direction)] > 0 }) {
				return true
			}
		}
	}
	return false
}
