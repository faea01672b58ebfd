// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// PolicyType is a direction that a policy covers.
type PolicyType string

// UnmarshalText accepts any case.
func (t *PolicyType) UnmarshalText(text []byte) error { return word(t, text, t.words()) }

func (PolicyType) words() []string { return []string{"Ingress", "Egress"} }

// Policy is the spec of a GlobalNetworkPolicy, and of a NetworkPolicy.
type Policy struct {
	Tier                   string       `json:"tier,omitempty" default:"default" doc:"The tier that it belongs to. Default default."`
	Order                  *float64     `json:"order,omitempty" doc:"Policies of a lower one are asked first; those without, last."`
	Selector               string       `json:"selector,omitempty" doc:"Selector of the endpoints that it applies to; of its namespace, where it has one. Default all()."`
	NamespaceSelector      string       `json:"namespaceSelector,omitempty" doc:"Of a GlobalNetworkPolicy: selector of these endpoints' namespaces."`
	ServiceAccountSelector string       `json:"serviceAccountSelector,omitempty" doc:"Selector of these endpoints' service accounts."`
	Types                  []PolicyType `json:"types,omitempty" doc:"Ingress, Egress or both. Default: Egress where it has only such rules, both where it has both, else Ingress."`
	Ingress                []Rule       `json:"ingress,omitempty" most:"1024" doc:"Rules of packets to these endpoints, at most 1,024; the first that matches decides."`
	Egress                 []Rule       `json:"egress,omitempty" most:"1024" doc:"Rules of packets from these endpoints, likewise."`
	DoNotTrack             bool         `json:"doNotTrack,omitempty" doc:"Of host endpoints: decides on each packet before connections are tracked, those of replies as well."`
	PreDNAT                bool         `json:"preDNAT,omitempty" doc:"Of host endpoints, ingress only: decides before any destination is translated."`
	ApplyOnForward         bool         `json:"applyOnForward,omitempty" doc:"Of host endpoints: decides on forwarded packets as well."`
	PerformanceHints       []string     `json:"performanceHints,omitempty" input:"ignored" doc:"Without effect."`
}

func (Policy) validations() []Validation {
	return []Validation{
		{"!has(self.preDNAT) || !self.preDNAT || !has(self.doNotTrack) || !self.doNotTrack", "preDNAT: a policy has preDNAT or doNotTrack, not both"},
		{"!has(self.preDNAT) || !self.preDNAT || !has(self.egress)", "egress: a policy with preDNAT is about what comes in"},
	}
}

var (
	globalNetworkPolicyKind = policyKind(Kind{Name: "GlobalNetworkPolicy", Plural: "GlobalNetworkPolicies", Aliases: []string{"gnp", "gnps"}}, "gnp", "cgnp")
	networkPolicyKind       = policyKind(Kind{
		Name: "NetworkPolicy", Plural: "NetworkPolicies", Aliases: []string{"np", "nps", "policy", "policies", "pol"}, Namespaced: true,
	})
)

// mostCompared is how many keys a write compares one by one. etcd takes 128 comparisons in a transaction.
const mostCompared = 100

func policyKind(k Kind, short ...string) *Kind {
	k.custom = &custom{short: short, columns: []string{"Tier", "tier", "Order", "order"}, rules: []Validation{
		{"!self.metadata.name.startsWith('knp.') && !self.metadata.name.startsWith('kcnp.')", "metadata.name: names that begin with knp. or kcnp. are those of Kubernetes' own policies"},
	}}
	k.ranges, k.elsewhere, k.mayDelete = prefix(model.PolicyPrefix()), true, deletablePolicy // elsewhere: in another tier
	k.words = ruleWords
	k.Columns = []Column{
		cell("TIER", false, func(p *Policy) string { return p.Tier }),
		cell("ORDER", true, func(p *Policy) string { return order(p.Order) }),
		cell("SELECTOR", true, func(p *Policy) string { return p.Selector }),
	}
	k.of = func(e model.Entry) string {
		if key, ok := e.Key.(model.PolicyKey); ok && strings.Contains(key.Policy, "/") == k.Namespaced {
			return e.Path
		}
		return ""
	}
	k.alike = func(s *Stored) []string { // <tier>.x for x, and the reverse
		tier, name := s.Entries[0].Key.(model.PolicyKey).Tier, s.Metadata.Name
		return []string{name, tier + "." + name, strings.TrimPrefix(name, tier+".")}
	}
	k.narrow = func(r Resource) []model.Range {
		tier := cmp.Or(specOf[Policy](r).Tier, model.DefaultTier)
		return keyRanges(policyKey(r, tier), model.TierKey{Tier: tier})
	}
	return newKind(one(readPolicy), writePolicy, k)
}

