// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// result is what a section found out.
type result struct {
	tables []table
	goals  []goal
}

// goal is a target, and what was measured.
type goal struct {
	what, want, got string
	met             bool
}

// table answers one question.
type table struct {
	title  string
	note   string
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print writes the table as Markdown with aligned columns, which reads well on
// a terminal too.
func (t *table) print(w io.Writer) {
	fmt.Fprintf(w, "\n## %s\n\n", t.title)
	if t.note != "" {
		fmt.Fprintf(w, "%s\n\n", t.note)
	}
	width := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(cells []string) {
		for i, cell := range cells {
			fmt.Fprintf(w, "| %s%s ", cell, strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)))
		}
		fmt.Fprintln(w, "|")
	}
	line(t.header)
	for i := range t.header {
		fmt.Fprintf(w, "|%s", strings.Repeat("-", width[i]+2))
	}
	fmt.Fprintln(w, "|")
	for _, row := range t.rows {
		line(row)
	}
}

// goalTable lists all goals.
func goalTable(goals []goal) table {
	t := table{title: "Goals", header: []string{"what", "goal", "got", ""}}
	met := 0
	for _, g := range goals {
		verdict := "missed"
		if g.met {
			verdict = "met"
			met++
		}
		t.add(g.what, g.want, g.got, verdict)
	}
	t.note = fmt.Sprintf("%d of %d met.", met, len(goals))
	return t
}
