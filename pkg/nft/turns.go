// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// turnRules is, unless a test says otherwise, how many rules of policies an Apply writes, or those of one policy that has more. The others wait for the
// next, with what asks them: what came meanwhile may go before.
const turnRules = 512

// errWaits is why an endpoint is not programmed yet.
var errWaits = errors.New("a policy of its own is still being written, after smaller ones")

// choose notes what is to wait for another Apply: of the policies to write the largest, and what leads to a chain that waits. Of what
// waited one goes on in every other Apply, however many small ones come. In a table that is made anew nothing waits.
func (rs *ruleset) choose() error {
	waited := rs.later
	rs.later = make(map[string]bool)
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
	for name := range rs.dirty {
		c := rs.chains[name]
		if c.render == nil {
			continue
		}
		if err := c.encode(); err != nil {
			return fmt.Errorf("chain %s: %w", name, err)
		}
		before, after := common(c.have, c.rules)
		if n := len(c.rules) - before - after; c.waits && n > 0 {
			all = append(all, work{name, n})
		}
	}
	slices.SortFunc(all, func(a, b work) int {
		return cmp.Or(cmp.Compare(a.rules, b.rules), strings.Compare(a.name, b.name))
	})
	sum, progress := 0, len(waited) == 0
	for i, w := range all {
		if i > 0 && sum+w.rules > rs.turn && (progress || !rs.passed || !waited[w.name]) {
			rs.later[w.name] = true
			continue
		}
		sum += w.rules
		progress = progress || waited[w.name]
	}
	rs.passed = !progress
	for more := len(rs.later) > 0; more; {
		more = false
		for name := range rs.dirty {
			c := rs.chains[name]
			if c.render != nil && !rs.later[name] && slices.ContainsFunc(c.leads, func(to string) bool { return rs.later[to] && !rs.chains[to].there }) {
				rs.later[name], more = true, true
			}
		}
	}
	return nil
}

// waitsFor reports whether an element is to lead to a chain that waits.
func (rs *ruleset) waitsFor(s *set, key string) bool {
	return s.def.Data == table.TypeVerdict && rs.later[s.elems[key]]
}

// waiting reports whether an endpoint asks a policy or profile that waits.
func (d *desired) waiting(path string) bool {
	if len(d.ruleset.later) == 0 {
		return false
	}
	for _, ids := range d.interfaces.byPath[path].Lists() {
		for _, id := range ids {
			if d.rules.waiting(id) {
				return true
			}
		}
	}
	return false
}

func (rc *ruleChains) waiting(id policy.RulesID) bool {
	return slices.ContainsFunc(directions[:], func(d model.Direction) bool { return rc.ruleset.later[render.RulesChain(id, d)] })
}
