// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
)

// View is what was read from a store for one decision: the entries of some ranges, all at one revision. Use NewView to
// make one.
type View struct {
	revision int64
	ranges   []Range
	entries  map[Range][]Entry
	values   map[Key]Entry // entries found with their values
	absent   map[Key]bool  // keys that were read and don't exist
	whole    []string      // prefixes that were read completely, with values
}

// NewView returns an empty View.
func NewView() *View {
	return &View{entries: make(map[Range][]Entry), values: make(map[Key]Entry), absent: make(map[Key]bool)}
}

// Add adds the result of reading a range at the revision. Keys of the range that aren't in entries don't exist.
func (v *View) Add(r Range, revision int64, entries []Entry) {
	v.revision = revision
	if _, again := v.entries[r]; !again {
		v.ranges = append(v.ranges, r)
	}
	v.entries[r] = entries
	if r.KeysOnly {
		return
	}
	if r.Key != nil && len(entries) == 0 {
		v.absent[r.Key] = true
	}
	for _, e := range entries {
		if e.Key != nil {
			v.values[e.Key] = e
		}
	}
	if r.Key == nil && r.From == "" && r.Limit == 0 {
		v.whole = append(v.whole, r.Prefix)
	}
}

// Revision returns the revision of the view, 0 before the first Add.
func (v *View) Revision() int64 { return v.revision }

// Ranges returns the ranges that were read, in order. The slice must not be modified.
func (v *View) Ranges() []Range { return v.ranges }

// Read returns the result of reading exactly this range, and whether it was read.
func (v *View) Read(r Range) ([]Entry, bool) {
	entries, ok := v.entries[r]
	return entries, ok
}

// Get returns the entry of a key. If the key doesn't exist or was not read, the entry doesn't Exist.
func (v *View) Get(k Key) Entry { return v.values[k] }

// Has reports whether the key was read with its value, by itself or as part of a prefix, whether it exists or not.
func (v *View) Has(k Key) bool {
	if _, found := v.values[k]; found || v.absent[k] {
		return true
	}
	for _, prefix := range v.whole {
		if strings.HasPrefix(k.Path(), prefix) {
			return true
		}
	}
	return false
}

// Compare returns a Compare that the key is unchanged since it was read.
func (v *View) Compare(k Key) Compare { return Compare{Key: k, Revision: v.values[k].Revision} }

// NeedRangesError says that a decision can't be made until more is read.
type NeedRangesError struct {
	Ranges []Range
}

// Error returns a text for callers that don't read on.
func (e *NeedRangesError) Error() string {
	return fmt.Sprintf("%d more ranges must be read first", len(e.Ranges))
}
