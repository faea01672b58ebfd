// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"

	"github.com/calico-go/calico/pkg/model"
)

// profile is a profile that exists, or that an endpoint refers to.
type profile struct {
	name      string
	parts     map[model.Key]error // existing parts; the error of an invalid one
	rules     model.Rules
	labels    map[string]string
	tags      map[string]struct{}
	endpoints [2]bag // that refer to it, by matcher
}

// profile returns the profile of a name, creating it if unknown.
func (x *index) profile(name string) *profile {
	p := x.profiles[name]
	if p == nil {
		p = &profile{name: name}
		x.profiles[name] = p
	}
	return p
}

// settle records whether the profile is missing, and drops one that neither exists nor is referred to.
func (x *index) settle(p *profile) {
	if len(p.parts) == 0 && p.endpoints[forOwn].len() > 0 {
		x.missing[p] = struct{}{}
	} else {
		delete(x.missing, p)
	}
	if len(p.parts) == 0 && p.endpoints[forAll].len() == 0 {
		delete(x.profiles, p.name)
	}
}

// missingProfiles returns, by path, errors for profiles that endpoints of this host name and that don't exist.
func (x *index) missingProfiles() map[string]error {
	out := map[string]error{}
	for p := range x.missing {
		first := ""
		p.endpoints[forOwn].each(func(ep *endpoint) {
			if first == "" || ep.path < first {
				first = ep.path
			}
		})
		at := model.ProfileRulesKey{Profile: p.name}.Path()
		out[at] = fmt.Errorf("profile %s does not exist, so it denies: create it, or take it out of %s; those of Kubernetes, k8s_ns.* and ksa.*, are made by calico-controllers", p.name, first)
	}
	return out
}

// Unmade returns a profile that the workload endpoint at path names and that lacks a needed part; "" if there is none.
func (e *Engine) Unmade(path string, needed func(profile string) []model.Key) string {
	ep := e.index.endpoints[path]
	if ep == nil {
		return ""
	}
	for _, p := range ep.profiles {
		for _, part := range needed(p.name) {
			if _, there := p.parts[part]; !there {
				return p.name
			}
		}
	}
	return ""
}

// problem says why the profile denies, "" if it doesn't.
func (p *profile) problem() string {
	if len(p.parts) == 0 {
		return "it does not exist"
	}
	for _, k := range [...]model.Key{model.ProfileRulesKey{Profile: p.name}, model.ProfileTagsKey{Profile: p.name}, model.ProfileLabelsKey{Profile: p.name}} {
		if err := p.parts[k]; err != nil {
			return fmt.Sprintf("%s: %v", k.Path(), err)
		}
	}
	return ""
}

// updateProfile processes one of the three parts of a profile.
func (x *index) updateProfile(name string, entry model.Entry) {
	p := x.profile(name)
	if entry.Exists() {
		if p.parts == nil {
			p.parts = make(map[model.Key]error, 3)
		}
		p.parts[entry.Key] = entry.Err
	} else {
		delete(p.parts, entry.Key)
	}
	switch entry.Key.(type) {
	case model.ProfileRulesKey:
		p.rules, _ = entry.Value.(model.Rules)
	case model.ProfileLabelsKey:
		labels, _ := entry.Value.(model.Labels)
		if !maps.Equal(p.labels, map[string]string(labels)) {
			x.profileIndex.setLabels(p, labels)
			x.rematchProfile(p)
		}
	case model.ProfileTagsKey:
		list, _ := entry.Value.(model.Tags)
		var tags map[string]struct{}
		for _, t := range list {
			if tags == nil {
				tags = make(map[string]struct{}, len(list))
			}
			tags[t] = struct{}{}
		}
		if !maps.Equal(p.tags, tags) {
			x.profileIndex.setTags(p, tags)
			x.rematchProfile(p)
		}
	}
	x.settle(p)
}

// rematchProfile matches the profile's endpoints again after its labels or tags have changed.
func (x *index) rematchProfile(p *profile) {
	if x.all.queries > 0 {
		p.endpoints[forAll].each(x.all.rematch)
	}
	if x.own.queries > 0 {
		p.endpoints[forOwn].each(x.own.rematch)
	}
}

func (x *profileIndex) setLabels(p *profile, to map[string]string) {
	for name, value := range p.labels {
		values := x.labels[name]
		delete(values[value], p)
		if len(values[value]) == 0 {
			delete(values, value)
		}
		if len(values) == 0 {
			delete(x.labels, name)
		}
	}
	p.labels = to
	for name, value := range to {
		values := x.labels[name]
		if values == nil {
			values = map[string]map[*profile]struct{}{}
			x.labels[name] = values
		}
		if values[value] == nil {
			values[value] = map[*profile]struct{}{}
		}
		values[value][p] = struct{}{}
	}
}

func (x *profileIndex) setTags(p *profile, to map[string]struct{}) {
	for tag := range p.tags {
		delete(x.tags[tag], p)
		if len(x.tags[tag]) == 0 {
			delete(x.tags, tag)
		}
	}
	p.tags = to
	for tag := range to {
		if x.tags[tag] == nil {
			x.tags[tag] = map[*profile]struct{}{}
		}
		x.tags[tag][p] = struct{}{}
	}
}
