// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/calico-go/calico/pkg/model"
)

// A Tracker keeps the resources of a kind up to date with their entries. The cost of a change depends only on its own resources, not
// on how many others there are.
type Tracker struct {
	kind    *Kind
	shared  model.Entry
	entries map[string][]model.Entry // by id, see Kind.of
	shown   map[string]Stored        // by id
}

// Track returns a Tracker without resources.
func (k *Kind) Track() *Tracker {
	return &Tracker{kind: k, entries: map[string][]model.Entry{}, shown: map[string]Stored{}}
}

// Update takes in what the kind's Ranges hold, or what has changed there. It returns the resources that are gone, as they were, and
// those that have changed, each sorted by namespace and name. A renamed resource is in both.
func (t *Tracker) Update(u model.Update) (gone, changed []Stored) {
	dirty := map[string]bool{}
	entries := u.Entries
	if u.Resync {
		for id := range t.shown {
			dirty[id] = true
		}
		clear(t.entries)
		t.shared = model.Entry{}
		entries = append([]model.Entry{t.kind.impliedEntry()}, entries...)
	}
	for _, e := range entries {
		if e.Key != nil && e.Key == t.kind.shared {
			t.shared = e
		}
		if id := t.kind.idOf(e); id != "" {
			dirty[id] = true
			t.entries[id] = replaced(t.entries[id], e, e.Exists() || e.Key == t.kind.implied)
		}
	}
	for id := range dirty {
		was, before := t.shown[id]
		s, now := t.kind.stored(id, t.entries[id], t.shared)
		switch {
		case before && now && !u.Restored && s.ID() == was.ID() && slices.EqualFunc(s.Entries, was.Entries, unchanged):
			continue
		case before && (!now || s.ID() != was.ID()):
			gone = append(gone, was)
		}
		if delete(t.shown, id); now {
			t.shown[id] = s
			changed = append(changed, s)
		}
	}
	return sorted(gone), sorted(changed)
}

// sorted sorts resources by namespace and name, and returns them.
func sorted(list []Stored) []Stored {
	slices.SortFunc(list, func(a, b Stored) int {
		return cmp.Or(cmp.Compare(a.Metadata.Namespace, b.Metadata.Namespace), cmp.Compare(a.Metadata.Name, b.Metadata.Name), cmp.Compare(a.Entries[0].Path, b.Entries[0].Path))
	})
	return list
}

// replaced returns a copy of list with e in place of the entry of the same path, or, unless there, without that entry.
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

// stored returns the resource that entries make, if they make one.
func (k *Kind) stored(id string, entries []model.Entry, shared model.Entry) (Stored, bool) {
	s := Stored{Resource: Resource{APIVersion: APIVersion, Kind: k.Name}, Entries: entries, shared: shared}
	if len(entries) == 0 || !k.read(id, &s) {
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
