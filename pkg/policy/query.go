// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/calico-go/calico/pkg/selector"

// The two matchers: sets query endpoints of all hosts, policies those of this host.
const (
	forAll = iota
	forOwn
)

// query selects endpoints by selector, by tag or by the name of a port.
type query struct {
	id       uint64 // unique in its matcher, not 0
	selector *selector.Selector
	tag      string
	port     string
	text     string // the selector's text, if policies share the query
	// terms are what the query is indexed by: an endpoint without any of them cannot match. nil = any endpoint could.
	terms     []selector.Term
	endpoints []matched // that match
	tried     uint64    // the matcher's epoch of the last attempt
	hit, had  uint64    // epochs in which it matched, and in which it had matched before

	set      *set // the set that it fills, in the matcher for all
	policies []*policy
}

func (q *query) matches(ep *endpoint) bool {
	switch {
	case q.selector != nil:
		return !ep.service && q.selector.Matches(ep.label)
	case q.tag != "":
		return ep.nets == nil && ep.tagged(q.tag)
	}
	return ep.hasPort(q.port)
}

// matcher records which endpoints match which queries. Using indexes on both sides, it tries a changed one only on
// those that could match.
type matcher struct {
	which     int
	profiles  *profileIndex
	endpoints map[*endpoint]struct{}
	labels    map[string]*labelled // endpoints by their own labels
	ports     map[string]*bag      // and by the names of their ports

	queries  int
	lastID   uint64
	byLabel  map[string]*asked // selectors by the terms they are indexed by
	anything []*query          // selectors without a restriction
	byTag    map[string]*query
	byPort   map[string]*query

	epoch uint64
	fresh []*query // scratch
	// changed is called after every match that began or ended.
	changed func(ep *endpoint, q *query, begins bool)
}

// labelled are the endpoints with a label, by its value.
type labelled struct {
	values map[string]*bag
	total  int
}

// asked has the queries for a label, by the value that they require.
type asked struct {
	values map[string][]*query
	any    []*query
}

func newMatcher(which int, profiles *profileIndex) *matcher {
	return &matcher{
		which: which, profiles: profiles,
		endpoints: map[*endpoint]struct{}{}, labels: map[string]*labelled{}, ports: map[string]*bag{},
		byLabel: map[string]*asked{}, byTag: map[string]*query{}, byPort: map[string]*query{},
	}
}

func (m *matcher) begin(ep *endpoint, q *query) {
	q.endpoints = append(q.endpoints, matched{ep, len(ep.matches[m.which])})
	ep.matches[m.which] = append(ep.matches[m.which], match{q, len(q.endpoints) - 1})
	m.changed(ep, q, true)
}

// end ends the i-th match of an endpoint.
func (m *matcher) end(ep *endpoint, i int) {
	all := ep.matches[m.which]
	q, pos := all[i].query, all[i].pos
	if moved := all[len(all)-1]; moved.query != q {
		all[i] = moved
		moved.query.endpoints[moved.pos].at = i
	}
	ep.matches[m.which] = all[:len(all)-1]
	last := len(q.endpoints) - 1
	if moved := q.endpoints[last]; pos != last {
		q.endpoints[pos] = moved
		moved.matches[m.which][moved.at].pos = pos
	}
	q.endpoints = q.endpoints[:last]
	m.changed(ep, q, false)
}

func (m *matcher) unmatch(ep *endpoint) {
	for i := len(ep.matches[m.which]) - 1; i >= 0; i-- {
		m.end(ep, i)
	}
}

// rematch tries an endpoint on the queries that it could match.
func (m *matcher) rematch(ep *endpoint) {
	if m.queries == 0 {
		return
	}
	m.epoch++
	for _, old := range ep.matches[m.which] {
		old.query.had = m.epoch
	}
	m.fresh = m.fresh[:0]
	m.tryAll(ep, m.anything)
	for name, value := range ep.labels {
		m.tryLabel(ep, name, value)
	}
	for _, p := range ep.profiles {
		for name, value := range p.labels {
			m.tryLabel(ep, name, value)
		}
		for tag := range p.tags {
			m.tryLabel(ep, tag, "")
			if q := m.byTag[tag]; q != nil {
				m.try(ep, q)
			}
		}
	}
	for _, p := range ep.ports {
		if q := m.byPort[p.Name]; q != nil {
			m.try(ep, q)
		}
	}
	for i := len(ep.matches[m.which]) - 1; i >= 0; i-- {
		if ep.matches[m.which][i].query.hit != m.epoch {
			m.end(ep, i)
		}
	}
	for _, q := range m.fresh {
		m.begin(ep, q)
	}
}

func (m *matcher) tryLabel(ep *endpoint, name, value string) {
	if a := m.byLabel[name]; a != nil {
		m.tryAll(ep, a.values[value])
		m.tryAll(ep, a.any)
	}
}

func (m *matcher) tryAll(ep *endpoint, queries []*query) {
	for _, q := range queries {
		m.try(ep, q)
	}
}

func (m *matcher) try(ep *endpoint, q *query) {
	if q.tried == m.epoch {
		return
	}
	q.tried = m.epoch
	if !q.matches(ep) {
		return
	}
	q.hit = m.epoch
	if q.had != m.epoch {
		m.fresh = append(m.fresh, q)
	}
}

// ask adds a query and finds the endpoints that match it.
func (m *matcher) ask(q *query) {
	m.queries++
	m.lastID++
	q.id = m.lastID
	m.index(q)
	m.epoch++
	try := func(ep *endpoint) {
		all := ep.matches[m.which]
		if found := len(all) > 0 && all[len(all)-1].query == q; !found && q.matches(ep) {
			m.begin(ep, q)
		}
	}
	profile := func(p *profile) { p.endpoints[m.which].each(try) }
	switch {
	case q.tag != "":
		m.profiles.each(selector.Term{Label: q.tag, Any: true}, profile)
	case q.port != "":
		if b := m.ports[q.port]; b != nil {
			b.each(try)
		}
	case q.terms == nil:
		for ep := range m.endpoints {
			try(ep)
		}
	default:
		terms := cheapest(q.selector.Restrictions(), m.population)
		for _, t := range terms {
			m.each(t, try)
			m.profiles.each(t, profile)
		}
	}
}

// drop removes a query and ends all its matches.
func (m *matcher) drop(q *query) {
	m.queries--
	m.unindex(q)
	for len(q.endpoints) > 0 {
		last := q.endpoints[len(q.endpoints)-1]
		m.end(last.endpoint, last.at)
	}
}

// each calls f for the endpoints whose own labels satisfy a term.
func (m *matcher) each(t selector.Term, f func(*endpoint)) {
	l := m.labels[t.Label]
	switch {
	case l == nil:
	case t.Any:
		for _, b := range l.values {
			b.each(f)
		}
	case l.values[t.Value] != nil:
		l.values[t.Value].each(f)
	}
}

// population returns how many endpoints a term leads to.
func (m *matcher) population(t selector.Term) int {
	n := 0
	if l := m.labels[t.Label]; l != nil {
		if t.Any {
			n = l.total
		} else if b := l.values[t.Value]; b != nil {
			n = b.len()
		}
	}
	m.profiles.each(t, func(p *profile) { n += p.endpoints[m.which].len() })
	return n
}
