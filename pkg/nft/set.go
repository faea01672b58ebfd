// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/table"
)

// set is a wanted set, or one yet to be removed.
type set struct {
	def    table.Set         // without elements
	elems  map[string]string // key → data. Of an interval set, each end of a range.
	was    map[string]held   // the kernel's value of elements that may differ
	there  bool              // the kernel has it
	wanted bool
	unread bool   // the kernel had it when it was not wanted: its elements are unknown, and so is def until it is wanted
	total  totals // what it counts for in the ruleset's total
}

// held is what the kernel has under a key.
type held struct {
	there bool
	data  string
}

// Each end of a range is an element of its own for the kernel; here the last byte of its key says which end it is.
const (
	endStart = "\x00"
	endEnd   = "\x01"
)

// raw returns the element of a key as it is sent.
func (s *set) raw(key, data string) nfnl.Element {
	if !s.def.Interval {
		return nfnl.Element{Key: key, Data: data}
	}
	k := key[:len(key)-1]
	return nfnl.Element{Key: k, Data: data, End: strings.HasSuffix(key, endEnd)}
}

// key returns the key of an element that was read.
func (s *set) key(e nfnl.Element) string {
	switch {
	case !s.def.Interval:
		return e.Key
	case e.End:
		return e.Key + endEnd
	}
	return e.Key + endStart
}

// wants reports whether an element that was read is as wanted.
func (s *set) wants(e nfnl.Element) bool {
	want, ok := s.elems[s.key(e)]
	return ok && want == e.Data
}

// note records what the kernel has before an element changes.
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

// all returns all elements as they are sent. The start of a range comes directly before its end: otherwise the kernel may find an overlap.
func (s *set) all() []nfnl.Element {
	out := make([]nfnl.Element, 0, len(s.elems))
	if s.def.Interval {
		for _, key := range slices.Sorted(maps.Keys(s.elems)) {
			out = append(out, s.raw(key, ""))
		}
		return out
	}
	for key, data := range s.elems {
		out = append(out, s.raw(key, data))
	}
	return out
}

// intervals returns the ends of the ranges of prefixes of one IP version.
func intervals(prefixes []netip.Prefix, version int) map[string]string {
	var nets []netip.Prefix
	for _, p := range prefixes {
		if p.IsValid() && p.Addr().Is4() == (version == 4) {
			nets = append(nets, p)
		}
	}
	out := make(map[string]string)
	for _, r := range table.Ranges(nets) {
		out[r.Key+endStart] = ""
		if r.End != "" {
			out[r.End+endEnd] = ""
		}
	}
	return out
}
