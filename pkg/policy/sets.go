// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// set is a set that rules refer to. Its addresses are not stored: they follow from the endpoints that its query matches.
type set struct {
	id      SetID
	kind    SetKind
	text    string
	query   *query
	refs    int             // number of Rules in use
	told    bool            // Flush has returned it: changes are recorded from then on
	pending map[Member]bool // since the last Flush; true = added
	// nets has the networks of the network sets that the query matches, and how often each is in them. cover is the least
	// that contains them all, or did before they became stale.
	nets  map[netip.Prefix]int
	cover []netip.Prefix
	stale bool
}

// setID derives the ID from the definition of the set.
func setID(kind string, of string) SetID {
	sum := sha256.Sum256([]byte(kind + "\x00" + of))
	return SetID(kind[:1] + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:20])
}

// sets has the sets that rules refer to.
type sets struct {
	index   *index
	byID    map[SetID]*set
	touched map[*set]struct{} // to be examined by the next Flush
}

// need returns the set of a query, creating it if unknown. It is not counted as used yet.
func (ss *sets) need(what, of string, kind SetKind, q query) *set {
	id := setID(what, of)
	s := ss.byID[id]
	if s == nil {
		s = &set{id: id, kind: kind, text: what + " " + of, query: &q}
		q.set = s
		ss.byID[id] = s
		ss.touched[s] = struct{}{}
	}
	return s
}

func (ss *sets) tag(tag string) *set { return ss.need("tag", tag, KindAddrs, query{tag: tag}) }

func (ss *sets) port(name string) *set { return ss.need("port", name, KindPorts, query{port: name}) }

func (ss *sets) selector(text string) (*set, error) {
	sel, err := selector.Parse(text)
	if err != nil {
		return nil, err
	}
	return ss.need("selector", sel.String(), KindAddrs, query{selector: sel}), nil
}

// hold counts a use of sets; release ends one.
func (ss *sets) hold(sets []*set) {
	for _, s := range sets {
		s.refs++
		ss.touched[s] = struct{}{}
	}
}

func (ss *sets) release(sets []*set) {
	for _, s := range sets {
		s.refs--
		ss.touched[s] = struct{}{}
	}
}

// contributes calls f for each member that an endpoint adds to the set.
func (s *set) contributes(ep *endpoint, f func(Member)) {
	if s.kind == KindAddrs {
		for _, a := range ep.addrs {
			f(Member{Addr: a})
		}
		return
	}
	for i, p := range ep.ports {
		if p.Name != s.query.port || slices.Contains(ep.ports[:i], p) {
			continue
		}
		for _, a := range ep.addrs {
			f(Member{a, p.Protocol, p.Port})
		}
	}
}

// has reports whether an endpoint that the set's query matches provides member m.
func (s *set) has(ep *endpoint, m Member) bool {
	return s.kind == KindAddrs || slices.ContainsFunc(ep.ports, func(p model.EndpointPort) bool {
		return p.Name == s.query.port && p.Protocol == m.Protocol && p.Port == m.Port
	})
}

// membership records what the beginning or end of a match changes in a set: nothing if another endpoint with the
// address is in it.
func (ss *sets) membership(ep *endpoint, q *query, begins bool) {
	s := q.set
	ss.countNets(s, ep.nets, begins)
	if !s.told {
		return
	}
	s.contributes(ep, func(m Member) {
		if ss.index.owners.others(m.Addr, ep, func(o *endpoint) bool { return o.picked(q) && s.has(o, m) }) {
			return
		}
		if was, ok := s.pending[m]; ok && was != begins {
			delete(s.pending, m)
			return
		}
		if s.pending == nil {
			s.pending = map[Member]bool{}
		}
		s.pending[m] = begins
		ss.touched[s] = struct{}{}
	})
}

// countNets counts networks that a set gains or loses.
func (ss *sets) countNets(s *set, nets []netip.Prefix, begins bool) {
	for _, p := range nets {
		if s.nets == nil {
			s.nets = map[netip.Prefix]int{}
		}
		if begins {
			s.nets[p]++
		} else if s.nets[p]--; s.nets[p] == 0 {
			delete(s.nets, p)
		}
		s.stale = true
		ss.touched[s] = struct{}{}
	}
}

// coverAgain works out the cover, and reports whether it has changed.
func (s *set) coverAgain() bool {
	if !s.stale {
		return false
	}
	before := s.cover
	s.cover, s.stale = outermost(slices.Collect(maps.Keys(s.nets))), false
	return !slices.Equal(s.cover, before)
}

// flush returns the changes of the sets that were touched.
func (ss *sets) flush() map[SetID]*SetChange {
	out := map[SetID]*SetChange{}
	for s := range ss.touched {
		switch {
		case s.refs == 0:
			delete(ss.byID, s.id)
			if s.told {
				s.told = false
				ss.index.all.drop(s.query)
				out[s.id] = &SetChange{Kind: s.kind, Text: s.text, Gone: true}
			}
		case !s.told:
			ss.index.all.ask(s.query)
			s.told = true
			s.coverAgain()
			out[s.id] = &SetChange{Kind: s.kind, Text: s.text, New: true, Added: s.members(), Nets: s.cover}
		case s.coverAgain() || len(s.pending) > 0:
			c := &SetChange{Kind: s.kind, Text: s.text, Nets: s.cover}
			for m, added := range s.pending {
				if added {
					c.Added = append(c.Added, m)
				} else {
					c.Removed = append(c.Removed, m)
				}
			}
			slices.SortFunc(c.Added, Member.Compare)
			slices.SortFunc(c.Removed, Member.Compare)
			out[s.id] = c
			s.pending = nil
		}
	}
	clear(ss.touched)
	return out
}

// members returns all members of a set, sorted.
func (s *set) members() []Member {
	all := make([]Member, 0, len(s.query.endpoints))
	for _, ep := range s.query.endpoints {
		s.contributes(ep.endpoint, func(m Member) { all = append(all, m) })
	}
	slices.SortFunc(all, Member.Compare)
	return slices.Compact(all)
}
