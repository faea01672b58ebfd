// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// keyRanges returns the ranges of some keys.
func keyRanges(keys ...model.Key) []model.Range { return converted(keys, model.KeyRange) }

// newKind returns a kind whose specs are of type T. reads makes the spec, and sets the names, from a resource's entries, at least one; it
// returns nil if they don't make a resource. writes makes the keys of a resource.
func newKind[T any](reads func(id string, s *Stored) *T, writes func(w writing[T]) (keys, error), k Kind) *Kind {
	if k.newSpec == nil {
		k.newSpec = func() any { return new(T) }
	}
	if k.apart {
		k.keptApart()
	}
	k.read = func(id string, s *Stored) bool {
		spec := reads(id, s)
		s.Spec = spec
		meta := metaOf(s)
		s.Metadata.Annotations = model.TextMap(meta.Annotations)
		if uid, is := strings.CutPrefix(meta.Owner, model.OwnerAPI); is {
			s.Metadata.UID, s.Metadata.CreationTimestamp = uid, meta.Created
		}
		if !k.Labelled {
			s.Metadata.Labels = model.TextMap(meta.Labels)
		}
		return spec != nil
	}
	k.write = func(r Resource, old *Stored, entries []model.Entry, alone bool) (keys, error) {
		w := writing[T]{Resource: r, spec: specOf[T](r), old: old, was: new(T), entries: entries, alone: alone}
		if old != nil {
			w.was = specOf[T](old.Resource)
		}
		w.meta = r.By.meta(old)
		w.meta.Annotations = model.MapText(r.Metadata.Annotations)
		if !k.Labelled {
			w.meta.Labels = model.MapText(r.Metadata.Labels)
		}
		written, err := writes(w)
		if err == nil && k.apart {
			key := model.MetaKey{Kind: k.Name, Name: r.Metadata.Name}
			switch had := old != nil && slices.ContainsFunc(old.Entries, func(e model.Entry) bool { return e.Key == key }); {
			case w.meta != (model.Meta{}):
				written.put(key, w.meta)
			case had:
				written.deletes = append(written.deletes, key)
			}
		}
		return written, err
	}
	return &k
}

// A writing is the input of a write.
type writing[T any] struct {
	Resource
	spec    *T
	old     *Stored // nil = nothing is stored
	was     *T      // the spec of old, empty if nothing is stored
	meta    model.Meta
	entries []model.Entry
	alone   bool // nothing was read: the resource is checked on its own
}

// keptApart adds the keys at which a kind's resources keep what they have besides their specs. The ids of such a kind are its names.
func (k *Kind) keptApart() {
	of, narrow := k.of, k.narrow
	k.ranges = append(k.ranges, model.PrefixRange(model.MetaPrefix(k.Name)))
	k.of = func(e model.Entry) string {
		if key, is := e.Key.(model.MetaKey); is {
			if key.Kind == k.Name {
				return key.Name
			}
			return ""
		}
		return of(e)
	}
	if narrow != nil {
		k.narrow = func(r Resource) []model.Range {
			return append(narrow(r), model.KeyRange(model.MetaKey{Kind: k.Name, Name: r.Metadata.Name}))
		}
	}
}

// metaOf returns the Meta of the resource's entry that has one.
func metaOf(s *Stored) model.Meta {
	for _, e := range s.Entries {
		if v, ok := e.Value.(interface{ ResourceMeta() model.Meta }); ok {
			return v.ResourceMeta()
		}
	}
	return model.Meta{}
}

// specOf returns the spec of a resource, an empty one if it has none.
func specOf[T any](r Resource) *T {
	if r.Spec == nil {
		return new(T)
	}
	return r.Spec.(*T)
}

// one reads resources that have a single key; v is nil if its value can't be read.
func one[K model.Key, V, T any](fill func(key K, v *V, s *Stored) *T) func(string, *Stored) *T {
	return func(_ string, s *Stored) *T {
		var v *V
		if value, ok := parsed[V](s.Entries[0]); ok {
			v = &value
		}
		return fill(s.Entries[0].Key.(K), v, s)
	}
}

// keyed is a Kind.of for keys of type K, each of which is a resource.
func keyed[K model.Key](e model.Entry) string {
	if _, ok := e.Key.(K); ok {
		return e.Path
	}
	return ""
}

func cell[T any](head string, wide bool, of func(*T) string) Column {
	return Column{head, wide, func(r Resource) string { return of(specOf[T](r)) }}
}
