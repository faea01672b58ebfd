// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"strings"
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

// String prints the set as it stands in a table.
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
	if s.Count {
		b.WriteString("\t\tcounter\n")
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

// String prints the chain as it stands in a table.
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

// String is the rule as one line.
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