func readPolicy(key model.PolicyKey, p *model.Policy, s *Stored) *Policy {
	s.Metadata.Name = key.Policy
	if namespace, name, ok := strings.Cut(key.Policy, "/"); ok {
		s.Metadata.Namespace, s.Metadata.Name = namespace, name
	}
	if p == nil {
		return &Policy{Tier: key.Tier}
	}
	spec, err := policyOf(*p, key.Tier, s.Metadata.Namespace)
	if err != nil {
		s.Err = fmt.Errorf("%s: %w", s.Entries[0].Path, err)
	}
	if p.Source == "" {
		return spec
	}
	if source := sourceOf(*p, s); source != nil {
		return source
	}
	return spec
}

// sourceOf returns the spec as it was applied, nil if the policy has been changed since.
func sourceOf(p model.Policy, s *Stored) *Policy {
	spec := &Policy{}
	if DecodeInto("meta.source", []byte(p.Source), spec) != nil {
		return nil
	}
	again, err := s.policy(spec, s.Metadata.Namespace)
	if err != nil {
		return nil
	}
	again.Meta = p.Meta
	is, err := model.FormatValue(again)
	if err != nil {
		return nil
	}
	if was, err := model.FormatValue(p); err != nil || !bytes.Equal(is, was) {
		return nil
	}
	return spec
}

// noted returns the spec with the notes of its rules, which nothing else keeps; "" if they have none.
func noted(p model.Policy, spec *Policy, tier, namespace string) string {
	all, err := policyOf(p, tier, namespace)
	if err != nil {
		return ""
	}
	found := false
	for _, lists := range [][2][]Rule{{spec.Ingress, all.Ingress}, {spec.Egress, all.Egress}} {
		for i, rule := range lists[0] {
			if rule.Metadata != nil && len(rule.Metadata.Annotations) > 0 {
				lists[1][i].Metadata, found = rule.Metadata, true
			}
		}
	}
	if !found {
		return ""
	}
	text, err := json.Marshal(all)
	if err != nil {
		return ""
	}
	return string(text)
}

func policyKey(r Resource, tier string) model.PolicyKey {
	key := model.PolicyKey{Tier: tier, Policy: r.Metadata.Name}
	if r.Metadata.Namespace != "" {
		key.Policy = r.Metadata.Namespace + "/" + key.Policy
	}
	return key
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

func writePolicy(r writing[Policy]) (keys, error) {
	spec, namespace := r.spec, r.Metadata.Namespace
	tier := cmp.Or(spec.Tier, model.DefaultTier)
	if r.old != nil {
		was := cmp.Or(r.was.Tier, model.DefaultTier)
		if spec.Tier == "" {
			tier = was
		}
		if was != tier {
			return keys{}, r.at("spec.tier", "the policy is in tier %s: delete it there first", was)
		}
	}
	if model.KubernetesPolicy(r.Metadata.Name) {
		return keys{}, fmt.Errorf("%s: managed in Kubernetes: use kubectl", r.Title())
	}
	if r.old == nil {
		if err := r.dnsName(); err != nil {
			return keys{}, err
		}
		if !r.alone && tier != model.DefaultTier && !slices.ContainsFunc(r.entries, func(e model.Entry) bool { return e.Key == model.TierKey{Tier: tier} }) {
			return keys{}, r.at("spec.tier", "there is no tier %s: make it first", tier)
		}
	}
	p, err := r.policy(spec, namespace)
	if err != nil {
		return keys{}, err
	}
	p.Meta = r.meta
	p.Source = noted(p, spec, tier, namespace)
	var k keys
	if r.old == nil {
		k.others = []model.Key{model.TierKey{Tier: tier}}
		tiers := map[string]bool{model.DefaultTier: true}
		for _, e := range r.entries {
			switch key := e.Key.(type) {
			case model.TierKey:
				tiers[key.Tier] = true
			case model.PolicyKey:
				tiers[key.Tier] = true
			}
		}
		if delete(tiers, tier); len(tiers) > mostCompared {
			k.vacant, tiers = []string{model.PolicyPrefix()}, nil
		}
		for other := range tiers { // no policy of this name appears there
			k.others = append(k.others, policyKey(r.Resource, other))
		}
	}
	k.put(policyKey(r.Resource, tier), p)
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

var dnsName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)

// dnsName checks the name of a new resource: DNS-1123.
func (r Resource) dnsName() error {
	if name := r.Metadata.Name; !dnsName.MatchString(name) {
		return r.at("metadata.name", "%q: want lower case letters, digits, - and ., with a letter or digit at both ends", name)
	}
	return nil
}

func deletablePolicy(s Stored, _ []model.Entry) error {
	if model.KubernetesPolicy(s.Metadata.Name) {
		return errors.New("managed in Kubernetes: use kubectl")
	}
	return nil
}
