// SPDX-License-Identifier: Apache-2.0

package model

import "strings"

// Meta is what a resource has besides its spec: the member meta of its value. Nothing that carries packets or assigns addresses uses it,
// except for a pool's name. Maps are JSON text, so that values with a Meta stay comparable.
type Meta struct {
	Name        string // as a resource; "" = as the key says
	Owner       string // whose it is: see OwnerAPI; "" = its writer's, who had no rival
	Created     string // when its owner's object was made (RFC 3339)
	Labels      string // a JSON object of strings; "" = none. Those that something selects by are a value's own
	Annotations string // likewise
	Source      string // the spec as it was applied, in JSON, if it says more than is stored of it; "" = it doesn't
}

// OwnerAPI begins the Owner of a resource that an object of the Kubernetes API makes, and the object's uid follows. OwnerOperator is that of
// one that the operator has taken from such an object.
const (
	OwnerAPI      = "k8s:"
	OwnerOperator = "operator"
)

// ResourceMeta returns the Meta of a value that embeds one.
func (m Meta) ResourceMeta() Meta { return m }

// OfAPI reports whether an object of the Kubernetes API made what the entry holds.
func (e Entry) OfAPI() bool {
	m, is := e.Value.(interface{ ResourceMeta() Meta })
	return is && strings.HasPrefix(m.ResourceMeta().Owner, OwnerAPI)
}

// parseMeta ignores a meta that isn't in order, and unknown members of it: other programs may keep notes there.
func parseMeta(r *reader) (Meta, error) {
	var m Meta
	var labels, annotations map[string]string
	err := (&reader{data: r.raw()}).record(
		into("name", &m.Name, (*reader).optionalStr),
		into("owner", &m.Owner, (*reader).optionalStr),
		into("created", &m.Created, (*reader).optionalStr),
		into("labels", &labels, (*reader).stringMap),
		into("annotations", &annotations, (*reader).stringMap),
		field{"source", func(r *reader) error { m.Source = string(r.raw()); return nil }},
	)
	if err != nil {
		return Meta{}, nil
	}
	m.Labels, m.Annotations = MapText(labels), MapText(annotations)
	return m, nil
}

// MapText returns a map as a JSON object, "" if it is empty.
func MapText(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	w := &writer{}
	w.stringMap(m)
	return string(w.b)
}

// TextMap returns the map of a [MapText].
func TextMap(text string) map[string]string {
	m, err := (&reader{data: []byte(text)}).stringMap()
	if err != nil {
		return nil
	}
	return m
}

// meta writes the member meta, unless it is empty.
func (w *writer) meta(m Meta) {
	if m == (Meta{}) {
		return
	}
	w.name("meta")
	w.metaValue(m)
}

func (m Meta) format(w *writer) error {
	w.metaValue(m)
	return nil
}

func (w *writer) metaValue(m Meta) {
	w.open('{')
	w.optional("name", m.Name)
	w.optional("owner", m.Owner)
	w.optional("created", m.Created)
	for _, f := range []struct{ name, text string }{{"labels", m.Labels}, {"annotations", m.Annotations}, {"source", m.Source}} {
		if f.text != "" {
			w.name(f.name)
			w.b = append(w.b, f.text...)
		}
	}
	w.close('}')
}
