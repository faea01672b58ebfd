// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"slices"
)

// applied is the rules of an endpoint. Endpoints selected by the same policies and with the same profiles share one, so
// that a change that affects all of them is cheap.
type applied struct {
	in, out               Verdicts
	rawIn, rawOut         []RulesID
	preDNAT               []RulesID
	forwardIn, forwardOut Verdicts
	endpoints             int // number of endpoints that use it
}

// equal compares the rules. nil equals empty rules.
func (a *applied) equal(o *applied) bool {
	return a == o || a != nil && o != nil && a.in.equal(o.in) && a.out.equal(o.out) && slices.Equal(a.rawIn, o.rawIn) && slices.Equal(a.rawOut, o.rawOut) &&
		slices.Equal(a.preDNAT, o.preDNAT) && a.forwardIn.equal(o.forwardIn) && a.forwardOut.equal(o.forwardOut)
}

// apply makes a the rules of an endpoint; nil means no rules.
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

// ruling computes the rules of the endpoints of one Flush.
type ruling struct {
	index *index
	made  map[string]*applied // by a key made from what determines it
	// closed is for invalid host endpoints: it asks no policy and allows nothing.
	closed *applied
	key    []byte
	ids    []uint64
}

func newRuling(x *index) *ruling {
	return &ruling{index: x, made: map[string]*applied{}, closed: &applied{}}
}

// of returns what applies to an endpoint, nil if nothing does.
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
	r.key = append(r.key, 0, kind) // no ID is 0
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

// apply sorts policies and profiles into the lists of an endpoint. Only host endpoints have untracked policies,
// policies before DNAT, and separate ones for forwarded packets.
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

// add appends a policy. Policies must be added in order.
func (v *Verdicts) add(p *policy) {
	if n := len(v.Policies); p.tier.says.pass && (n == 0 || v.Policies[n-1].Tier != p.id.Tier) {
		v.Passing = append(v.Passing, p.id.Tier)
	}
	v.Policies = append(v.Policies, p.id)
}
