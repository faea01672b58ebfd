// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// percentile returns the value below which p (0..1) of the values lie. It
// sorts a copy.
func percentile[T int64 | time.Duration](values []T, p float64) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

func median[T int64 | time.Duration](values []T) T { return percentile(values, 0.5) }

// table is one section of the report.
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
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	line := func(cells []string) {
		for i, cell := range cells {
			fmt.Fprintf(w, "| %s%s ", cell, strings.Repeat(" ", width[i]-len([]rune(cell))))
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

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func ratio(a, b time.Duration) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

// verdict puts a figure next to its target.
func verdict(figure, target string, met bool) []string {
	if met {
		return []string{figure, target, "met"}
	}
	return []string{figure, target, "missed"}
}
