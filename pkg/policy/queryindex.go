// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/calico-go/calico/pkg/selector"
)

// cheapest returns the restriction with the lowest total cost of terms.
func cheapest(restrictions [][]selector.Term, cost func(selector.Term) int) []selector.Term {
	var best []selector.Term
	least := -1
	for _, terms := range restrictions {
		sum := 0
		for _, t := range terms {
			sum += cost(t)
		}
		if least < 0 || sum < least {
			best, least = terms, sum
		}
	}
	return best
}

// index adds a query to the index under the terms that the fewest endpoints and queries share.
func (m *matcher) index(q *query) {
	switch {
	case q.tag != "":
		m.byTag[q.tag] = q
	case q.port != "":
		m.byPort[q.port] = q
	default:
		q.terms = cheapest(q.selector.Restrictions(), func(t selector.Term) int {
			others := 0
			if a := m.byLabel[t.Label]; a != nil && t.Any {
				others = len(a.any)
			} else if a != nil {
				others = len(a.values[t.Value])
			}
			return (m.population(t) + 1) * (others + 1)
		})
		if q.terms == nil {
			m.anything = append(m.anything, q)
		}
		for _, t := range q.terms {
			a := m.byLabel[t.Label]
			if a == nil {
				a = &asked{values: map[string][]*query{}}
				m.byLabel[t.Label] = a
			}
			if t.Any {
				a.any = append(a.any, q)
			} else {
				a.values[t.Value] = append(a.values[t.Value], q)
			}
		}
	}
}

func (m *matcher) unindex(q *query) {
	switch {
	case q.tag != "":
		delete(m.byTag, q.tag)
		return
	case q.port != "":
		delete(m.byPort, q.port)
		return
	case q.terms == nil:
		m.anything = without(m.anything, q)
		return
	}
	for _, t := range q.terms {
		a := m.byLabel[t.Label]
		if a == nil {
			continue // the term occurs twice
		}
		if t.Any {
			a.any = without(a.any, q)
		} else if a.values[t.Value] = without(a.values[t.Value], q); len(a.values[t.Value]) == 0 {
			delete(a.values, t.Value)
		}
		if len(a.any) == 0 && len(a.values) == 0 {
			delete(m.byLabel, t.Label)
		}
	}
}

// without removes q. It does not keep the order.
func without(all []*query, q *query) []*query {
	i := slices.Index(all, q)
	if i < 0 {
		return all
	}
	last := len(all) - 1
	all[i], all[last] = all[last], nil
	return all[:last]
}
