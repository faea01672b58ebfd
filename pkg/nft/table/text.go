// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"strings"
	"time"
)

// String prints the table as `nft list table` does.
func (t Table) String() string {
	var b strings.Builder
	b.WriteString("table inet " + t.Name + " {\n")
	gap := ""
	for _, s := range t.Sets {
		b.WriteString(gap + s.String())
		gap = "\n"
	}
	for _, c := range t.Chains {
		b.WriteString(gap + c.String())
		gap = "\n"
	}
	b.WriteString("}\n")
	return b.String()
}

// String prints the set as in a table.
func (s Set) String() string {
	var b strings.Builder
	kind, types := "set", make([]string, 0, len(s.Key))
	for _, t := range s.Key {
		types = append(types, string(t))
	}
	typ := strings.Join(types, " . ")
	if s.Data != "" {
		kind, typ = "map", typ+" : "+string(s.Data)
	}
	b.WriteString("\t" + kind + " " + s.Name + " {\n\t\ttype " + typ + "\n")
	if s.Interval {
		b.WriteString("\t\tflags interval\n")
	}
	switch {
	case s.Expires > 0:
		fmt.Fprintf(&b, "\t\tsize %d\n\t\tflags dynamic,timeout\n\t\ttimeout %s\n", MaxAdded, expiry(s.Expires))
	case s.Timeout:
		b.WriteString("\t\tflags timeout\n")
	}
	if s.Count {
		b.WriteString("\t\tcounter\n")
	}
	if s.Bounds {
		b.WriteString("\t\tct count over 0\n")
	}
	if s.Comment != "" {
		b.WriteString("\t\tcomment " + quote(s.Comment) + "\n")
	}
	for i, e := range sorted(s.Elements) {
		if i == 0 {
			b.WriteString("\t\telements = { ")
		} else {
			b.WriteString(",\n\t\t\t     ")
		}
		b.WriteString(s.text(e))
	}
	if len(s.Elements) > 0 {
		b.WriteString(" }\n")
	}
	b.WriteString("\t}\n")
	return b.String()
}

// String prints the chain as in a table.
func (c Chain) String() string {
	var b strings.Builder
	b.WriteString("\tchain " + c.Name + " {\n")
	if c.Comment != "" {
		b.WriteString("\t\tcomment " + quote(c.Comment) + "\n")
	}
	if c.Hook != (Hook{}) {
		b.WriteString("\t\ttype " + c.Hook.Type + " hook " + c.Hook.At + " priority " + c.Hook.Priority + "; policy accept;\n")
	}
	for _, r := range c.Rules {
		b.WriteString("\t\t" + r.String() + "\n")
	}
	b.WriteString("\t}\n")
	return b.String()
}

// String returns the rule as one line.
func (r Rule) String() string {
	parts := make([]string, 0, len(r.Do)+1)
	for _, s := range r.Do {
		parts = append(parts, s.String())
	}
	if r.Comment != "" {
		parts = append(parts, "comment "+quote(r.Comment))
	}
	return strings.Join(parts, " ")
}

// expiry prints a time of whole hours, minutes or seconds.
func expiry(d time.Duration) string {
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}

// text prints an element of the set.
func (s *Set) text(e Element) string {
	b := KeyText(s.Key, e.Key)
	if s.Interval {
		b = rangeText(s.Key[0], e)
	}
	if s.Count {
		b += " counter"
	}
	switch {
	case s.Bounds:
		return b + " ct count over " + e.Data
	case s.Data == "" && e.Data != "":
		return b + " comment " + quote(e.Data)
	case s.Data == "":
		return b
	case s.Data == TypeVerdict && s.Jump:
		return b + " : jump " + e.Data
	case s.Data == TypeVerdict:
		return b + " : goto " + e.Data
	}
	return b + " : " + s.Data.Text(e.Data)
}

// rangeText prints a range of addresses, as a prefix if it is one.
func rangeText(t Type, e Element) string {
	if p, ok := e.Prefix(); ok && !p.IsSingleIP() {
		return p.String()
	}
	last := e.Last()
	if last == e.Key {
		return t.Text(e.Key)
	}
	return t.Text(e.Key) + "-" + t.Text(last)
}

// MaxComment is how many bytes of a comment the nft tool shows, without the NUL.
const MaxComment = 127

// quote returns a string in nft's syntax, which has no escapes.
func quote(s string) string { return `"` + Plain(s) + `"` }

// Plain replaces what cannot be written between quotes.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '"':
			return '\''
		case r < ' ' || r > '~' || r == '\\':
			return '_'
		}
		return r
	}, s)
}
