// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"maps"
	"slices"
)

// applied are the rules that hold for an endpoint. Endpoints that the same
// policies pick and that have the same profiles share one, which keeps a change
// that concerns them all cheap. It does not change.
type applied struct {
	in, out       Verdicts
	rawIn, rawOut []RulesID
	all           []RulesID // each once
}

// ruling makes what is applied to the endpoints of one Flush.
type ruling struct {
	made  map[string]*applied // by what it follows from
	equal map[[2]*applied]bool
	uses  map[*applied]int // more or less endpoints that go by it
	key   []byte
	ids   []uint64
}

func newRuling() *ruling {
	return &ruling{made: map[string]*applied{}, equal: map[[2]*applied]bool{}, uses: map[*applied]int{}}
}

// of says what is applied to an endpoint. Only where untracked is set do
// untracked policies count.
func (r *ruling) of(ep *endpoint, untracked bool) *applied {
	r.ids, r.key = r.ids[:0], r.key[:0]
	for _, m := range ep.matches[forOwn] {
		r.ids = append(r.ids, m.query.id)
	}
	slices.Sort(r.ids)
	for _, id := range r.ids {
		r.key = binary.AppendUvarint(r.key, id)
	}
	kind := byte(0)
	if untracked {
		kind = 1
	}
	r.key = append(r.key, 0, kind) // no id is 0
	for _, p := range ep.profiles {
		r.key = binary.AppendUvarint(r.key, uint64(len(p.name)))
		r.key = append(r.key, p.name...)
	}
	a := r.made[string(r.key)]
	if a == nil {
		a = apply(ep, untracked)
		r.made[string(r.key)] = a
	}
	return a
}

// apply puts policies and profiles in order.
func apply(ep *endpoint, untracked bool) *applied {
	var policies []*policy
	for _, m := range ep.matches[forOwn] {
		policies = append(policies, m.query.policies...)
	}
	slices.SortFunc(policies, (*policy).compare)
	a := &applied{}
	for _, p := range policies {
		in, out := &a.in.Policies, &a.out.Policies
		if p.untracked {
			if !untracked {
				continue
			}
			in, out = &a.rawIn, &a.rawOut
		}
		if p.in {
			*in = addOnce(*in, p.id)
		}
		if p.out {
			*out = addOnce(*out, p.id)
		}
	}
	var profiles []RulesID
	for _, p := range ep.profiles {
		if id := (RulesID{KindProfile, p.name}); !slices.Contains(profiles, id) {
			profiles = append(profiles, id)
		}
	}
	a.in.Profiles, a.out.Profiles = profiles, profiles
	all := map[RulesID]struct{}{}
	for _, ids := range [...][]RulesID{a.in.Policies, a.out.Policies, a.rawIn, a.rawOut, profiles} {
		for _, id := range ids {
			all[id] = struct{}{}
		}
	}
	a.all = slices.Collect(maps.Keys(all))
	return a
}

// addOnce knows that equal ids stand side by side.
func addOnce(ids []RulesID, id RulesID) []RulesID {
	if n := len(ids); n > 0 && ids[n-1] == id {
		return ids
	}
	return append(ids, id)
}

// same compares what was applied with what is now, once for all endpoints.
func (r *ruling) same(old, now *applied) bool {
	if old == nil || now == nil {
		return old == now
	}
	pair := [2]*applied{old, now}
	is, known := r.equal[pair]
	if !known {
		is = old.in.equal(now.in) && old.out.equal(now.out) && slices.Equal(old.rawIn, now.rawIn) && slices.Equal(old.rawOut, now.rawOut)
		r.equal[pair] = is
	}
	return is
}

func (v Verdicts) equal(o Verdicts) bool {
	return slices.Equal(v.Policies, o.Policies) && slices.Equal(v.Profiles, o.Profiles)
}
