// SPDX-License-Identifier: Apache-2.0

// Package legacy finds and removes what the agent of an older version of Calico, and its BIRD, left on a host: chains of iptables, sets of
// ipset, and routes that win over those of calico-node.
package legacy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
)

// bird is the protocol of BIRD's routes, linux/rtnetlink.h.
const bird = 12

// prefixes are the prefixes of the older agents' chains and sets.
var prefixes = []string{"cali", "felix-"}

func isLegacy(name string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Leftovers are what was found.
type Leftovers struct {
	// Tables are the inputs for restore programs that remove the chains, and the rules that lead to them.
	Tables []Table
	Sets   []string // of ipset
	Routes []netlink.Route
	// Kept are BIRD's routes that calico-node has no counterpart of: they may be another BIRD's.
	Kept []netlink.Route
}

// Table is the part of one iptables program.
type Table struct {
	Program string // "iptables-legacy", ip6tables-nft, …
	Chains  int
	Rules   int    // in chains of others
	Restore string // the input of its -restore --noflush
}

// Find looks for leftovers in the current network namespace. Programs that the host lacks have none.
func Find(ctx context.Context) (Leftovers, error) {
	var l Leftovers
	for _, program := range programs() {
		out, err := run(ctx, "", program+"-save")
		if errors.Is(err, exec.ErrNotFound) {
			continue
		}
		if err != nil {
			return l, err
		}
		if t := tableOf(program, out); t.Restore != "" {
			l.Tables = append(l.Tables, t)
		}
	}
	switch out, err := run(ctx, "", "ipset", "list", "-n"); {
	case errors.Is(err, exec.ErrNotFound):
	case err != nil:
		return l, err
	default:
		for name := range strings.FieldsSeq(out) {
			if isLegacy(name) {
				l.Sets = append(l.Sets, name)
			}
		}
	}
	return l, l.findRoutes()
}

// programs returns the programs of iptables: both kinds if both are installed, one of which has the plain name too.
func programs() (all []string) {
	for _, family := range []string{"iptables", "ip6tables"} {
		before := len(all)
		for _, kind := range []string{"-legacy", "-nft"} {
			if _, err := exec.LookPath(family + kind + "-save"); err == nil {
				all = append(all, family+kind)
			}
		}
		if len(all) == before {
			all = append(all, family)
		}
	}
	return all
}

// tableOf computes from the output of a -save program how to remove the older agent's part.
func tableOf(program, saved string) Table {
	t := Table{Program: program}
	var restore strings.Builder
	var name string
	var chains, rules []string
	for line := range strings.Lines(saved) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			name, chains, rules = line, nil, nil
		case strings.HasPrefix(line, ":"):
			if chain, _, _ := strings.Cut(line[1:], " "); isLegacy(chain) {
				chains = append(chains, chain)
			}
		case strings.HasPrefix(line, "-A "):
			if rule, ok := ruleOf(line); ok {
				rules = append(rules, rule)
			}
		case line == "COMMIT" && len(chains)+len(rules) > 0:
			fmt.Fprintln(&restore, name)
			for _, r := range rules {
				fmt.Fprintln(&restore, r)
			}
			for _, verb := range []string{"-F", "-X"} { // after the flush no rule leads to another of them
				for _, c := range chains {
					fmt.Fprintln(&restore, verb, c)
				}
			}
			fmt.Fprintln(&restore, line)
			t.Chains, t.Rules = t.Chains+len(chains), t.Rules+len(rules)
		}
	}
	t.Restore = restore.String()
	return t
}

var (
	quoted = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	jump   = regexp.MustCompile(` -[jg] (\S+)`)
	mark   = regexp.MustCompile(` --comment "?cali:[A-Za-z0-9_-]{16}"?( |$)`) // the agent's hash of the rule
)

// ruleOf returns the deletion of a rule in another's chain that leads to a chain of the older agent, or whose comment says that it is that
// agent's.
func ruleOf(line string) (string, bool) {
	chain, rest, _ := strings.Cut(strings.TrimPrefix(line, "-A "), " ")
	if isLegacy(chain) {
		return "", false // it is deleted with its chain
	}
	to := jump.FindStringSubmatch(" " + quoted.ReplaceAllString(rest, ""))
	if to != nil && isLegacy(to[1]) || mark.MatchString(" "+rest) {
		return "-D " + chain + " " + rest, true
	}
	return "", false
}

// findRoutes finds BIRD's routes to destinations that calico-node has a route to as well.
func (l *Leftovers) findRoutes() error {
	c, err := rtnl.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	ours := make(map[netip.Prefix]bool)
	var all []netlink.Route
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		err := c.Routes(family, netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE, func(n netlink.Route) {
			switch r, _ := rtnl.RouteOf(n); {
			case n.Protocol == fabric.Protocol:
				ours[r.Dst] = true
			case n.Protocol == bird:
				all = append(all, n)
			}
		})
		if err != nil {
			return err
		}
	}
	for _, n := range all {
		if r, _ := rtnl.RouteOf(n); ours[r.Dst] {
			l.Routes = append(l.Routes, n)
		} else {
			l.Kept = append(l.Kept, n)
		}
	}
	return nil
}

// Empty reports whether there is nothing to remove.
func (l Leftovers) Empty() bool { return len(l.Tables)+len(l.Sets)+len(l.Routes) == 0 }

// Print says what Remove would do.
func (l Leftovers) Print(w io.Writer) error {
	var b bytes.Buffer
	for _, t := range l.Tables {
		fmt.Fprintf(&b, "%s: %d chains, and %d rules that lead to them\n", t.Program, t.Chains, t.Rules)
	}
	if len(l.Sets) > 0 {
		fmt.Fprintf(&b, "ipset: %d sets: %s\n", len(l.Sets), strings.Join(l.Sets, ", "))
	}
	for _, r := range l.Routes {
		fmt.Fprintf(&b, "route of BIRD, beside that of calico-node: %s\n", textOf(r))
	}
	for _, r := range l.Kept {
		fmt.Fprintf(&b, "stays, as calico-node has no such route: route of BIRD: %s\n", textOf(r))
	}
	_, err := w.Write(b.Bytes())
	return err
}

func textOf(n netlink.Route) string {
	text := "default"
	if n.Dst != nil {
		text = n.Dst.String()
	}
	if n.Gw != nil {
		text += " via " + n.Gw.String()
	}
	if n.Type == unix.RTN_BLACKHOLE {
		text = "blackhole " + text
	}
	return text
}

// Remove removes everything found: rules before the sets that they use. It continues after errors, and returns them.
func (l Leftovers) Remove(ctx context.Context) error {
	var errs []error
	for _, t := range l.Tables {
		_, err := run(ctx, t.Restore, t.Program+"-restore", "--noflush", "--wait=10")
		errs = append(errs, err)
	}
	for _, verb := range []string{"flush", "destroy"} { // a set in a list can't be destroyed before the list is flushed
		for _, s := range l.Sets {
			_, err := run(ctx, "", "ipset", verb, s)
			errs = append(errs, err)
		}
	}
	for _, r := range l.Routes {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("delete route %s: %w", textOf(r), err))
		}
	}
	return errors.Join(errs...)
}

// run runs a program with an input and returns its output; the error includes its standard error.
func run(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(append([]string{program}, args...), " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}
