// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxLength bounds an expression, in bytes.
	maxLength = 64 << 10
	// maxLabel bounds a label's name, in bytes.
	maxLabel = 512
	// maxDepth bounds how deep parentheses nest.
	maxDepth = 64
)

// Error says where an expression is wrong, and why.
type Error struct {
	Pos    int // bytes from the start
	Reason string
}

// Error returns a text like "at byte 7: want a string".
func (e *Error) Error() string { return fmt.Sprintf("at byte %d: %s", e.Pos, e.Reason) }

// Parse parses an expression; the empty one is all(). The error is an *Error.
func Parse(text string) (*Selector, error) {
	return (&parser{text: text, labelled: func(int, string) {}}).parse()
}

// Relabel returns the expression as written, with each label replaced by the result of rename. Errors that aren't rename's are *Errors.
func Relabel(text string, rename func(label string) (string, error)) (string, error) {
	var b strings.Builder
	var failed error
	end := 0
	p := parser{text: text, labelled: func(start int, label string) {
		name, err := rename(label)
		failed = cmp.Or(failed, err)
		b.WriteString(text[end:start] + name)
		end = start + len(label)
	}}
	if _, err := p.parse(); err != nil || failed != nil {
		return "", cmp.Or(err, failed)
	}
	b.WriteString(text[end:])
	if _, err := Parse(b.String()); err != nil {
		return "", err
	}
	return b.String(), nil
}

func (p *parser) parse() (*Selector, error) {
	text := p.text
	if len(text) > maxLength {
		return nil, &Error{maxLength, fmt.Sprintf("%d bytes long: at most %d", len(text), maxLength)}
	}
	p.space()
	if p.done() {
		return &Selector{}, nil
	}
	root, err := p.or()
	if err != nil {
		return nil, err
	}
	if !p.done() {
		return nil, p.want("&&, || or the end")
	}
	s := &Selector{root}
	// The canonical text has more white space, but is never twice as long. It
	// must parse, too.
	if len(text) > maxLength/2 && len(s.String()) > maxLength {
		return nil, &Error{len(text), fmt.Sprintf("more than %d bytes long once in its canonical form", maxLength)}
	}
	return s, nil
}

// parser is a recursive descent parser. Every method leaves it behind the white space that follows what it read.
type parser struct {
	text     string
	pos      int
	depth    int
	labelled func(start int, label string) // called with each label
}

func (p *parser) done() bool { return p.pos == len(p.text) }

func (p *parser) space() {
	for !p.done() {
		c, n := utf8.DecodeRuneInString(p.text[p.pos:])
		if !unicode.IsSpace(c) {
			return
		}
		p.pos += n
	}
}

// take consumes s, if that is next.
func (p *parser) take(s string) bool {
	if !strings.HasPrefix(p.text[p.pos:], s) {
		return false
	}
	p.pos += len(s)
	p.space()
	return true
}

// want returns the error that something else was found.
func (p *parser) want(what string) error {
	if p.done() {
		return &Error{p.pos, "want " + what + ", have the end"}
	}
	c, _ := utf8.DecodeRuneInString(p.text[p.pos:])
	return &Error{p.pos, fmt.Sprintf("want %s, have %q", what, c)}
}

// or := and ("||" and)*
func (p *parser) or() (node, error) { return p.chain(opOr, "||", (*parser).and) }

// and := not ("&&" not)*
func (p *parser) and() (node, error) { return p.chain(opAnd, "&&", (*parser).not) }

// chain parses operands between separators. A group with the same operator is merged into it: a && (b && c) is a && b && c.
func (p *parser) chain(op op, sep string, operand func(*parser) (node, error)) (node, error) {
	first, err := operand(p)
	if err != nil {
		return node{}, err
	}
	if !strings.HasPrefix(p.text[p.pos:], sep) {
		return first, nil
	}
	all := node{op: op}
	all.absorb(first)
	for p.take(sep) {
		next, err := operand(p)
		if err != nil {
			return node{}, err
		}
		all.absorb(next)
	}
	return all, nil
}

func (n *node) absorb(kid node) {
	if kid.op == n.op {
		n.kids = append(n.kids, kid.kids...)
	} else {
		n.kids = append(n.kids, kid)
	}
}

