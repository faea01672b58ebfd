// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// PolicyType is a direction in which a policy decides.
type PolicyType string

// UnmarshalText reads it in any case.
func (t *PolicyType) UnmarshalText(text []byte) error { return word(t, text, t.words()) }

func (PolicyType) words() []string { return []string{"Ingress", "Egress"} }

// Policy is the spec of a GlobalNetworkPolicy, and of a NetworkPolicy.
type Policy struct {
	Tier                   string       `json:"tier,omitempty" doc:"The tier that it belongs to. Default default."`
	Order                  *float64     `json:"order,omitempty" doc:"Policies of a lower one are asked first; those without, last."`
	Selector               string       `json:"selector,omitempty" doc:"Selector of the endpoints that it applies to; of its namespace, where it has one. Default all()."`
	NamespaceSelector      string       `json:"namespaceSelector,omitempty" doc:"Of a GlobalNetworkPolicy: selector of these endpoints' namespaces."`
	ServiceAccountSelector string       `json:"serviceAccountSelector,omitempty" doc:"Selector of these endpoints' service accounts."`
	Types                  []PolicyType `json:"types,omitempty" doc:"Ingress, Egress or both. Default: Egress where it has only such rules, both where it has both, else Ingress."`
	Ingress                []Rule       `json:"ingress,omitempty" doc:"Rules of packets to these endpoints, at most 1,024; the first that matches decides."`
	Egress                 []Rule       `json:"egress,omitempty" doc:"Rules of packets from these endpoints, likewise."`
	DoNotTrack             bool         `json:"doNotTrack,omitempty" doc:"Of host endpoints: decides on each packet before connections are tracked, those of replies as well."`
	PreDNAT                bool         `json:"preDNAT,omitempty" doc:"Of host endpoints, ingress only: decides before any destination is translated."`
	ApplyOnForward         bool         `json:"applyOnForward,omitempty" doc:"Of host endpoints: decides on forwarded packets as well."`
	PerformanceHints       []string     `json:"performanceHints,omitempty" input:"ignored" doc:"Without effect."`
}

// readOnly reports whether Kubernetes' own policies are called so.
func readOnly(name string) bool {
	return strings.HasPrefix(name, "knp.") || strings.HasPrefix(name, "kcnp.")
}

func readPolicies(namespaced bool) func([]model.Entry) []Stored {
	return func(entries []model.Entry) []Stored {
		var all []Stored
		for _, e := range entries {
			key, ok := e.Key.(model.PolicyKey)
			if !ok || e.Path != key.Path() {
				continue
			}
			namespace, name, inNamespace := strings.Cut(key.Policy, "/")
			if inNamespace != namespaced {
				continue
			}
			s := Stored{Entries: []model.Entry{e}}
			s.Metadata.Name = namespace
			if namespaced {
				s.Metadata.Namespace, s.Metadata.Name = namespace, name
			}
			if p, ok := parsed[model.Policy](e); ok {
				spec, err := policyOf(p, key.Tier, s.Metadata.Namespace)
				s.Spec = spec
				if err != nil {
					s.Err = fmt.Errorf("%s: %w", e.Path, err)
				}
			} else {
				s.Spec = &Policy{Tier: key.Tier}
			}
			all = append(all, s)
		}
		return all
	}
}

func policyKey(r Resource, tier string) model.PolicyKey {
	key := model.PolicyKey{Tier: tier, Policy: r.Metadata.Name}
	if r.Metadata.Namespace != "" {
		key.Policy = r.Metadata.Namespace + "/" + key.Policy
	}
	return key
}

func narrowPolicy(r Resource) []model.Range {
	tier := cmp.Or(r.Spec.(*Policy).Tier, model.DefaultTier)
	return []model.Range{model.KeyRange(policyKey(r, tier)), model.KeyRange(model.TierKey{Tier: tier})}
}

func policyOf(p model.Policy, tier, namespace string) (*Policy, error) {
	spec := &Policy{Tier: tier, Order: p.Order, Selector: p.Selector, DoNotTrack: p.Untracked, PreDNAT: p.PreDNAT, ApplyOnForward: p.Forward}
	if p.Applies(model.Inbound) {
		spec.Types = append(spec.Types, "Ingress")
	}
	if p.Applies(model.Outbound) {
		spec.Types = append(spec.Types, "Egress")
	}
	var errs [3]error
	switch picked, ok := decompile(p.Selector, namespace, false); {
	case !ok || namespace != "" && (picked.namespaces != "" || p.Selector == ""):
		errs[0] = errNoWords
	default:
		spec.Selector, spec.NamespaceSelector = picked.selector, picked.namespaces
		spec.ServiceAccountSelector = orZero(picked.accounts).Selector
	}
	spec.Ingress, errs[1] = rulesOf(p.Inbound, namespace)
	spec.Egress, errs[2] = rulesOf(p.Outbound, namespace)
	return spec, errors.Join(errs[:]...)
}

