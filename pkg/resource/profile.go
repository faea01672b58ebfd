// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Profile is the spec of a Profile.
type Profile struct {
	Ingress       []Rule            `json:"ingress,omitempty" doc:"Rules of packets to its endpoints."`
	Egress        []Rule            `json:"egress,omitempty" doc:"Rules of packets from its endpoints."`
	LabelsToApply map[string]string `json:"labelsToApply,omitempty" doc:"Labels that its endpoints have besides their own."`
	Tags          []string          `json:"tags,omitempty" doc:"Ours. Names by which rules pick its endpoints. Default: those that are stored."`
}

func profileOf(k model.Key) (string, bool) {
	switch k := k.(type) {
	case model.ProfileRulesKey:
		return k.Profile, true
	case model.ProfileLabelsKey:
		return k.Profile, true
	case model.ProfileTagsKey:
		return k.Profile, true
	}
	return "", false
}

func readProfiles(entries []model.Entry) []Stored {
	return group(entries, profileOf, func(name string, s *Stored) {
		spec := &Profile{}
		s.Spec, s.Metadata.Name = spec, name
		for _, e := range s.Entries {
			if rules, ok := parsed[model.Rules](e); ok {
				spec.Ingress, _ = rulesOf(rules.Inbound, "") // global: every selector has words
				spec.Egress, _ = rulesOf(rules.Outbound, "")
			}
			if labels, ok := parsed[model.Labels](e); ok {
				spec.LabelsToApply = labels
			}
			if tags, ok := parsed[model.Tags](e); ok {
				spec.Tags = tags
			}
		}
	})
}

// each makes a resource of each entry that is there by a key of its type.
func each[K model.Key](entries []model.Entry, fill func(key K, e model.Entry, s *Stored)) []Stored {
	var all []Stored
	for _, e := range entries {
		if key, ok := e.Key.(K); ok && e.Path == key.Path() {
			s := Stored{Entries: []model.Entry{e}}
			fill(key, e, &s)
			all = append(all, s)
		}
	}
	return all
}

// group collects the entries of each resource, by name.
func group(entries []model.Entry, name func(model.Key) (string, bool), fill func(string, *Stored)) []Stored {
	byName := map[string]*Stored{}
	var names []string
	for _, e := range entries {
		if e.Key == nil || e.Path != e.Key.Path() {
			continue
		}
		n, ok := name(e.Key)
		if !ok {
			continue
		}
		if byName[n] == nil {
			byName[n] = &Stored{}
			names = append(names, n)
		}
		byName[n].Entries = append(byName[n].Entries, e)
	}
	all := make([]Stored, 0, len(names))
	for _, n := range names {
		s := byName[n]
		fill(n, s)
		all = append(all, *s)
	}
	return all
}

func writeProfile(r Resource, old *Stored, _ []model.Entry) (keys, error) {
	spec, name := r.Spec.(*Profile), r.Metadata.Name
	if err := ownProfile(Stored{Resource: r}, nil); err != nil {
		return keys{}, fmt.Errorf("%s: %w", r.Title(), err)
	}
	in, err := r.rules("spec.ingress", spec.Ingress, "")
	if err != nil {
		return keys{}, err
	}
	out, err := r.rules("spec.egress", spec.Egress, "")
	if err != nil {
		return keys{}, err
	}
	for _, key := range slices.Sorted(maps.Keys(spec.LabelsToApply)) {
		if old != nil && old.Spec.(*Profile).LabelsToApply[key] == spec.LabelsToApply[key] {
			continue
		}
		if key == "" || strings.ContainsFunc(key, func(c rune) bool { return c > 127 || !labelByte(byte(c)) }) {
			return keys{}, r.at("spec.labelsToApply", "%.64q: want letters, digits, _ . / -: no selector picks another label", key)
		}
	}
	had := func(key model.Key) bool {
		return old != nil && slices.ContainsFunc(old.Entries, func(e model.Entry) bool { return e.Key == key })
	}
	var k keys
	rulesKey, labelsKey := model.ProfileRulesKey{Profile: name}, model.ProfileLabelsKey{Profile: name}
	if len(in)+len(out) > 0 || old == nil || had(rulesKey) {
		k.put(rulesKey, model.Rules{Inbound: in, Outbound: out})
	}
	if len(spec.LabelsToApply) > 0 || had(labelsKey) {
		k.put(labelsKey, model.Labels(spec.LabelsToApply))
	}
	if spec.Tags != nil {
		k.put(model.ProfileTagsKey{Profile: name}, model.Tags(spec.Tags))
	}
	return k, nil
}

func ownProfile(s Stored, _ []model.Entry) error {
	if strings.HasPrefix(s.Metadata.Name, "k8s_ns.") || strings.HasPrefix(s.Metadata.Name, "ksa.") {
		return errors.New("managed in Kubernetes: use kubectl")
	}
	return nil
}

func narrowProfile(r Resource) []model.Range {
	name := r.Metadata.Name
	return []model.Range{model.KeyRange(model.ProfileRulesKey{Profile: name}), model.KeyRange(model.ProfileTagsKey{Profile: name}), model.KeyRange(model.ProfileLabelsKey{Profile: name})}
}
