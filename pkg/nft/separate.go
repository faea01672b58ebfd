// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"maps"
	"slices"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
)

// separate gives groups other chains where somebody would come to one, or leave it, in
// the very transaction that changes its rules. That is not at once for every packet: one
// that is being judged meanwhile finds the new element, and behind it the old rules,
// those of whoever had the chain before. In a chain that is new it finds none, and is
// dropped: see move. One that is held up while two transactions take place finds the
// new rules behind the old element.
func (d *desired) separate() error {
	crossed := make(map[string]bool) // names of chains
	for _, name := range [...]string{render.MapFrom, render.MapTo} {
		s := d.sets[name]
		for key, was := range s.was {
			if to, wanted := s.elems[key]; wanted && to != was.data {
				crossed[to], crossed[was.data] = true, true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(crossed)) {
		g := d.groups.named[name]
		if g == nil || !d.dirty[name] || !d.chains[name].there {
			continue
		}
		_, list, err := d.encodeGroup(g)
		if err != nil {
			return fmt.Errorf("chain %s: %w", name, err)
		}
		if slices.EqualFunc(d.chains[name].have, list, func(have nfnl.Installed, want *nfnl.Rule) bool { return have.Hash == want.Hash }) {
			continue
		}
		d.removeChain(name)
		delete(d.groups.named, name)
		base := groupChain(g.verdicts, g.direction)
		to := base
		for n := 2; d.chains[to] != nil; n++ {
			to = fmt.Sprintf("%s-%d", base, n)
		}
		d.nameGroup(g, to)
	}
	return nil
}

// move says whether somebody is led from one chain to another that is new: then that
// comes in a transaction before, for a packet that is being judged to find its rules.
// Whoever is led nowhere yet passes nothing anyway.
func (d *desired) move(chains []planned) bool {
	fresh := make(map[string]bool)
	for _, c := range chains {
		if c.fresh {
			fresh[c.name] = true
		}
	}
	for _, name := range [...]string{render.MapFrom, render.MapTo} {
		s := d.sets[name]
		for key, was := range s.was {
			if to := s.elems[key]; was.there && to != was.data && fresh[to] {
				return true
			}
		}
	}
	return false
}
