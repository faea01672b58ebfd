// SPDX-License-Identifier: Apache-2.0

package resource

import "github.com/calico-go/calico/pkg/model"

// keyRanges returns the ranges of some keys.
func keyRanges(keys ...model.Key) []model.Range { return converted(keys, model.KeyRange) }

// newKind returns a kind whose specs are of type T. reads makes the spec, and sets the names, from a resource's entries, at least one; it
// returns nil if they don't make a resource. writes makes the keys of a resource.
func newKind[T any](reads func(id string, s *Stored) *T, writes func(w writing[T]) (keys, error), k Kind) *Kind {
	if k.newSpec == nil {
		k.newSpec = func() any { return new(T) }
	}
	k.read = func(id string, s *Stored) bool {
		spec := reads(id, s)
		s.Spec = spec
		meta := metaOf(s)
		s.Metadata.Annotations = model.TextMap(meta.Annotations)
		if !k.Labelled {
			s.Metadata.Labels = model.TextMap(meta.Labels)
		}
		return spec != nil
	}
	k.write = func(r Resource, old *Stored, entries []model.Entry, alone bool) (keys, error) {
		w := writing[T]{Resource: r, spec: specOf[T](r), old: old, was: new(T), entries: entries, alone: alone}
		w.meta = model.Meta{Annotations: model.MapText(r.Metadata.Annotations)}
		if !k.Labelled {
			w.meta.Labels = model.MapText(r.Metadata.Labels)
		}
		if old != nil {
			w.was, w.meta.Owner = specOf[T](old.Resource), metaOf(old).Owner
		}
		return writes(w)
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
