// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// mirror passes on what a reflector finds. Of the objects it remembers only the names.
type mirror[U any] struct {
	keep    func(runtime.Object) (U, error)
	handler Handler[U]
	there   map[cache.ObjectName]struct{}
}

// kept is what is kept of an object.
type kept struct {
	name cache.ObjectName
	tell func() // calls the handler
}

// GetObjectKind implements runtime.Object, so that client-go can hold it.
func (*kept) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. A kept object never changes.
func (k *kept) DeepCopyObject() runtime.Object { return k }

// convert keeps what is needed of an object, which is untyped if the kind is read raw.
func (m *mirror[U]) convert(o runtime.Object) *kept {
	if k, ok := o.(*kept); ok {
		return k
	}
	k := &kept{tell: func() {}}
	if a, err := meta.Accessor(o); err == nil {
		k.name = cache.MetaObjectToName(a)
	}
	value, err := m.keep(o)
	switch {
	case err == nil && m.handler.Set != nil:
		k.tell = func() { m.handler.Set(value) }
	case err != nil && m.handler.Bad != nil:
		var about corev1.ObjectReference
		if u, untyped := o.(*unstructured.Unstructured); untyped {
			about = corev1.ObjectReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()}
		}
		k.tell = func() { m.handler.Bad(about, err) }
	}
	return k
}

func (m *mirror[U]) delete(name cache.ObjectName) {
	delete(m.there, name)
	if m.handler.Deleted != nil {
		m.handler.Deleted(name.Namespace, name.Name)
	}
}

// Transformer implements cache.TransformingStore: each object of a list is converted as it arrives.
func (m *mirror[U]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return m.convert(o.(runtime.Object)), nil }
}

// Add implements cache.ReflectorStore, as do the methods below.
func (m *mirror[U]) Add(o any) error {
	k := m.convert(o.(runtime.Object))
	m.there[k.name] = struct{}{}
	k.tell()
	return nil
}

// Update does what Add does.
func (m *mirror[U]) Update(o any) error { return m.Add(o) }

// Delete removes an object.
func (m *mirror[U]) Delete(o any) error {
	a, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	m.delete(cache.MetaObjectToName(a))
	return nil
}

// Replace takes in a complete list.
func (m *mirror[U]) Replace(list []any, _ string) error {
	now := make(map[cache.ObjectName]struct{}, len(list))
	for _, o := range list {
		now[o.(*kept).name] = struct{}{}
		_ = m.Add(o) // the error is always nil
	}
	for name := range m.there {
		if _, ok := now[name]; !ok {
			m.delete(name)
		}
	}
	if m.handler.Synced != nil {
		m.handler.Synced()
	}
	return nil
}

// Resync does nothing: objects are not passed on again on a schedule.
func (m *mirror[U]) Resync() error { return nil }

// objectOf returns what the API sent, which is a *T, or untyped if the kind is read raw.
func objectOf[T Kind](o runtime.Object) (*T, Raw, error) {
	switch o := any(o).(type) {
	case *T:
		return o, Raw{}, nil
	case *unstructured.Unstructured:
		return typedOf[T](o)
	}
	return nil, Raw{}, fmt.Errorf("the API sent a %T in place of a %T", o, new(T))
}

// typedOf converts an untyped object to its kind.
func typedOf[T Kind](u *unstructured.Unstructured) (*T, Raw, error) {
	typed := new(T)
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, typed, true)
	raw := Raw{u.Object, unknown(err)}
	if err != nil && raw.Unknown == nil {
		return nil, raw, unreadable(u, typed, err)
	}
	return typed, raw, nil
}

// unknown returns the fields that a strict decoding error names, nil for another error.
func unknown(err error) (fields []string) {
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		return nil
	}
	for _, e := range strict.Errors() {
		fields = append(fields, strings.Trim(strings.TrimPrefix(e.Error(), "unknown field "), `"`))
	}
	slices.Sort(fields)
	return fields
}

// unreadable returns an error that names the field of an object that doesn't fit the kind, as a JSON decoder does.
func unreadable(u *unstructured.Unstructured, typed any, err error) error {
	if data, other := u.MarshalJSON(); other == nil {
		if in := json.Unmarshal(data, typed); in != nil {
			err = in
		}
	}
	return fmt.Errorf("it can't be read: %w: correct it, or upgrade where it is of a later version", err)
}
