// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// report tells all that there is to know about a difference.
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
	fmt.Fprintf(&b, "\n%s", d.table)
	return b.String()
}

// table is what the kernel holds.
func table() string {
	out, err := exec.Command("nft", "list", "table", "inet", nft.TableName).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("nft list table: %v: %s", err, out)
	}
	return inhabited(string(out))
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
	fmt.Fprintf(b, "\tsettings %s\n\ttunnels %s\n", text(w.Settings), text(w.Tunnels))
	for _, path := range slices.Sorted(maps.Keys(w.Items)) {
		fmt.Fprintf(b, "\t%s\n\t\t%s\n", path, w.Items[path].Data)
	}
}

// tally counts what happened, to show that the test tests.
type tally map[string]int

func (t tally) add(p probe, out string, f fate, r policy.Result) {
	t["packets"]++
	t[string(r.Verdict)]++
	if f.state != "" {
		t[f.state]++
	}
	for what, is := range map[string]bool{
		"logged": len(f.logged) > 0, "masqueraded": r.Masqueraded, "dnat": r.DNAT.IsValid(), "snat": r.SNAT.IsValid(),
		"by an untracked policy": r.Untracked && !told(r, "DHCP"), "dropped before tracking": f.state == "", "to itself": p.In == "" && out == "",
		"fragmented": p.Fragmented, "tunnelled": told(r, "tunnel"), "to the loopback": told(r, "to the host's loopback"), "shut": told(r, "which is shut"),
		"forged DHCP": told(r, "is not an address") && p.Protocol == model.ProtocolUDP && (p.DstPort == 67 || p.DstPort == 547), "DHCP": told(r, "DHCP: not checked"),
		"imitating a tunnel": told(r, "not to a pool"), "about others": told(r, "of others"),
		"passed on by a tier": told(r, "none of its policies decides: pass"), "denied by another tier": told(r, "end of tier t") || told(r, "end of tier kube"), "sent on": told(r, "next-tier"),
		"answered by the host": p.In == "" && p.To != nil, "to everybody": p.Dst.IsMulticast() || p.Dst.Is4() && p.Dst.As4()[3] == 255,
	} {
		if is {
			t[what]++
		}
	}
}

// told says whether a decision says so.
func told(r policy.Result, what string) bool {
	return slices.ContainsFunc(r.Trail, func(s policy.Step) bool { return strings.Contains(s.What, what) })
}

// String is like "packets 4000, accept 2100, ...".
func (t tally) String() string {
	var parts []string
	for _, what := range slices.SortedFunc(maps.Keys(t), func(a, b string) int { return t[b] - t[a] }) {
		parts = append(parts, fmt.Sprintf("%s %d", what, t[what]))
	}
	return strings.Join(parts, ", ")
}

// enough is how many packets must have met everything that check wants.
const enough = 5000

// check fails where something never happened.
func (t tally) check() error {
	for _, what := range [...]string{"accept", "drop", "established", "related", "invalid", "untracked", "by an untracked policy", "logged", "masqueraded", "dnat",
		"to itself", "fragmented", "tunnelled", "imitating a tunnel", "forged DHCP", "DHCP", "about others", "shut", "to the loopback", "answered by the host", "to everybody",
		"passed on by a tier", "denied by another tier", "sent on"} {
		if t[what] == 0 {
			return fmt.Errorf("of %d packets not one was %s: the test does not test it", t["packets"], what)
		}
	}
	return nil
}
