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

var profileKind = newKind(readProfile, writeProfile, Kind{
	Name: "Profile", Plural: "Profiles", Plain: true, ranges: prefix(model.PolicyPrefix()), of: profileOf, mayDelete: ownProfile, words: ruleWords,
	Columns: []Column{cell("LABELS", true, func(p *Profile) string { return fmt.Sprint(len(p.LabelsToApply)) })},
	narrow: func(r Resource) []model.Range {
		name := r.Metadata.Name
		return keyRanges(model.ProfileRulesKey{Profile: name}, model.ProfileTagsKey{Profile: name}, model.ProfileLabelsKey{Profile: name})
	},
})

func profileOf(e model.Entry) string {
	switch k := e.Key.(type) {
	case model.ProfileRulesKey:
		return k.Profile
	case model.ProfileLabelsKey:
		return k.Profile
	case model.ProfileTagsKey:
		return k.Profile
	}
	return ""
}

func readProfile(name string, s *Stored) *Profile {
	spec := &Profile{}
	s.Metadata.Name = name
	for _, e := range s.Entries {
		if rules, ok := parsed[model.Rules](e); ok {
			spec.Ingress, _ = rulesOf(rules.Inbound, "") // global: every selector can be expressed
			spec.Egress, _ = rulesOf(rules.Outbound, "")
		}
		if labels, ok := parsed[model.Labels](e); ok {
			spec.LabelsToApply = labels
		}
		if tags, ok := parsed[model.Tags](e); ok {
			spec.Tags = tags
		}
	}
	return spec
}

func writeProfile(r writing[Profile]) (keys, error) {
	spec, name := r.spec, r.Metadata.Name
	if err := ownProfile(Stored{Resource: r.Resource}, nil); err != nil {
		return keys{}, fmt.Errorf("%s: %w", r.Title(), err)
	}
	if slices.ContainsFunc(slices.Concat(spec.Ingress, spec.Egress), func(rule Rule) bool { return rule.Metadata != nil }) {
		return keys{}, r.at("spec", "annotations of a profile's rules are not kept: leave metadata out")
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
		if had, ok := r.was.LabelsToApply[key]; ok && had == spec.LabelsToApply[key] {
			continue
		}
		if key == "" || strings.ContainsFunc(key, func(c rune) bool { return c > 127 || !labelByte(byte(c)) }) {
			return keys{}, r.at("spec.labelsToApply", "%.64q: want letters, digits, _ . / -: no selector picks another label", key)
		}
	}
	had := func(key model.Key) bool {
		return r.old != nil && slices.ContainsFunc(r.old.Entries, func(e model.Entry) bool { return e.Key == key })
	}
	var k keys
	rulesKey, labelsKey := model.ProfileRulesKey{Profile: name}, model.ProfileLabelsKey{Profile: name}
	if len(in)+len(out) > 0 || r.old == nil || had(rulesKey) {
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
