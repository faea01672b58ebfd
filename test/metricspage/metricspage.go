// SPDX-License-Identifier: Apache-2.0

// Package metricspage holds a section of docs/metrics.md to what a program registers.
package metricspage

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// Section is what the page says of one program.
type Section struct {
	Page     string // the file
	Head     string // all before the table, with the heading in its first line
	Registry *prometheus.Registry
	Prefixes []string // of the program's own metrics
}

const columns = "| Name | Type | Labels | Meaning |\n|---|---|---|---|\n"

var description = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"),(?: unit: "[^"]*",)? constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// rows are those of the table, by name.
func (s Section) rows(t *testing.T) map[string]string {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		s.Registry.Describe(descs)
	}()
	rows := map[string]string{}
	for d := range descs {
		found := description.FindStringSubmatch(d.String())
		if found == nil {
			t.Fatalf("%s: not understood", d)
		}
		name := found[1]
		if !slices.ContainsFunc(s.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		help, err := strconv.Unquote(found[2])
		if err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		if !strings.HasSuffix(help, ".") || regexp.MustCompile(`(?i)\bthese\b`).MatchString(help) {
			t.Errorf("%s: %q is no sentence that stands by itself: the list is sorted by name", name, help)
		}
		var labels []string
		for label := range strings.SplitSeq(found[3]+","+found[4], ",") {
			if name, _, _ := strings.Cut(label, "="); name != "" {
				labels = append(labels, "`"+name+"`")
			}
		}
		rows[name] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, typeOf(name), strings.Join(labels, ", "), help)
	}
	return rows
}

// typeOf is a metric's type by its name.
func typeOf(name string) string {
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case strings.HasSuffix(name, "_seconds"):
		return "histogram"
	}
	return "gauge"
}

// Check compares the section with the page, or writes it there. It returns the names of the metrics, in order.
func (s Section) Check(t *testing.T, update bool) (names []string) {
	t.Helper()
	rows := s.rows(t)
	want := s.Head + columns
	names = slices.Sorted(maps.Keys(rows))
	for _, name := range names {
		want += rows[name]
	}
	data, err := os.ReadFile(s.Page)
	if err != nil {
		t.Fatal(err)
	}
	before, got, after := cut(string(data), s.Head)
	if diff := cmp.Diff(want, got); diff != "" && !update {
		t.Errorf("%s is not what the program registers: go test -run %s -update (-want +got):\n%s", s.Page, t.Name(), diff)
	}
	if update {
		if err := os.WriteFile(s.Page, []byte(before+want+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// cut finds the section of that heading, which ends at the next program's; it is to come last where it isn't there.
func cut(page, head string) (before, section, after string) {
	heading, _, _ := strings.Cut(head, "\n")
	at := strings.Index("\n"+page, "\n"+heading+"\n")
	if at < 0 {
		return page + "\n", "", ""
	}
	section = page[at:]
	if end := strings.Index(section, "\n\n## "); end >= 0 {
		section, after = section[:end+1], section[end+1:]
	}
	return page[:at], section, after
}
