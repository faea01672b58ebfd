// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/policy"
)

// report tells all that there is to know about a difference. The table is what
// the kernel holds after the last trial.
func (d difference) report(again bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "the kernel and Evaluate differ.\n%s\n", d.what)
	if !again {
		b.WriteString("The same ruleset programmed from nothing, and from the one before, makes no difference: it takes the whole history.\n")
	}
	if d.before != nil {
		b.WriteString("\nFirst this was programmed:\n")
		d.before.write(&b)
		b.WriteString("\nAnd then:\n")
	} else {
		b.WriteString("\nProgrammed:\n")
	}
	d.world.write(&b)
	b.WriteString("\nSent:\n")
	for _, p := range d.probes {
		fmt.Fprintf(&b, "\t%s\n", p)
	}
	fmt.Fprintf(&b, "\nEvaluate: %s", d.result.Verdict)
	if d.result.Untracked {
		b.WriteString(", untracked")
	}
	b.WriteString("\n")
	for _, step := range d.result.Trail {
		fmt.Fprintf(&b, "\t%s\n", step)
	}
	fmt.Fprintf(&b, "\nThe kernel: %s, seen: %s\n", d.fate.verdict, strings.Join(d.fate.seen, ", "))
	if d.fate.verdict == policy.Accept {
		fmt.Fprintf(&b, "\tby %q as %s -> %s\n", d.fate.out, d.fate.src, d.fate.dst)
	}
	out, err := exec.Command("nft", "list", "table", "inet", "calico").CombinedOutput()
	fmt.Fprintf(&b, "\n%s", inhabited(string(out)))
	if err != nil {
		fmt.Fprintf(&b, "nft list table inet calico: %v\n", err)
	}
	return b.String()
}

// inhabited is a table without its empty sets.
func inhabited(table string) string {
	var out []string
	for _, block := range strings.SplitAfter(table, "\n\t}\n") {
		head := strings.TrimSpace(block)
		if set := strings.HasPrefix(head, "set ") || strings.HasPrefix(head, "map "); !set || strings.Contains(block, "elements = {") {
			out = append(out, block)
		}
	}
	return strings.Join(out, "")
}

func (w world) write(b *strings.Builder) {
	fmt.Fprintf(b, "\tsettings %s\n", text(w.Settings))
	for _, path := range slices.Sorted(maps.Keys(w.Items)) {
		fmt.Fprintf(b, "\t%s\n\t\t%s\n", path, w.Items[path].Data)
	}
}

// tally counts what happened, to show that the test tests.
type tally map[string]int

func (t tally) add(f fate, r policy.Result) {
	t["packets"]++
	t[string(r.Verdict)]++
	if f.state != "" {
		t[f.state]++
	}
	for what, is := range map[string]bool{
		"logged": len(f.logged) > 0, "masqueraded": r.Masqueraded, "dnat": r.DNAT.IsValid(), "snat": r.SNAT.IsValid(),
		"by an untracked policy": r.Untracked, "dropped before tracking": f.state == "",
	} {
		if is {
			t[what]++
		}
	}
}

// String is like "packets 4000, accept 2100, ...".
func (t tally) String() string {
	var parts []string
	for _, what := range slices.SortedFunc(maps.Keys(t), func(a, b string) int { return t[b] - t[a] }) {
		parts = append(parts, fmt.Sprintf("%s %d", what, t[what]))
	}
	return strings.Join(parts, ", ")
}
