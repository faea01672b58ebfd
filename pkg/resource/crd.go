// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A custom says what is particular to a kind's CustomResourceDefinition. Kinds without one aren't in the Kubernetes API.
type custom struct {
	short   []string     // names, besides the singular and the plural
	columns []string     // of kubectl get, in pairs: a title, and a field below spec
	rules   []Validation // of the whole object: its name is self.metadata.name
	status  any          // of an object's status, nil = it says whether the object is in force
}

// A Validation is what must hold for an object in the Kubernetes API, a rule in the Common Expression Language about self, and what the
// API server says otherwise.
type Validation struct{ Rule, Message string }

// validated are the types of fields that have validations.
type validated interface{ validations() []Validation }

// refused returns the validation that an object doesn't have a field.
func refused(field, reason string) Validation {
	return Validation{"!has(self." + field + ")", field + ": " + reason}
}

// onlyDefault is of the resources that exist once.
var onlyDefault = []Validation{{"self.metadata.name == 'default'", "metadata.name: want default"}}

// defaultOrNode is of the resources of the cluster and of its nodes.
var defaultOrNode = []Validation{{"self.metadata.name == 'default' || self.metadata.name.startsWith('node.') && size(self.metadata.name) > 5", "metadata.name: want default, or node.<name>"}}

// CustomKinds returns the kinds that are in the Kubernetes API.
func CustomKinds() []*Kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k *Kind) bool { return k.custom == nil })
}

// DefinedKinds returns these and the kinds that are nowhere else.
func DefinedKinds() []*Kind { return append(CustomKinds(), calicoNodeStatusKind) }

// Definitions returns the CustomResourceDefinitions of all of [DefinedKinds], as documents of YAML.
func Definitions() ([]byte, error) {
	var all bytes.Buffer
	enc := yaml.NewEncoder(&all)
	enc.SetIndent(2)
	for _, k := range DefinedKinds() {
		if err := enc.Encode(k.definition()); err != nil {
			return nil, fmt.Errorf("%s: %w", k.Name, err)
		}
	}
	return all.Bytes(), enc.Close()
}

// An object is a JSON object whose members have an order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalYAML implements yaml.Marshaler.
func (o object) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, m := range o {
		name, value := &yaml.Node{}, &yaml.Node{}
		if err := name.Encode(m.name); err != nil {
			return nil, err
		}
		if err := value.Encode(m.value); err != nil {
			return nil, err
		}
		n.Content = append(n.Content, name, value)
	}
	return n, nil
}

// definition returns the kind's CustomResourceDefinition (apiextensions.k8s.io/v1).
func (k *Kind) definition() object {
	group, version, _ := strings.Cut(APIVersion, "/")
	plural := strings.ToLower(k.Plural)
	names := object{{"kind", k.Name}, {"listKind", k.Name + "List"}, {"plural", plural}, {"singular", strings.ToLower(k.Name)}}
	if k.custom.short != nil {
		names = append(names, member{"shortNames", k.custom.short})
	}
	scope := "Cluster"
	if k.Namespaced {
		scope = "Namespaced"
	}
	var columns []object
	column := func(title, kind, path string) {
		columns = append(columns, object{{"name", title}, {"type", kind}, {"jsonPath", path}})
	}
	for i := 0; i < len(k.custom.columns); i += 2 {
		field := k.custom.columns[i+1]
		kind, _ := k.Schema().Properties["spec"].Properties[field].Type.(string)
		if kind == "" || kind == "array" {
			kind = "string"
		}
		column(k.custom.columns[i], kind, ".spec."+field)
	}
	answer := status
	if k.custom.status == nil {
		column("Accepted", "string", `.status.conditions[?(@.type=="Accepted")].status`)
		column("Realised", "string", `.status.conditions[?(@.type=="Realised")].status`)
	} else {
		column("State", "string", ".status.agent.birdV4.state")
		answer = schemaOf(reflect.TypeOf(k.custom.status)).structural()
	}
	column("Age", "date", ".metadata.creationTimestamp")
	schema := object{
		{"description", k.Name + " of Calico."}, {"type", "object"}, {"required", []string{"spec"}},
		{"properties", object{
			{"apiVersion", object{{"type", "string"}}}, {"kind", object{{"type", "string"}}}, {"metadata", object{{"type", "object"}}},
			{"spec", k.Schema().Properties["spec"].structural()}, {"status", answer},
		}},
	}
	return object{
		{"apiVersion", "apiextensions.k8s.io/v1"}, {"kind", "CustomResourceDefinition"},
		{"metadata", object{{"name", plural + "." + group}, {"annotations", kept}}},
		{"spec", object{
			{"group", group}, {"scope", scope}, {"names", names},
			{"versions", []object{{
				{"name", version}, {"served", true}, {"storage", true}, {"subresources", object{{"status", object{}}}},
				{"additionalPrinterColumns", columns}, {"schema", object{{"openAPIV3Schema", withRules(schema, k.custom.rules)}}},
			}}},
		}},
	}
}

