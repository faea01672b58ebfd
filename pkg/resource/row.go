// SPDX-License-Identifier: Apache-2.0

package resource

import "github.com/calico-go/calico/pkg/model"

// A spec is what a row says by its own type of spec.
type spec interface {
	newSpec() any
	read(of string, s *Stored, shared model.Entry) bool
	write(r Resource, old *Stored, entries []model.Entry, alone bool) (keys, error)
	narrow(r Resource) []model.Range
	retired(r Resource) (Resource, bool)
}

// A row is a kind whose specs are Ts.
type row[T any] struct {
	Kind
	// reads makes the spec, and the names, of the entries of a resource, which has at least one; nil: they are none.
	reads func(of string, s *Stored, shared model.Entry) *T
	// writes makes the keys of a resource.
	writes func(w writing[T]) (keys, error)
	// narrows, nil = ranges, are where a resource is by its name, and what a write of it judges.
	narrows func(r Resource, spec *T) []model.Range
	// retires, nil = nothing, changes a resource so that no more depends on it, and reports whether it did: before it is deleted.
	retires func(spec *T) bool
}

// A writing is what a write decides on.
type writing[T any] struct {
	Resource
	spec    *T
	old     *Stored // nil = nothing is stored
	was     *T      // its spec, an empty one where nothing is stored
	entries []model.Entry
	alone   bool // nothing was read: whether the resource is right by itself
}

func (r row[T]) kind() *Kind {
	k := r.Kind
	k.spec = r
	return &k
}

// specOf is the spec of a resource, an empty one where it has none.
func specOf[T any](r Resource) *T {
	if r.Spec == nil {
		return new(T)
	}
	return r.Spec.(*T)
}

func (r row[T]) newSpec() any { return new(T) }

func (r row[T]) read(of string, s *Stored, shared model.Entry) bool {
	spec := r.reads(of, s, shared)
	s.Spec = spec
	return spec != nil
}

func (r row[T]) write(res Resource, old *Stored, entries []model.Entry, alone bool) (keys, error) {
	w := writing[T]{Resource: res, spec: specOf[T](res), old: old, was: new(T), entries: entries, alone: alone}
	if old != nil {
		w.was = specOf[T](old.Resource)
	}
	return r.writes(w)
}

func (r row[T]) narrow(res Resource) []model.Range {
	if r.narrows == nil {
		return nil
	}
	return r.narrows(res, specOf[T](res))
}

func (r row[T]) retired(res Resource) (Resource, bool) {
	spec := *specOf[T](res)
	retires := r.retires != nil && r.retires(&spec)
	res.Spec = &spec
	return res, retires
}

// one reads resources that are one key each; v is nil where its value can't be read.
func one[K model.Key, V, T any](fill func(key K, v *V, s *Stored) *T) func(string, *Stored, model.Entry) *T {
	return func(_ string, s *Stored, _ model.Entry) *T {
		var v *V
		if value, ok := parsed[V](s.Entries[0]); ok {
			v = &value
		}
		return fill(s.Entries[0].Key.(K), v, s)
	}
}

// keyed are keys of a type, each of which is a resource.
func keyed[K model.Key](e model.Entry) string {
	if _, ok := e.Key.(K); ok {
		return e.Path
	}
	return ""
}

func cell[T any](head string, wide bool, of func(*T) string) Column {
	return Column{head, wide, func(r Resource) string { return of(specOf[T](r)) }}
}
