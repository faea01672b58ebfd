// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"slices"
)

// Keep returns the text to store in place of stored, given the text that FormatValue made of the modified value. It
// preserves what the modification isn't about: members of the object that ParseValue ignores stay, unchanged members
// keep their bytes, and an optional member that was absent isn't added. Nested objects, lists and plain texts are taken
// from written.
func Keep(k Key, stored, written []byte) []byte {
	r, err := newReader(stored)
	if err != nil {
		return written
	}
	before, now := members(r), members(&reader{data: written})
	if before == nil || now == nil {
		return written
	}
	if _, block := k.(BlockKey); block && sameNames(before, now) {
		return written // each ADD writes one, and its members have no nested ones to preserve
	}
	canonical, err := reformat(k, stored)
	if err != nil {
		return written // an unreadable value is replaced
	}
	was := members(&reader{data: canonical})
	var out []member
	older := false // a member states in an older form what others state now
	for _, m := range before {
		n, stays := find(now, m.name)
		w, known := find(was, m.name)
		switch {
		case known && stays && bytes.Equal(n.value, w.value):
			out = append(out, m)
		case stays:
			out = append(out, n)
		case known:
		case same(k, without(before, m.name), canonical) && same(k, append(slices.Clone(now), m), written):
			out = append(out, m)
		default:
			older = true
		}
	}
	for _, n := range now {
		w, known := find(was, n.name)
		_, there := find(before, n.name)
		if !there && (older || !known || !bytes.Equal(n.value, w.value)) {
			out = append(out, n)
		}
	}
	if !same(k, out, written) {
		return written
	}
	return formatMembers(out)
}

// member is a member of an object, unparsed.
type member struct {
	name  string
	value []byte
}

// members returns the members of an object, nil if the value is not an object.
func members(r *reader) (all []member) {
	if r.next() != '{' {
		return nil
	}
	all = []member{}
	if err := r.object(func(name string) error {
		all = append(all, member{name, r.raw()})
		return nil
	}); err != nil {
		return nil
	}
	return all
}

func find(all []member, name string) (member, bool) {
	i := slices.IndexFunc(all, func(m member) bool { return m.name == name })
	if i < 0 {
		return member{}, false
	}
	return all[i], true
}

func sameNames(a, b []member) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(m member) bool {
		_, there := find(b, m.name)
		return !there
	})
}

func without(all []member, name string) []member {
	return slices.DeleteFunc(slices.Clone(all), func(m member) bool { return m.name == name })
}

// same reports whether an object means the same as another one in canonical form.
func same(k Key, all []member, canonical []byte) bool {
	text, err := reformat(k, formatMembers(all))
	return err == nil && bytes.Equal(text, canonical)
}

// reformat returns a value in canonical form.
func reformat(k Key, data []byte) ([]byte, error) {
	v, err := ParseValue(k, data)
	if err != nil {
		return nil, err
	}
	return FormatValue(v)
}

func formatMembers(all []member) []byte {
	w := &writer{}
	w.open('{')
	for _, m := range all {
		w.name(m.name)
		w.b = append(w.b, m.value...)
	}
	w.close('}')
	return w.b
}
