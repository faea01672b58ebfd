// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// A Schema describes values, in terms of JSON Schema. A value that it accepts has the right form; Check says whether it makes
// sense.
type Schema struct {
	Draft       string `json:"$schema,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	// Type is a string, or a list of strings; nil = any. Of array and string the Kubernetes API takes an array alone.
	Type       any                `json:"type,omitempty"`
	Format     string             `json:"format,omitempty"`
	Const      string             `json:"const,omitempty"`
	Default    string             `json:"default,omitempty"`
	Minimum    *int               `json:"minimum,omitempty"`
	Maximum    *int               `json:"maximum,omitempty"`
	MaxItems   int                `json:"maxItems,omitempty"`
	MaxLength  int                `json:"maxLength,omitempty"`
	Pattern    string             `json:"pattern,omitempty"`
	Enum       []string           `json:"enum,omitempty"`
	Items      *Schema            `json:"items,omitempty"`
	Properties map[string]*Schema `json:"properties,omitempty"`
	// Order lists the properties in the order in which people read them.
	Order      []string `json:"-"`
	Required   []string `json:"required,omitempty"`
	Additional any      `json:"additionalProperties,omitempty"` // false, a Schema, or nil = any
	// Refused are the properties that a document may not have, although Calico has them, and Validations what must hold for several of
	// the others.
	Refused     []refusedField `json:"-"`
	Validations []Validation   `json:"-"`
}

type refusedField struct {
	name, reason string
	schema       *Schema
}

// Schema returns the schema of the kind's documents.
func (k *Kind) Schema() *Schema {
	metadata := schemaOf(reflect.TypeFor[Metadata]())
	metadata.Required = []string{"name"}
	if !k.Namespaced {
		delete(metadata.Properties, "namespace")
		metadata.Order = slices.DeleteFunc(metadata.Order, func(name string) bool { return name == "namespace" })
	}
	spec := schemaOf(reflect.TypeOf(k.newSpec()).Elem())
	return &Schema{
		Draft: "https://json-schema.org/draft/2020-12/schema", Title: k.Name, Type: "object", Additional: false,
		Required: []string{"apiVersion", "kind", "metadata"}, Order: []string{"apiVersion", "kind", "metadata", "spec"},
		Properties: map[string]*Schema{
			"apiVersion": {Type: "string", Const: APIVersion}, "kind": {Type: "string", Const: k.Name},
			"metadata": metadata, "spec": spec, "status": {},
		},
	}
}

// anything is an object of which nothing is known.
type anything map[string]any

// values maps types that are written as text to their schemas.
var values = map[reflect.Type]Schema{
	reflect.TypeFor[anything]():         {Type: "object"},
	reflect.TypeFor[Address]():          {Type: "string", Format: "ip"},
	reflect.TypeFor[InterfaceAddress](): {Type: "string", Format: "ip or CIDR"},
	reflect.TypeFor[CIDR]():             {Type: "string", Format: "CIDR"},
	reflect.TypeFor[Net]():              {Type: "string", Format: "CIDR"},
	reflect.TypeFor[BareAddress]():      {Type: "string", Format: "ip or CIDR"},
	reflect.TypeFor[PeerAddress]():      {Type: "string", Format: "ip or ip:port"},
	reflect.TypeFor[model.MAC]():        {Type: "string", Format: "mac"},
	reflect.TypeFor[ASNumber]():         {Type: []string{"integer", "string"}},
	reflect.TypeFor[Protocol]():         {Type: []string{"string", "integer"}, MaxLength: len("UDPLite")},
	reflect.TypeFor[Port]():             {Type: []string{"integer", "string"}},
}

func schemaOf(t reflect.Type) *Schema {
	if t.Kind() == reflect.Pointer {
		return schemaOf(t.Elem())
	}
	if s, ok := values[t]; ok {
		return &s
	}
	if of, ok := reflect.Zero(t).Interface().(interface{ words() []string }); ok {
		return &Schema{Type: "string", Enum: of.words()}
	}
	if t == reflect.TypeFor[FelixConfiguration]() {
		return settingsSchema()
	}
	switch t.Kind() {
	case reflect.Struct:
		return structSchema(t)
	case reflect.Slice:
		return &Schema{Type: "array", Items: schemaOf(t.Elem())}
	case reflect.Map:
		return &Schema{Type: "object", Additional: schemaOf(t.Elem())}
	}
	return &Schema{Type: map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Float64: "number"}[t.Kind()]}
}

func structSchema(t reflect.Type) *Schema {
	s := &Schema{Type: "object", Properties: map[string]*Schema{}, Additional: false}
	if of, ok := reflect.Zero(t).Interface().(validated); ok {
		s.Validations = of.validations()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		doc, reason := f.Tag.Get("doc"), f.Tag.Get("refused")
		only, neutral := f.Tag.Lookup("only")
		switch {
		case neutral:
			s.Properties[name], doc = onlySchema(only, reason), onlyDoc(only, reason)
		case reason != "":
			s.Refused = append(s.Refused, refusedField{name, reason, schemaOf(f.Type)})
			continue
		case f.Tag.Get("input") == "ignored":
			s.Properties[name] = &Schema{}
		default:
			s.Properties[name] = schemaOf(f.Type)
		}
		s.Properties[name].Description = doc
		s.Properties[name].bounds(f.Tag)
		s.Order = append(s.Order, name)
		if options == "" {
			s.Required = append(s.Required, name)
		}
	}
	return s
}

// bounds sets what the tags of a field say of its values: default:"x", range:"low,high", and most:"n" elements.
func (s *Schema) bounds(tag reflect.StructTag) {
	if text, ok := tag.Lookup("default"); ok {
		s.Default = text
	}
	number := func(text string) *int {
		n, err := strconv.Atoi(text)
		if err != nil {
			panic(err) // a tag of this package
		}
		return &n
	}
	if text, ok := tag.Lookup("range"); ok {
		low, high, _ := strings.Cut(text, ",")
		s.Minimum, s.Maximum = number(low), number(high)
	}
	if text, ok := tag.Lookup("most"); ok {
		s.MaxItems = *number(text)
	}
}

// onlySchema returns the schema of a field that is taken only with values that change nothing: see isOneOf.
func onlySchema(only, reason string) *Schema {
	s := &Schema{Description: onlyDoc(only, reason), Type: "string"}
	words, of, quote := strings.Split(strings.ToLower(only), "|"), "self", "%s"
	_, noNumber := strconv.Atoi(words[0])
	_, noDuration := time.ParseDuration(words[0])
	switch {
	case only == "*" || only == "{}":
		s.Type = nil
		return s
	case only == "[]":
		s.Type, s.Items, of, words[0] = "array", &Schema{Type: "object"}, "size(self)", "0"
	case only == "none":
		s.Type, s.Items, of, words[0] = "array", &Schema{Type: "string"}, "size(self)", "0"
	case words[0] == "true" || words[0] == "false":
		s.Type = "boolean"
	case noNumber == nil:
		s.Type = "integer"
	case noDuration == nil:
		of, quote = "duration(self)", "duration('%s')"
	default:
		of, quote, words = "self.lowerAscii()", "'%s'", slices.Compact(append(words, ""))
		s.MaxLength = 64 // which bounds what the rule costs
	}
	list := converted(words, func(w string) string { return strings.ReplaceAll(quote, "%s", w) })
	s.Validations = []Validation{{of + " in [" + strings.Join(list, ", ") + "]", wanted(only, reason)}}
	return s
}

// settingsSchema returns the schema of FelixConfiguration, whose fields are the agents' parameters.
func settingsSchema() *Schema {
	s := &Schema{Type: "object", Properties: map[string]*Schema{}, Additional: false}
	for _, name := range Parameters() {
		field := settings[name].schema
		field.Description = cmp.Or(field.Description, "The parameter "+name+".")
		if strings.HasSuffix(name, "Ports") {
			field.Items, field.MaxItems = schemaOf(reflect.TypeFor[hostPort]()), 1000
		}
		s.Properties[fieldOf(name)] = &field
		s.Order = append(s.Order, fieldOf(name))
	}
	for _, name := range slices.Sorted(maps.Keys(otherSettings)) {
		other := otherSettings[name]
		field := onlySchema(other.only, other.reason)
		if other.list {
			field.Type, field.Items = "array", &Schema{Type: "string"}
			field.Validations[0].Rule = "self == ['" + other.only + "']"
		}
		s.Properties[name] = field
		s.Order = append(s.Order, name)
	}
	return s
}
