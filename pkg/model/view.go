// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
)

// View is what was read of a store for one decision: the entries of some ranges, all as of one revision. Make one with
// NewView.
type View struct {
	revision int64
	ranges   []Range
	entries  map[Range][]Entry
	values   map[Key]Entry // what was found with its value
	absent   map[Key]bool  // keys that were read, and aren't there
	whole    []string      // prefixes that were read without a limit, with values
}

// NewView returns a View of nothing.
func NewView() *View {
	return &View{entries: make(map[Range][]Entry), values: make(map[Key]Entry), absent: make(map[Key]bool)}
}

// Add tells the view what reading a range gave at the revision. What isn't in entries doesn't exist.
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

// Revision is the revision that was read at, 0 before the first.
func (v *View) Revision() int64 { return v.revision }

// Ranges are those that were read, in order. The slice is not for changing.
func (v *View) Ranges() []Range { return v.ranges }

// Read returns what reading the very range gave, and whether it was read.
func (v *View) Read(r Range) ([]Entry, bool) {
	entries, ok := v.entries[r]
	return entries, ok
}

// Get returns the entry of a key. One that isn't there, or was not read, does not Exist.
func (v *View) Get(k Key) Entry { return v.values[k] }

// Has reports whether the key was read with its value, by itself or with a prefix, and found or not.
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

// Compare demands that the key is as it was read.
func (v *View) Compare(k Key) Compare { return Compare{Key: k, Revision: v.values[k].Revision} }

// NeedRangesError says that a decision can't be made before more is read.
type NeedRangesError struct {
	Ranges []Range
}

// Error is for a caller that doesn't read on.
func (e *NeedRangesError) Error() string {
	return fmt.Sprintf("%d more ranges must be read first", len(e.Ranges))
}
