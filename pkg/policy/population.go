// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// enter adds an endpoint to the matcher, without labels.
func (m *matcher) enter(ep *endpoint) { m.endpoints[ep] = struct{}{} }

func (m *matcher) leave(ep *endpoint) { delete(m.endpoints, ep) }

// setLabels updates the index from the endpoint's current labels to new ones.
func (m *matcher) setLabels(ep *endpoint, to map[string]string) { m.setLabelsFrom(ep, ep.labels, to) }

func (m *matcher) setLabelsFrom(ep *endpoint, from, to map[string]string) {
	for name, value := range from {
		if v, ok := to[name]; ok && v == value {
			continue
		}
		l := m.labels[name]
		b := l.values[value]
		b.remove(ep)
		l.total--
		if b.len() == 0 {
			delete(l.values, value)
		}
		if l.total == 0 {
			delete(m.labels, name)
		}
	}
	for name, value := range to {
		if v, ok := from[name]; ok && v == value {
			continue
		}
		l := m.labels[name]
		if l == nil {
			l = &labelled{values: map[string]*bag{}}
			m.labels[name] = l
		}
		b := l.values[value]
		if b == nil {
			b = &bag{}
			l.values[value] = b
		}
		b.add(ep)
		l.total++
	}
}

// setPorts changes the endpoint's ports and updates the index.
func (m *matcher) setPorts(ep *endpoint, to []model.EndpointPort) {
	for _, p := range ep.ports {
		if b := m.ports[p.Name]; b != nil {
			if b.remove(ep); b.len() == 0 {
				delete(m.ports, p.Name)
			}
		}
	}
	ep.ports = to
	for _, p := range to {
		b := m.ports[p.Name]
		if b == nil {
			b = &bag{}
			m.ports[p.Name] = b
		}
		b.add(ep)
	}
}

// profileIndex finds profiles by what they give their endpoints: labels, and tags, which count as labels with an empty
// value.
type profileIndex struct {
	labels map[string]map[string]map[*profile]struct{}
	tags   map[string]map[*profile]struct{}
}

// each calls f for the profiles whose labels or tags satisfy a term, possibly twice.
func (x *profileIndex) each(t selector.Term, f func(*profile)) {
	if t.Any {
		for _, profiles := range x.labels[t.Label] {
			for p := range profiles {
				f(p)
			}
		}
	} else {
		for p := range x.labels[t.Label][t.Value] {
			f(p)
		}
	}
	if t.Any || t.Value == "" {
		for p := range x.tags[t.Label] {
			f(p)
		}
	}
}
