// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/calico-go/calico/pkg/model"
)

// A Tracker has the resources of a kind while their entries change. A change costs what the resources cost that it is of, however many
// others there are.
type Tracker struct {
	kind    *Kind
	shared  model.Entry
	entries map[string][]model.Entry // by what Kind.of says
	shown   map[string]Stored        // likewise
	ids     map[string][]string      // those of each ID: more than one where two have a name
}

// Track returns a Tracker that knows of no resource yet.
func (k *Kind) Track() *Tracker {
	return &Tracker{kind: k, entries: map[string][]model.Entry{}, shown: map[string]Stored{}, ids: map[string][]string{}}
}

// Update takes in what the kind's Ranges hold, or what has changed there. It returns the resources that have changed, by namespace and
// name, and those that are gone, as they were.
func (t *Tracker) Update(u model.Update) (changed, gone []Stored) {
	dirty := map[string]bool{}
	entries := u.Entries
	if u.Resync {
		for of := range t.shown {
			dirty[of] = true
		}
		clear(t.entries)
		entries = append([]model.Entry{t.kind.impliedEntry()}, entries...)
	}
	for _, e := range entries {
		if e.Key != nil && e.Key == t.kind.shared {
			t.shared = e
		}
		if of := t.kind.idOf(e); of != "" {
			dirty[of] = true
			t.entries[of] = replaced(t.entries[of], e, e.Exists() || e.Key == t.kind.implied)
		}
	}
	former := map[string]Stored{}
	for of := range dirty {
		was, before := t.shown[of]
		s, now := t.kind.stored(of, t.entries[of], t.shared)
		if before && now && s.ID() == was.ID() && slices.EqualFunc(s.Entries, was.Entries, unchanged) {
			continue
		}
		if before {
			delete(t.shown, of)
			t.ids[was.ID()] = slices.DeleteFunc(t.ids[was.ID()], func(other string) bool { return other == of })
			former[of] = was
		}
		if now {
			t.shown[of] = s
			t.ids[s.ID()] = append(t.ids[s.ID()], of)
			changed = append(changed, s)
		}
	}
	for of, was := range former {
		switch others, known := t.ids[was.ID()]; {
		case !known: // both of a name are gone
		case len(others) == 0:
			delete(t.ids, was.ID())
			gone = append(gone, was)
		case !slices.Contains(others, of): // another of this name is left
			changed = append(changed, t.shown[others[0]])
		}
	}
	return sorted(changed), sorted(gone)
}

// sorted are resources by namespace and name, each once.
func sorted(list []Stored) []Stored {
	compare := func(a, b Stored) int {
		return cmp.Or(cmp.Compare(a.Metadata.Namespace, b.Metadata.Namespace), cmp.Compare(a.Metadata.Name, b.Metadata.Name), cmp.Compare(a.Entries[0].Path, b.Entries[0].Path))
	}
	slices.SortFunc(list, compare)
	return slices.CompactFunc(list, func(a, b Stored) bool { return compare(a, b) == 0 })
}

// replaced are entries with e in place of the one of its path, or without that.
func replaced(list []model.Entry, e model.Entry, there bool) []model.Entry {
	i := slices.IndexFunc(list, func(had model.Entry) bool { return had.Path == e.Path })
	list = slices.Clone(list)
	switch {
	case i < 0 && there:
		list = append(list, e)
	case there:
		list[i] = e
	case i >= 0:
		list = slices.Delete(list, i, i+1)
	}
	return list
}

func unchanged(a, b model.Entry) bool { return a.Path == b.Path && a.Revision == b.Revision }

// stored is the resource of some entries, if they make one.
func (k *Kind) stored(of string, entries []model.Entry, shared model.Entry) (Stored, bool) {
	s := Stored{Resource: Resource{APIVersion: APIVersion, Kind: k.Name}, Entries: entries}
	if len(entries) == 0 || !k.read(of, &s, shared) {
		return s, false
	}
	var revision int64
	for _, e := range entries {
		revision = max(revision, e.Revision)
		if e.Err != nil && s.Err == nil {
			s.Err = fmt.Errorf("%s: %w", e.Path, e.Err)
		}
	}
	s.Metadata.ResourceVersion = strconv.FormatInt(revision, 10)
	return s, true
}