// kept has GitOps tools leave a definition where it is when a manifest without it is applied: all objects of the kind would go with it.
var kept = object{{"argocd.argoproj.io/sync-options", "Prune=false"}, {"kustomize.toolkit.fluxcd.io/prune", "disabled"}}

// status is the schema of the status of kinds that don't have another. Manifests as Calico prints them may have what its own programs wrote
// there.
var status = object{{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}, {"properties", object{{"conditions", object{
	{"description", "Accepted says whether the object is in order and in etcd, Realised whether it is in force on all nodes."},
	{"type", "array"}, {"x-kubernetes-list-type", "map"}, {"x-kubernetes-list-map-keys", []string{"type"}},
	{"items", object{{"type", "object"}, {"required", []string{"type", "status", "lastTransitionTime", "reason", "message"}}, {"properties", object{
		{"type", object{{"type", "string"}}}, {"status", object{{"type", "string"}, {"enum", []string{"True", "False", "Unknown"}}}},
		{"observedGeneration", object{{"type", "integer"}, {"format", "int64"}}}, {"lastTransitionTime", object{{"type", "string"}, {"format", "date-time"}}},
		{"reason", object{{"type", "string"}}}, {"message", object{{"type", "string"}}},
	}}}},
}}}}}

func withRules(o object, rules []Validation) object {
	if len(rules) == 0 {
		return o
	}
	return append(o, member{"x-kubernetes-validations", converted(rules, func(v Validation) object { return object{{"rule", v.Rule}, {"message", v.Message}} })})
}

// structural returns the schema in the form that the Kubernetes API takes: one with a type for everything.
func (s *Schema) structural() object {
	var o object
	if s.Description != "" {
		o = append(o, member{"description", s.Description})
	}
	add := func(name string, value any) { o = append(o, member{name, value}) }
	switch t := s.Type.(type) {
	case string:
		add("type", t)
	case []string:
		if slices.Contains(t, "integer") {
			add("x-kubernetes-int-or-string", true)
		} else {
			add("type", t[0])
		}
	case nil:
		add("x-kubernetes-preserve-unknown-fields", true)
	}
	if s.Default != "" {
		add("default", s.Default)
	}
	if s.Enum != nil {
		add("enum", s.Enum)
	}
	if s.Pattern != "" {
		add("pattern", s.Pattern)
	}
	if s.Minimum != nil {
		add("minimum", *s.Minimum)
		add("maximum", *s.Maximum)
	}
	if s.MaxItems > 0 {
		add("maxItems", s.MaxItems)
	}
	if s.MaxLength > 0 {
		add("maxLength", s.MaxLength)
	}
	if s.Items != nil {
		add("items", s.Items.structural())
	}
	if len(s.Required) > 0 {
		add("required", s.Required)
	}
	var properties object
	for _, name := range s.Order {
		properties = append(properties, member{name, s.Properties[name].structural()})
	}
	rules := slices.Clone(s.Validations)
	for _, f := range s.Refused {
		properties = append(properties, member{f.name, f.schema.structural()})
		rules = append(rules, refused(f.name, f.reason))
	}
	if properties != nil {
		add("properties", properties)
	}
	switch additional := s.Additional.(type) {
	case *Schema:
		add("additionalProperties", additional.structural())
	case nil:
		if s.Type == "object" && properties == nil {
			add("x-kubernetes-preserve-unknown-fields", true)
		}
	}
	return withRules(o, rules)
}
