// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"slices"
)

// applied are the rules that hold for an endpoint. Endpoints that the same
// policies pick and that have the same profiles share one, which keeps a change
// that concerns them all cheap.
type applied struct {
	in, out               Verdicts
	rawIn, rawOut         []RulesID
	preDNAT               []RulesID
	forwardIn, forwardOut Verdicts
	endpoints             int // that go by it
}

// equal compares the rules; nil is like none.
func (a *applied) equal(o *applied) bool {
	return a == o || a != nil && o != nil && a.in.equal(o.in) && a.out.equal(o.out) && slices.Equal(a.rawIn, o.rawIn) && slices.Equal(a.rawOut, o.rawOut) &&
		slices.Equal(a.preDNAT, o.preDNAT) && a.forwardIn.equal(o.forwardIn) && a.forwardOut.equal(o.forwardOut)
}

// apply has an endpoint go by a, nil = by nothing.
func (b *rulebook) apply(l *local, a *applied) {
	if a != nil {
		if a.endpoints++; a.endpoints == 1 {
			b.use(a, 1)
		}
	}
	if old := l.applied; old != nil {
		if old.endpoints--; old.endpoints == 0 {
			b.use(old, -1)
		}
	}
	l.applied = a
}

// ruling makes what is applied to the endpoints of one Flush.
type ruling struct {
	index *index
	made  map[string]*applied // by what it follows from
	// closed is for invalid host endpoints: no policy is asked, and nothing allowed.
	closed *applied
	key    []byte
	ids    []uint64
}

func newRuling(x *index) *ruling {
	return &ruling{index: x, made: map[string]*applied{}, closed: &applied{}}
}

// of says what is applied to an endpoint, nil = nothing.
func (r *ruling) of(l *local, told *Endpoint) *applied {
	switch {
	case told.Dropped != "" || told.Interface == "" && !told.Wildcard:
		return nil
	case l.invalid != nil:
		return r.closed
	}
	ep := r.index.endpoints[l.path]
	r.ids, r.key = r.ids[:0], r.key[:0]
	for _, m := range ep.matches[forOwn] {
		r.ids = append(r.ids, m.query.id)
	}
	slices.Sort(r.ids)
	for _, id := range r.ids {
		r.key = binary.AppendUvarint(r.key, id)
	}
	kind := byte(0)
	if told.Workload {
		kind = 1
	}
	r.key = append(r.key, 0, kind) // no id is 0
	for _, p := range ep.profiles {
		r.key = binary.AppendUvarint(r.key, uint64(len(p.name)))
		r.key = append(r.key, p.name...)
	}
	a := r.made[string(r.key)]
	if a == nil {
		a = apply(ep, told.Workload)
		r.made[string(r.key)] = a
	}
	return a
}

// apply puts policies and profiles in order. Host endpoints alone have untracked policies, those before DNAT, and
// others of forwarded packets.
func apply(ep *endpoint, workload bool) *applied {
	var policies []*policy
	for _, m := range ep.matches[forOwn] {
		policies = append(policies, m.query.policies...)
	}
	slices.SortFunc(policies, (*policy).compare)
	a := &applied{}
	a.in.Policies, a.out.Policies = make([]RulesID, 0, len(policies)), make([]RulesID, 0, len(policies))
	for _, p := range policies {
		switch {
		case p.how.preDNAT:
			if !workload {
				a.preDNAT = append(a.preDNAT, p.id)
			}
		case !p.how.untracked:
			if p.in {
				a.in.add(p)
			}
			if p.out {
				a.out.add(p)
			}
			if p.how.forward && !workload {
				if p.in {
					a.forwardIn.add(p)
				}
				if p.out {
					a.forwardOut.add(p)
				}
			}
		case !workload:
			if p.in {
				a.rawIn = append(a.rawIn, p.id)
			}
			if p.out {
				a.rawOut = append(a.rawOut, p.id)
			}
		}
	}
	profiles := make([]RulesID, 0, len(ep.profiles))
	for _, p := range ep.profiles {
		if id := profileID(p.name); !slices.Contains(profiles, id) {
			profiles = append(profiles, id)
		}
	}
	a.in.Profiles, a.out.Profiles = profiles, profiles
	return a
}

// add adds a policy, the last of all so far.
func (v *Verdicts) add(p *policy) {
	if n := len(v.Policies); p.tier.says.pass && (n == 0 || v.Policies[n-1].Tier != p.id.Tier) {
		v.Passing = append(v.Passing, p.id.Tier)
	}
	v.Policies = append(v.Policies, p.id)
}
