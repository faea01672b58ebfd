// SPDX-License-Identifier: Apache-2.0

package datastore

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/model"
)

// nodes are the names of a file's nodes here.
type nodes struct {
	to    map[string]string // by their names in the file, where they have others here
	said  map[string]bool   // those that the operator has said
	named map[string]bool   // those that the file names; true: as nodes with data of their own
}

// parseNodes parses arguments of the form OLD=NEW.
func parseNodes(args []string) (*nodes, error) {
	n := &nodes{to: map[string]string{}, said: map[string]bool{}, named: map[string]bool{}}
	for _, arg := range args {
		old, now, _ := strings.Cut(arg, "=")
		if old == "" || now == "" || model.EscapeName(old+now) != old+now || n.said[old] {
			return nil, session.Usagef("--node %q: want OLD=NEW, each OLD once", arg)
		}
		n.to[old], n.said[old] = now, true
	}
	return n, nil
}

// now returns the name here.
func (n *nodes) now(old string) string { return cmp.Or(n.to[old], old) }

// Where nodes are named: in keys, and in the values of blocks, handles and peers. Names have no characters that either escapes.
var (
	inKey   = regexp.MustCompile(`^(/calico/(?:v1|bgp/v1|ipam/v2)/host/|/calico/v1/meta/[A-Za-z]+/node\.|/calico/ipam/v2/handle/[a-z0-9-]+-tunnel-addr-)([^/]+)(/|$)`)
	inValue = regexp.MustCompile(`("affinity":"host:|"node":"|"(?:handle_id|id)":"[a-z0-9-]+-tunnel-addr-)([^"\\]+)(")`)
)

func (n *nodes) replace(in *regexp.Regexp, text string) string {
	return in.ReplaceAllStringFunc(text, func(found string) string {
		m := in.FindStringSubmatch(found)
		n.named[m[2]] = n.named[m[2]] || strings.Contains(m[1], "host")
		return m[1] + n.now(m[2]) + m[3]
	})
}

// rename returns a record with the names that nodes have here.
func (n *nodes) rename(r record) (record, error) {
	text := r.text
	switch r.key.(type) {
	case model.BlockKey, model.HandleKey, model.BGPPeerKey:
		text = n.replace(inValue, text)
	}
	return newRecord(n.replace(inKey, r.key.Path()), []byte(text))
}

// renamed returns records with the names that nodes have here. No key may be there twice.
func (n *nodes) renamed(records []record) ([]record, error) {
	var errs []error
	seen := map[string]string{}
	for i, r := range records {
		now, err := n.rename(r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if path := now.key.Path(); seen[path] != "" {
			errs = append(errs, fmt.Errorf("%s would be there twice, from %s and %s", path, seen[path], r.key.Path()))
		} else {
			seen[path] = r.key.Path()
		}
		records[i] = now
	}
	for _, old := range slices.Sorted(maps.Keys(n.said)) {
		if _, is := n.named[old]; !is {
			errs = append(errs, fmt.Errorf("--node %s=%s: it names no node %s", old, n.to[old], old))
		}
	}
	return records, problems(errs)
}

// check returns an error if the file has nodes that are none of this cluster's, which has others.
func (n *nodes) check(hosts map[string]bool) error {
	var strange []string
	others := maps.Clone(hosts)
	for _, old := range slices.Sorted(maps.Keys(n.named)) {
		if !n.named[old] {
			continue
		}
		if delete(others, n.now(old)); !hosts[n.now(old)] && !n.said[old] {
			strange = append(strange, old)
		}
	}
	if len(strange) == 0 || len(others) == 0 {
		return nil
	}
	return fmt.Errorf("the file has the nodes %s, and this cluster %s: say which is which with --node OLD=NEW, and NAME=NAME of one that is to come",
		strings.Join(strange, ", "), strings.Join(slices.Sorted(maps.Keys(others)), ", "))
}
