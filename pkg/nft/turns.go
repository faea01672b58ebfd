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

// turnRules is how many rules of policies and their users an Apply writes, unless a test says otherwise, besides those of one chain however
// many it has. The others wait for the next, and what comes meanwhile may go before them.
const turnRules = 512

// errWaits is why an endpoint is not programmed yet.
var errWaits = errors.New("a policy of its own is still being written, after smaller ones")

// work is what to write of a chain that may wait.
type work struct {
	name  string
	chain *chain
	rules int
	size  int // including its new sets; in order: plus the owner's smaller work
	leads int // 1 = to chains that must exist before
}

// ownerOf returns the owner of a policy or profile: its namespace, or itself.
func ownerOf(id policy.RulesID) string {
	if parts := strings.SplitN(id.Name, ".", 3); len(parts) > 1 && slices.Contains([]string{"knp", "k8s_ns", "ksa"}, parts[0]) {
		return parts[1]
	}
	return id.String()
}

// choose notes what must wait for another Apply, and what leads to it. In a new table nothing waits.
func (rs *ruleset) choose() error {
	waited := rs.later
	rs.later, rs.parts = make(map[string]int), make(map[string]int)
	rs.turns++
	if len(waited) == 0 {
		clear(rs.served)
	}
	if !rs.there || rs.rebuild {
		return nil
	}
	for name := range rs.changed {
		if s := rs.sets[name]; s != nil && s.wanted && !s.there && s.def.Data == table.TypeVerdict {
			return nil // it is created with all its elements
		}
	}
	all, err := rs.work()
	if err != nil {
		return err
	}
	rs.order(all, waited)
	rs.serve(all, waited)
	for more := len(rs.later) > 0; more; {
		more = false
		for name := range rs.dirty {
			c := rs.chains[name]
			if c.render != nil && rs.later[name] == 0 && slices.ContainsFunc(c.needs, func(to string) bool { return rs.later[to] > 0 && rs.lacks(to) }) {
				rs.later[name], more = cmp.Or(waited[name], rs.turns), true
			}
		}
	}
	rs.keep()
	return nil
}

// lacks reports whether the kernel has yet to get a chain, or part of it.
func (rs *ruleset) lacks(chain string) bool {
	c := rs.chains[chain]
	return c != nil && (!c.there || !c.whole)
}

// weight is how many rules take as long to write as the set.
func (s *set) weight() int { return 2 + len(s.elems)/8 }

// work returns what to write of the chains that may wait. Their new sets wait, until serve.
func (rs *ruleset) work() (all []work, err error) {
	for name := range rs.dirty {
		c := rs.chains[name]
		if c.render == nil {
			continue
		}
		if err := c.encode(); err != nil {
			return nil, fmt.Errorf("chain %s: %w", name, err)
		}
		before, after := common(c.have, c.rules)
		w := work{name: name, chain: c, rules: len(c.rules) - before - after}
		w.size = w.rules
		for _, to := range c.needs {
			if s := rs.sets[to]; s != nil && !s.there && s.wanted {
				w.size += s.weight()
				rs.later[to] = rs.turns
			} else if rs.lacks(to) {
				w.leads = 1
			}
		}
		if c.owner != "" && w.size > 0 {
			all = append(all, w)
		}
	}
	return all, nil
}

// order sorts by the owner's accumulated share, smallest first. In every other Apply, the chain that has waited longest without anything of
// its owner's being written goes first, however large it is.
func (rs *ruleset) order(all []work, waited map[string]int) {
	slices.SortFunc(all, func(a, b work) int {
		return cmp.Or(cmp.Compare(a.leads, b.leads), cmp.Compare(a.size, b.size), strings.Compare(a.name, b.name))
	})
	shares, longest := make(map[string]int), -1
	since := func(w work) int { return max(waited[w.name], rs.served[w.chain.owner]) }
	for i, w := range all {
		shares[w.chain.owner] += w.size
		all[i].size = shares[w.chain.owner]
		if waited[w.name] > 0 && w.leads == 0 && (longest < 0 || cmp.Or(cmp.Compare(since(w), since(all[longest])), cmp.Compare(waited[w.name], waited[all[longest].name])) < 0) {
			longest = i
		}
	}
	if longest >= 0 && rs.turns%2 == 1 {
		all[longest].size = 0
	}
	slices.SortStableFunc(all, func(a, b work) int { return cmp.Compare(a.size, b.size) })
}

// serve makes everything wait that exceeds a turn, except the first chain. A chain's new sets are created before it, in several turns if
// they are many. So is a new chain itself: nothing leads to it until it is complete.
func (rs *ruleset) serve(all []work, waited map[string]int) {
	for i, sum := 0, 0; i < len(all); i++ {
		w, fits := all[i], true
		for _, name := range w.chain.needs {
			if s := rs.sets[name]; s != nil && rs.later[name] > 0 && fits {
				if fits = i == 0 && sum == 0 || sum+s.weight() <= rs.turn; fits {
					sum += s.weight()
					delete(rs.later, name)
				}
			}
		}
		if fits && i == 0 && w.rules > rs.turn && rs.lacks(w.name) {
			rs.parts[w.name], w.chain.whole, fits = len(w.chain.rules)-w.rules+rs.turn, false, false
		}
		if fits = fits && (i == 0 || sum+w.rules <= rs.turn); !fits {
			rs.later[w.name] = cmp.Or(waited[w.name], rs.turns)
		} else if i > 0 {
			sum += w.rules
		}
		if fits || i == 0 {
			rs.served[w.chain.owner] = rs.turns
		}
	}
}

// keep makes removals wait if something in force may refer to what they remove, and set removals beyond a turn.
func (rs *ruleset) keep() {
	refers, gone := []string(nil), 0
	for name := range rs.later {
		if c := rs.chains[name]; c != nil {
			refers = append(refers, c.refers...)
		}
	}
	for name := range rs.changed {
		for key, was := range rs.sets[name].was {
			if was.there && rs.waitsFor(rs.sets[name], key) {
				refers = append(refers, was.data)
			}
		}
		if !rs.sets[name].wanted {
			if gone++; gone > rs.turn {
				rs.later[name] = rs.turns
			}
		}
	}
	for ; len(refers) > 0; refers = refers[1:] {
		name := refers[0]
		c, s := rs.chains[name], rs.sets[name]
		if rs.later[name] > 0 || (c == nil || c.render != nil) && (s == nil || s.wanted) {
			continue
		}
		if rs.later[name] = rs.turns; c != nil {
			refers = append(refers, c.refers...)
		}
	}
}

// waitsFor reports whether an element should lead to a chain that waits.
func (rs *ruleset) waitsFor(s *set, key string) bool {
	return s.def.Data == table.TypeVerdict && rs.later[s.elems[key]] > 0
}

// waiting reports whether an endpoint has a policy or profile that waits, or reaches its policies by a chain that does.
func (d *desired) waiting(path string, later map[string]int) bool {
	ep := d.interfaces.byPath[path]
	if len(later) == 0 || ep == nil {
		return false
	}
	for _, direction := range directions {
		if g := d.interfaces.groups.joined[slot{dispatchOf(direction), table.NameBytes(ep.Interface)}]; g != nil && later[g.chain] > 0 {
			return true
		}
		for _, ids := range ep.Lists() {
			if slices.ContainsFunc(ids, func(id policy.RulesID) bool { return later[render.RulesChain(id, direction)] > 0 }) {
				return true
			}
		}
	}
	return false
}
