// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

func tooLarge(n int) error { return fmt.Errorf("value of %d bytes: at most %d", n, maxValue) }

// ParseValue parses the value of a key, in its canonical form or any older one, and returns the type (not a pointer)
// named in the key's comment. What it accepts is safe to use: indexes are in range, families are right, selectors
// parse. If the value repeats what the key says, both must agree.
//
// The error for a policy with a readable selector is an *InvalidPolicyError; for a host endpoint whose interface can be
// identified it is an *InvalidHostEndpointError.
func ParseValue(k Key, data []byte) (any, error) {
	if len(data) > maxValue {
		return nil, tooLarge(len(data))
	}
	kind, ok := kindsByKey[reflect.TypeOf(k)]
	if !ok {
		return nil, fmt.Errorf("%T: no key of the data model", k)
	}
	return kind.parse(k, data)
}

// A checker is a value whose type can hold invalid content.
type checker interface {
	check() error
}

func check(v any) error {
	if c, ok := v.(checker); ok {
		return c.check()
	}
	return nil
}

func parseJSON[T any](data []byte, parse func(*reader) (T, error)) (any, error) {
	r, err := newReader(data)
	if err != nil {
		return nil, err
	}
	v, err := orNil(parse(r))
	if err == nil {
		err = check(v)
	}
	return orNil(v, err)
}

// orNil returns nil instead of an incomplete value along with an error.
func orNil[T any](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// value is a value of the data model.
type value interface {
	format(*writer) error
}

// FormatValue returns a value in canonical form. It rejects values that ParseValue would reject.
func FormatValue(v any) ([]byte, error) {
	known, ok := v.(value)
	if !ok {
		return nil, fmt.Errorf("format %T: not a value of the data model", v)
	}
	w := &writer{}
	err := check(v)
	if err == nil {
		err = known.format(w)
	}
	if err == nil {
		err = w.err
	}
	if err == nil && len(w.b) > maxValue {
		err = tooLarge(len(w.b))
	}
	if err != nil {
		return nil, fmt.Errorf("format %T: %w", v, err)
	}
	return w.b, nil
}

func (v Ready) format(w *writer) error {
	w.b = strconv.AppendBool(nil, bool(v))
	return nil
}

func parseText(data []byte) (Text, error) { return Text(data), nil }

func (t Text) format(w *writer) error {
	w.b = []byte(t)
	return nil
}

func (n ASNumber) format(w *writer) error {
	w.b = []byte(n.text())
	return nil
}

func (Affinity) format(w *writer) error {
	w.b = []byte("{}")
	return nil
}

func (m Mesh) format(w *writer) error {
	w.open('{')
	w.boolean("enabled", m.Enabled)
	w.close('}')
	return nil
}

func (l Labels) format(w *writer) error {
	w.stringMap(l)
	return nil
}

var (
	errMissing = errors.New("missing")
	errEmpty   = errors.New("empty")
)

func missing(field string) error { return inField(field, errMissing) }

func parseReady(data []byte) (Ready, error) {
	switch s := strings.TrimSpace(string(data)); s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("%.32q: want true or false", s)
	}
}

// parseHostMetadata treats an empty value as no labels.
func parseHostMetadata(data []byte) (HostMetadata, error) {
	var m HostMetadata
	if strings.TrimSpace(string(data)) == "" {
		return m, nil
	}
	r, err := newReader(data)
	if err != nil || r.null() {
		return m, err
	}
	err = r.record(into("labels", &m.Labels, (*reader).stringMap), into("k8s", &m.Kubernetes, parseKubernetesNode))
	return m, err
}

func parseKubernetesNode(r *reader) (n KubernetesNode, err error) {
	err = r.record(into("name", &n.Name, (*reader).optionalStr), into("uid", &n.UID, (*reader).optionalStr))
	return n, err
}

func (m HostMetadata) format(w *writer) error {
	w.open('{')
	if len(m.Labels) > 0 {
		w.name("labels")
		w.stringMap(m.Labels)
	}
	if m.Kubernetes != (KubernetesNode{}) {
		w.name("k8s")
		w.open('{')
		w.str("name", m.Kubernetes.Name)
		w.str("uid", m.Kubernetes.UID)
		w.close('}')
	}
	w.close('}')
	return nil
}