// not := "!"* primary
func (p *parser) not() (node, error) {
	negated := false
	for p.take("!") {
		negated = !negated
	}
	n, err := p.primary()
	switch {
	case err != nil || !negated:
		return n, err
	case n.op == opNot: // !(!x)
		return n.kids[0], nil
	case p.depth == maxDepth && n.grouped(): // String puts it in parentheses
		return node{}, p.tooDeep()
	}
	return node{op: opNot, kids: []node{n}}, nil
}

// primary := "(" or ")" | "all()" | "global()" | "has(" label ")" | comparison
func (p *parser) primary() (node, error) {
	if p.take("(") {
		if p.depth == maxDepth {
			return node{}, p.tooDeep()
		}
		p.depth++
		n, err := p.or()
		p.depth--
		if err != nil {
			return node{}, err
		}
		return n, p.closing()
	}
	start := p.pos
	label, err := p.label()
	if err != nil {
		return node{}, err
	}
	switch {
	case label == "all" && p.take("("):
		return node{op: opAll}, p.closing()
	case label == "global" && p.take("("):
		return node{op: opGlobal}, p.closing()
	case label == "has" && p.take("("):
		start = p.pos
		if label, err = p.label(); err != nil {
			return node{}, err
		}
		p.labelled(start, label)
		return node{op: opHas, label: label}, p.closing()
	}
	p.labelled(start, label)
	return p.comparison(label)
}

func (p *parser) tooDeep() error {
	return &Error{p.pos, fmt.Sprintf("parentheses nest deeper than %d", maxDepth)}
}

func (p *parser) closing() error {
	if !p.take(")") {
		return p.want(")")
	}
	return nil
}

// comparison parses what follows a label. Its words are not reserved: a label may be called in, too.
func (p *parser) comparison(label string) (node, error) {
	switch {
	case p.take("=="):
		return p.against(opEqual, label)
	case p.take("!="):
		return p.against(opNotEqual, label)
	}
	start := p.pos
	switch p.word() {
	case "in":
		return p.among(opIn, label)
	case "not":
		if p.word() == "in" {
			return p.among(opNotIn, label)
		}
	case "contains":
		return p.against(opContains, label)
	case "starts":
		if p.word() == "with" {
			return p.against(opStartsWith, label)
		}
	case "ends":
		if p.word() == "with" {
			return p.against(opEndsWith, label)
		}
	}
	p.pos = start
	return node{}, p.want("==, !=, in, not in, contains, starts with or ends with")
}

func (p *parser) against(op op, label string) (node, error) {
	value, err := p.str()
	return node{op: op, label: label, value: value}, err
}

// among reads "{" [string ("," string)*] [","] "}".
func (p *parser) among(op op, label string) (node, error) {
	if !p.take("{") {
		return node{}, p.want("{")
	}
	n := node{op: op, label: label}
	for {
		if p.take("}") {
			break
		}
		if len(n.set) > 0 && !p.take(",") {
			return node{}, p.want(", or }")
		}
		if len(n.set) == 0 && p.take(",") && !strings.HasPrefix(p.text[p.pos:], "}") {
			return node{}, p.want("}")
		}
		if p.take("}") {
			break
		}
		value, err := p.str()
		if err != nil {
			return node{}, err
		}
		n.set = append(n.set, value)
	}
	slices.Sort(n.set)
	n.set = slices.Compact(n.set)
	return n, nil
}

// str reads "…" or '…'. There are no escapes; the other quote may be inside.
func (p *parser) str() (string, error) {
	if p.done() || p.text[p.pos] != '"' && p.text[p.pos] != '\'' {
		return "", p.want("a string in quotes")
	}
	start := p.pos + 1
	n := strings.IndexByte(p.text[start:], p.text[p.pos])
	if n < 0 {
		return "", &Error{p.pos, "string without its closing quote"}
	}
	p.pos = start + n + 1
	p.space()
	return p.text[start : start+n], nil
}

func (p *parser) label() (string, error) {
	start := p.pos
	label := p.word()
	switch {
	case label == "":
		return "", p.want("a label, has(), all(), global(), ! or (")
	case len(label) > maxLabel:
		return "", &Error{start, fmt.Sprintf("label of %d bytes: at most %d", len(label), maxLabel)}
	}
	return label, nil
}

// word returns the longest run of bytes that labels are made of, maybe none.
func (p *parser) word() string {
	start := p.pos
	for !p.done() && labelByte(p.text[p.pos]) {
		p.pos++
	}
	word := p.text[start:p.pos]
	p.space()
	return word
}

func labelByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '_' || c == '.' || c == '/' || c == '-'
}
