// SPDX-License-Identifier: Apache-2.0

// Package selector is the language that picks endpoints by their labels, like
//
//	role == "db" && !(env in {"dev", "test"} || has(quarantine))
//
// A Selector is parsed once and matched often: matching does not allocate.
package selector

import (
	"slices"
	"strings"
)

// Selector is a parsed expression. The zero value is all(). A Selector does
// not change and may be shared.
type Selector struct{ root node }

// node is one operator of the expression and, for and, or and not, what it is
// applied to.
type node struct {
	op    op
	label string
	value string   // of a comparison
	set   []string // of in and not in: sorted, each value once
	kids  []node   // of and, or: two or more; of not: one
}

type op uint8

const (
	opAll op = iota
	opGlobal
	opHas
	opEqual
	opNotEqual
	opIn
	opNotIn
	opContains
	opStartsWith
	opEndsWith
	opNot
	opAnd
	opOr
)

// Matches reports whether labels satisfy the selector. labels gives the value
// of a label and whether it is there at all. A label that is missing satisfies
// != and not in, and nothing else.
func (s *Selector) Matches(labels func(name string) (value string, ok bool)) bool {
	return s.root.matches(labels)
}

func (n *node) matches(labels func(string) (string, bool)) bool {
	switch n.op {
	case opAnd:
		for i := range n.kids {
			if !n.kids[i].matches(labels) {
				return false
			}
		}
		return true
	case opOr:
		for i := range n.kids {
			if n.kids[i].matches(labels) {
				return true
			}
		}
		return false
	case opNot:
		return !n.kids[0].matches(labels)
	case opAll, opGlobal:
		return true
	}
	value, ok := labels(n.label)
	if !ok {
		return n.op == opNotEqual || n.op == opNotIn
	}
	switch n.op {
	case opHas:
		return true
	case opEqual:
		return value == n.value
	case opNotEqual:
		return value != n.value
	case opIn:
		return n.holds(value)
	case opNotIn:
		return !n.holds(value)
	case opContains:
		return strings.Contains(value, n.value)
	case opStartsWith:
		return strings.HasPrefix(value, n.value)
	default: // opEndsWith
		return strings.HasSuffix(value, n.value)
	}
}

func (n *node) holds(value string) bool {
	_, found := slices.BinarySearch(n.set, value)
	return found
}

// String returns the canonical text. Parsing it gives an equal selector, and selectors that differ only in white space,
// quotes, superfluous parentheses, doubled negation or the order of a set have the same text.
func (s *Selector) String() string { return string(s.root.appendTo(nil)) }

func (n *node) appendTo(b []byte) []byte {
	switch n.op {
	case opAll:
		return append(b, "all()"...)
	case opGlobal:
		return append(b, "global()"...)
	case opHas:
		return append(append(append(b, "has("...), n.label...), ')')
	case opIn, opNotIn:
		return n.appendSet(append(b, n.label...))
	case opNot:
		b = append(b, '!')
		if n.kids[0].grouped() {
			return n.kids[0].appendGroup(b)
		}
		return n.kids[0].appendTo(b)
	case opAnd:
		for i := range n.kids {
			if i > 0 {
				b = append(b, " && "...)
			}
			if n.kids[i].op == opOr {
				b = n.kids[i].appendGroup(b)
			} else {
				b = n.kids[i].appendTo(b)
			}
		}
		return b
	case opOr:
		for i := range n.kids {
			if i > 0 {
				b = append(b, " || "...)
			}
			b = n.kids[i].appendTo(b)
		}
		return b
	}
	b = append(b, n.label...)
	switch n.op {
	case opEqual:
		b = append(b, " == "...)
	case opNotEqual:
		b = append(b, " != "...)
	case opContains:
		b = append(b, " contains "...)
	case opStartsWith:
		b = append(b, " starts with "...)
	default: // opEndsWith
		b = append(b, " ends with "...)
	}
	return appendString(b, n.value)
}

// grouped reports whether a ! before n needs parentheses, or reads better with them.
func (n *node) grouped() bool { return n.op != opHas && n.op != opAll && n.op != opGlobal }

func (n *node) appendGroup(b []byte) []byte { return append(n.appendTo(append(b, '(')), ')') }

func (n *node) appendSet(b []byte) []byte {
	if n.op == opIn {
		b = append(b, " in {"...)
	} else {
		b = append(b, " not in {"...)
	}
	for i, v := range n.set {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendString(b, v)
	}
	return append(b, '}')
}

// appendString quotes with ", or with ' if the string contains ": it cannot contain both.
func appendString(b []byte, s string) []byte {
	quote := byte('"')
	if strings.IndexByte(s, '"') >= 0 {
		quote = '\''
	}
	return append(append(append(b, quote), s...), quote)
}
