// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"slices"
)

// applied are the rules that hold for an endpoint. Endpoints that the same
// policies pick and that have the same profiles share one, which keeps a change
// that concerns them all cheap. It does not change.
type applied struct {
	in, out       Verdicts
	rawIn, rawOut []RulesID
}

// lists are those of Endpoint.Lists. nil has none.
func (a *applied) lists() [6][]RulesID {
	if a == nil {
		return [6][]RulesID{}
	}
	return [...][]RulesID{a.in.Policies, a.in.Profiles, a.out.Policies, a.out.Profiles, a.rawIn, a.rawOut}
}

// ruling makes what is applied to the endpoints of one Flush.
type ruling struct {
	made  map[string]*applied // by what it follows from
	turns map[pair]*turn
	// closed is for invalid host endpoints: nobody is asked, and nothing allowed.
	closed *applied
	key    []byte
	ids    []uint64
}

// pair is what was applied, and what is now; nil = nothing.
type pair struct{ old, now *applied }

// turn is what is worked out of a pair once for all endpoints.
type turn struct {
	same      bool
	endpoints int // that go by the new one, and went by the old one
}

func newRuling() *ruling {
	return &ruling{made: map[string]*applied{}, turns: map[pair]*turn{}, closed: &applied{}}
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
	a.in.Policies, a.out.Policies = make([]RulesID, 0, len(policies)), make([]RulesID, 0, len(policies))
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
	profiles := make([]RulesID, 0, len(ep.profiles))
	for _, p := range ep.profiles {
		if id := (RulesID{KindProfile, p.name}); !slices.Contains(profiles, id) {
			profiles = append(profiles, id)
		}
	}
	a.in.Profiles, a.out.Profiles = profiles, profiles
	return a
}

// addOnce knows that equal ids stand side by side.
func addOnce(ids []RulesID, id RulesID) []RulesID {
	if n := len(ids); n > 0 && ids[n-1] == id {
		return ids
	}
	return append(ids, id)
}

// turn is that of a pair.
func (r *ruling) turn(old, now *applied) *turn {
	at := pair{old, now}
	t := r.turns[at]
	if t == nil {
		t = &turn{same: (old == nil) == (now == nil)}
		before, after := old.lists(), now.lists()
		for i := range before {
			t.same = t.same && slices.Equal(before[i], after[i])
		}
		r.turns[at] = t
	}
	return t
}
