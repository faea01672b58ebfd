// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// whole is a state as if all of it were new.
func whole(st *policy.State) policy.Changes {
	c := policy.Changes{Endpoints: maps.Clone(st.Endpoints), Rules: maps.Clone(st.Rules), Sets: map[policy.SetID]*policy.SetChange{}}
	for id, s := range st.Sets {
		c.Sets[id] = &policy.SetChange{Kind: s.Kind, Text: s.Text, New: true, Added: slices.Collect(maps.Keys(s.Members)), Nets: s.Nets}
	}
	pools := st.Pools
	c.Pools = &pools
	return c
}

// begin makes a firewall of the current namespace that begins with the node's state.
func (n *node) begin() (nft.Report, error) {
	firewall, err := nft.Open(nft.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nft.Report{}, err
	}
	firewall.Configure(cloneSettings(n.now.Settings))
	firewall.Tunnels(n.now.Tunnels)
	firewall.Update(whole(&n.state))
	firewall.Links(n.links)
	report, err := firewall.Apply(context.Background())
	if err == nil {
		err = apply(firewall)
	}
	return report, errors.Join(err, firewall.Close())
}

// audit compares the table, which came about change by change, with that which
// a firewall makes of the same state where there was none, as the nft tool lists
// them; and lets new firewalls take it over.
func (n *node) audit() error {
	have, err := listing()
	if err != nil {
		return err
	}
	ns, err := newNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	var want string
	err = within(ns, func() error {
		if _, err := n.begin(); err != nil {
			return err
		}
		var err error
		want, err = listing()
		return err
	})
	if err != nil {
		return fmt.Errorf("program the same in another namespace: %w", err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		return fmt.Errorf("the table differs from one that is made anew (-anew +changed):\n%s", diff)
	}
	return n.takeOver(have)
}

// takeOver lets new firewalls take over a table one after the other. They may name the chains that endpoints
// share anew, the second one those that the first had to name apart from what was there; the third must find nothing to do.
func (n *node) takeOver(table string) error {
	for i := range 3 {
		report, err := n.begin()
		if err != nil {
			return err
		}
		got, err := listing()
		if err != nil {
			return err
		}
		if diff := cmp.Diff(table, got); diff != "" {
			return fmt.Errorf("a new firewall changed the table:\n%s", diff)
		}
		if i == 2 && report.Writes > 0 || report.Repairs > 0 {
			return fmt.Errorf("a new firewall made %d writes, %d of them repairs, where there was nothing to do", report.Writes, report.Repairs)
		}
	}
	return nil
}

// listing is the table without what its rules counted, its parts sorted. It is
// without the comments of chains as well: the kernel keeps the one that a chain
// was made with, which may have been another endpoint's. And it is without the chain
// for source NAT where that is empty: it stays when nothing is translated any more. Nor are the
// sets by the indexes of links in it, which the nft tool calls by what a namespace's own links are called.
func listing() (string, error) {
	out, err := exec.Command("nft", "list", "table", "inet", nft.TableName).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("nft list table: %w: %s", err, out)
	}
	text := regexp.MustCompile(`counter packets \d+ bytes \d+`).ReplaceAllString(string(out), "counter")
	text = regexp.MustCompile(`(chain \S+ {\n)\t\tcomment "[^"\n]*"\n`).ReplaceAllString(text, "$1")
	text = regexp.MustCompile(`\t\telements = {[^}]* expires [^}]*}\n`).ReplaceAllString(text, "") // which packets fill
	text = strings.Replace(text, "\tchain nat-postrouting {\n\t\ttype nat hook postrouting priority srcnat - 1; policy accept;\n\t}\n\n", "", 1)
	text = namedByMembers(text)
	parts := strings.Split(strings.TrimPrefix(text, "table inet "+nft.TableName+" {\n"), "\n\t}\n")
	for i, part := range parts {
		parts[i] = strings.Trim(part, "\n") // there is an empty line before all but the first
	}
	parts = slices.DeleteFunc(parts, func(part string) bool { return strings.HasPrefix(part, "\tset sources-by-index") })
	slices.Sort(parts)
	return strings.Join(parts, "\n\t}\n"), nil
}

// namedByMembers has the chains that endpoints share named by the first interface
// that leads there: a chain keeps its name when what its endpoints ask changes.
func namedByMembers(text string) string {
	first := map[string]string{}
	for _, m := range regexp.MustCompile(`"(\S+)" : jump ((?:from|to)-[0-9a-f]{16}(?:-\d+)?)`).FindAllStringSubmatch(text, -1) {
		if have, ok := first[m[2]]; !ok || m[1] < have {
			first[m[2]] = m[1]
		}
	}
	return regexp.MustCompile(`\b(from|to)-[0-9a-f]{16}(-\d+)?\b`).ReplaceAllStringFunc(text, func(name string) string {
		if by, ok := first[name]; ok {
			direction, _, _ := strings.Cut(name, "-")
			return direction + "-" + by
		}
		return name
	})
}
