// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// set is one that shall be, or one that is still to be removed.
type set struct {
	def    table.Set         // without elements
	elems  map[string]string // key → data. Of an interval set, each end of a range.
	was    map[string]held   // what the kernel has of elements that may differ
	there  bool              // the kernel has it
	wanted bool
	total  totals // that it is counted with
}

// held is what the kernel has under a key.
type held struct {
	there bool
	data  string
}

// Each end of a range is an element of its own to the kernel; the last byte of
// its key says which it is here.
const (
	endStart = "\x00"
	endEnd   = "\x01"
)

// raw makes an element of a key, as it is sent.
func (s *set) raw(key, data string) nfnl.Element {
	if !s.def.Interval {
		return nfnl.Element{Key: key, Data: data}
	}
	k := key[:len(key)-1]
	return nfnl.Element{Key: k, Data: data, End: strings.HasSuffix(key, endEnd)}
}

// key is that of an element that was read.
func (s *set) key(e nfnl.Element) string {
	switch {
	case !s.def.Interval:
		return e.Key
	case e.End:
		return e.Key + endEnd
	}
	return e.Key + endStart
}

func (d *desired) addSet(def table.Set) {
	s := d.sets[def.Name]
	if s == nil {
		s = &set{def: def, elems: make(map[string]string), was: make(map[string]held)}
		d.sets[def.Name] = s
	}
	s.wanted, s.def.Comment = true, def.Comment
	d.changed[def.Name] = true
}

func (d *desired) removeSet(name string) {
	if s := d.sets[name]; s != nil {
		s.wanted = false
		for key := range s.elems {
			s.remove(key)
		}
		d.changed[name] = true
	}
}

// note keeps what the kernel has before an element changes.
func (s *set) note(key string) {
	if !s.there {
		return // it has none
	}
	if _, noted := s.was[key]; !noted {
		data, there := s.elems[key]
		s.was[key] = held{there, data}
	}
}

func (s *set) put(key, data string) {
	if have, ok := s.elems[key]; ok && have == data {
		return
	}
	s.note(key)
	s.elems[key] = data
}

func (s *set) remove(key string) {
	if _, ok := s.elems[key]; ok {
		s.note(key)
		delete(s.elems, key)
	}
}

// replace gives a set its elements anew.
func (d *desired) replace(name string, elements map[string]string) {
	s := d.sets[name]
	for key := range s.elems {
		if _, keep := elements[key]; !keep {
			s.remove(key)
		}
	}
	for key, data := range elements {
		s.put(key, data)
	}
	d.changed[name] = true
}

// intervals are the ends of the ranges of prefixes of one IP version.
func intervals(prefixes []netip.Prefix, version int) map[string]string {
	var nets []netip.Prefix
	for _, p := range prefixes {
		if p.IsValid() && p.Addr().Is4() == (version == 4) {
			nets = append(nets, p)
		}
	}
	return ends(table.Ranges(nets))
}

// ends are the elements that the kernel has for ranges.
func ends(ranges []table.Element) map[string]string {
	out := make(map[string]string)
	for _, r := range ranges {
		out[r.Key+endStart] = ""
		if r.End != "" {
			out[r.End+endEnd] = ""
		}
	}
	return out
}

// changeSet folds what happened to a set of policy, which is one of ours for
// each IP version.
func (d *desired) changeSet(id policy.SetID, c *policy.SetChange) {
	kind, there := d.known[id]
	if c.Kind == policy.KindPorts || !there || c.New {
		kind = c.Kind
	}
	if c.Gone {
		delete(d.known, id)
		d.removeSet(render.PolicySetName(4, id, kind))
		d.removeSet(render.PolicySetName(6, id, kind))
		d.dirtyUsers(id)
		return
	}
	if _, ok := d.known[id]; !ok {
		d.known[id] = c.Kind
		d.dirtyUsers(id)
		for _, version := range [...]int{4, 6} {
			d.addSet(render.PolicySet(version, id, c.Kind, c.Text))
		}
	}
	for _, m := range c.Removed {
		if s, key, ok := d.member(id, kind, m); ok {
			s.remove(key)
		}
	}
	for _, m := range c.Added {
		if s, key, ok := d.member(id, kind, m); ok {
			s.put(key, "")
		}
	}
	d.changed[render.PolicySetName(4, id, kind)], d.changed[render.PolicySetName(6, id, kind)] = true, true
}

// member finds where a member belongs.
func (d *desired) member(id policy.SetID, kind policy.SetKind, m policy.Member) (*set, string, bool) {
	if !m.Addr.IsValid() {
		return nil, "", false
	}
	a := m.Addr.Unmap()
	version := 6
	if a.Is4() {
		version = 4
	}
	s := d.sets[render.PolicySetName(version, id, kind)]
	if s == nil {
		return nil, "", false
	}
	if len(s.def.Key) == 1 {
		return s, table.AddrBytes(a), true
	}
	return s, table.Concat(table.AddrBytes(a), string([]byte{byte(m.Protocol)}), table.PortBytes(m.Port)), true
}

// dirtyUsers renders again what asks a set that has come or gone.
func (d *desired) dirtyUsers(id policy.SetID) {
	for user := range d.setUsers[id] {
		d.putRulesChains(user)
	}
}
