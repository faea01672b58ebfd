// SPDX-License-Identifier: Apache-2.0

package selector

import "slices"

// Term is a condition on one label: that it exists, with Value unless Any.
type Term struct {
	Label, Value string
	Any          bool
}

// maxRestrictions bounds how many restrictions an index can choose from.
const maxRestrictions = 16

// Restrictions returns what an index can go by. Labels that match the selector meet every restriction, each by at least one
// of its terms. Labels that meet them all need not match. No restrictions: the selector may match any labels, even none. A
// restriction without terms: the selector matches nothing.
func (s *Selector) Restrictions() [][]Term { return s.root.restrictions(false) }

// restrictions returns the restrictions of the node or, if negated, of its opposite.
func (n *node) restrictions(negated bool) [][]Term {
	switch n.op {
	case opAll, opGlobal:
		if negated {
			return [][]Term{{}}
		}
		return nil
	case opNot:
		return n.kids[0].restrictions(!negated)
	case opAnd, opOr:
		if (n.op == opAnd) != negated {
			return n.conjunction(negated)
		}
		return n.disjunction(negated)
	case opNotEqual, opNotIn:
		negated = !negated
	}
	if negated {
		return nil // a missing label would match
	}
	switch n.op {
	case opEqual, opNotEqual:
		return [][]Term{{{Label: n.label, Value: n.value}}}
	case opIn, opNotIn:
		terms := make([]Term, len(n.set))
		for i, v := range n.set {
			terms[i] = Term{Label: n.label, Value: v}
		}
		return [][]Term{terms}
	default:
		return [][]Term{{{Label: n.label, Any: true}}}
	}
}

// conjunction returns the restrictions of all operands: each of them restricts the whole.
func (n *node) conjunction(negated bool) [][]Term {
	var all [][]Term
	for i := range n.kids {
		all = append(all, n.kids[i].restrictions(negated)...)
	}
	if len(all) > maxRestrictions {
		slices.SortStableFunc(all, func(a, b []Term) int { return weight(a) - weight(b) })
		all = all[:maxRestrictions]
	}
	return all
}

// disjunction returns one restriction with terms of every operand, or none if an operand has none.
func (n *node) disjunction(negated bool) [][]Term {
	terms := []Term{}
	for i := range n.kids {
		kid := n.kids[i].restrictions(negated)
		if len(kid) == 0 {
			return nil
		}
		terms = append(terms, slices.MinFunc(kid, func(a, b []Term) int { return weight(a) - weight(b) })...)
	}
	return [][]Term{terms}
}

// weight is small if few labels are likely to meet one of the terms.
func weight(terms []Term) int {
	w := len(terms)
	for i := range terms {
		if terms[i].Any {
			w += 8
		}
	}
	return w
}