func writePolicy(r Resource, old *Stored, entries []model.Entry) (keys, error) {
	spec := r.Spec.(*Policy)
	namespace := r.Metadata.Namespace
	tier := cmp.Or(spec.Tier, model.DefaultTier)
	if old != nil {
		was := cmp.Or(old.Spec.(*Policy).Tier, model.DefaultTier)
		if spec.Tier == "" {
			tier = was
		}
		if was != tier {
			return keys{}, r.at("spec.tier", "the policy is in tier %s: delete it there first", was)
		}
	}
	if readOnly(r.Metadata.Name) {
		return keys{}, fmt.Errorf("%s: managed in Kubernetes: use kubectl", r.Title())
	}
	if old == nil {
		if err := r.dnsName(); err != nil {
			return keys{}, err
		}
		if tier != model.DefaultTier && !slices.ContainsFunc(entries, func(e model.Entry) bool { return e.Key == model.TierKey{Tier: tier} }) {
			return keys{}, r.at("spec.tier", "there is no tier %s: make it first", tier)
		}
	}
	p, err := r.policy(spec, namespace)
	if err != nil {
		return keys{}, err
	}
	var k keys
	if old == nil {
		k.others, k.vacant = []model.Key{model.TierKey{Tier: tier}}, []string{model.PolicyPrefix()} // a policy of this name in another tier
	}
	k.put(policyKey(r, tier), p)
	return k, nil
}

func (r Resource) policy(spec *Policy, namespace string) (model.Policy, error) {
	p := model.Policy{Order: spec.Order, Untracked: spec.DoNotTrack, PreDNAT: spec.PreDNAT, Forward: spec.ApplyOnForward}
	if namespace != "" {
		switch {
		case spec.NamespaceSelector != "":
			return p, r.at("spec.namespaceSelector", "a NetworkPolicy is about its own namespace: use a GlobalNetworkPolicy")
		case spec.DoNotTrack, spec.PreDNAT, spec.ApplyOnForward:
			return p, r.at("spec", "doNotTrack, preDNAT and applyOnForward are for GlobalNetworkPolicy")
		}
	}
	from := pick{selector: spec.Selector, namespaces: spec.NamespaceSelector}
	if spec.ServiceAccountSelector != "" {
		from.accounts = &ServiceAccounts{Selector: spec.ServiceAccountSelector}
	}
	if namespace != "" && from.selector == "" && from.accounts == nil {
		p.Selector = model.LabelNamespace + ` == "` + namespace + `"`
	} else {
		var err error
		if p.Selector, _, err = from.compile(namespace); err != nil {
			return p, r.notPicked("spec", err)
		}
	}
	var err error
	if p.Inbound, err = r.rules("spec.ingress", spec.Ingress, namespace); err != nil {
		return p, err
	}
	if p.Outbound, err = r.rules("spec.egress", spec.Egress, namespace); err != nil {
		return p, err
	}
	types := spec.Types
	if types == nil {
		if len(p.Inbound) > 0 || len(p.Outbound) == 0 {
			types = append(types, "Ingress")
		}
		if len(p.Outbound) > 0 {
			types = append(types, "Egress")
		}
	}
	in, out := slices.Contains(types, "Ingress"), slices.Contains(types, "Egress")
	switch {
	case !in && !out:
		return p, r.at("spec.types", "empty list: want Ingress, Egress or both")
	case !in && len(p.Inbound) > 0:
		return p, r.at("spec.types", "there are ingress rules, which would have no effect: want Ingress, too")
	case !out && len(p.Outbound) > 0:
		return p, r.at("spec.types", "there are egress rules, which would have no effect: want Egress, too")
	case in && !out:
		p.Types = []model.Direction{model.Inbound}
	case out && !in:
		p.Types = []model.Direction{model.Outbound}
	}
	return p, nil
}

// dnsName checks the name of what is made: DNS-1123.
func (r Resource) dnsName() error {
	name := r.Metadata.Name
	for i := range len(name) {
		c := name[i]
		edge := i == 0 || i == len(name)-1
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || !edge && (c == '-' || c == '.') {
			continue
		}
		return r.at("metadata.name", "%q: want lower case letters, digits, - and ., with a letter or digit at both ends", name)
	}
	return nil
}

func deletablePolicy(s Stored, _ []model.Entry) error {
	if readOnly(s.Metadata.Name) {
		return errors.New("managed in Kubernetes: use kubectl")
	}
	return nil
}
