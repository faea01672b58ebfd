// SPDX-License-Identifier: Apache-2.0

package model

import "strings"

// Labels of a network set that say which it is.
const (
	LabelName = "projectcalico.org/name"
	LabelKind = "projectcalico.org/kind"
)

func parseNetworkSet(r *reader) (s NetworkSet, err error) {
	err = r.record(
		into("nets", &s.Nets, each((*reader).prefix)),
		into("labels", &s.Labels, (*reader).stringMap),
		into("meta", &s.Meta, parseMeta),
	)
	return s, err
}

func (s NetworkSet) check() error {
	if err := checkNetworks(s.Nets); err != nil {
		return inField("nets", err)
	}
	return nil
}

func (s NetworkSet) format(w *writer) error {
	w.open('{')
	w.prefixes("nets", s.Nets)
	if len(s.Labels) > 0 {
		w.name("labels")
		w.stringMap(s.Labels)
	}
	w.meta(s.Meta)
	w.close('}')
	return nil
}

// Parts returns the namespace and the name of a set; namespace "" = it is in none.
func (k NetworkSetKey) Parts() (namespace, name string) {
	if namespace, name, ok := strings.Cut(k.Name, "/"); ok {
		return namespace, name
	}
	return "", k.Name
}

// Matched returns the labels by which selectors match a set, given its own, and the profiles from which it inherits
// others. No set labels itself into another namespace: reserved labels of its own don't count.
func (k NetworkSetKey) Matched(own map[string]string) (labels map[string]string, profiles []string) {
	labels = withoutReserved(own)
	namespace, name := k.Parts()
	labels[LabelName], labels[LabelKind] = name, "GlobalNetworkSet"
	if namespace != "" {
		labels[LabelKind], labels[LabelNamespace] = "NetworkSet", namespace
		profiles = []string{NamespaceProfile(namespace)}
	}
	return labels, profiles
}
