// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A FieldError says where in a document an error is, and what it is.
type FieldError struct {
	File      string // "" = unknown
	Line, Col int    // 0 = unknown
	Field     string // like spec.ingress[0].action, "" = the document
	Err       error
}

// Error returns file:line:column: field: reason, without what is unknown.
func (e *FieldError) Error() string {
	text := e.Err.Error()
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	switch {
	case e.File == "":
		return text
	case e.Line == 0:
		return e.File + ": " + text
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, text)
}

// Unwrap returns the reason.
func (e *FieldError) Unwrap() error { return e.Err }

// nodes maps the names of a document's fields to their places.
type nodes map[string]*yaml.Node

// A decoder reads one document. It goes on after an error, so as to find them all.
type decoder struct {
	file  string
	nodes nodes
	errs  []error
}

// mostErrors is how many errors of a document are told: a large one may have one for each of its lines.
const mostErrors = 20

func (d *decoder) fail(n *yaml.Node, field string, format string, args ...any) {
	err := fmt.Errorf(format, args...)
	switch has := len(d.errs); {
	case has > mostErrors:
		return
	case has == mostErrors:
		err = errors.New("and more")
	}
	d.errs = append(d.errs, &FieldError{d.file, n.Line, n.Column, field, err})
}

func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "null"
	}
	return strconv.Quote(n.Value)
}

// into decodes a node into v, which must be settable.
func (d *decoder) into(n *yaml.Node, field string, v reflect.Value) {
	d.nodes[field] = n
	switch {
	case n.Kind == yaml.AliasNode:
		d.fail(n, field, "an alias of YAML: write the value itself")
		return
	case n.Tag == "!!null":
		d.fail(n, field, "null: leave the field out")
		return
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.into(n, field, v.Elem())
		return
	}
	if setting, ok := v.Addr().Interface().(*Setting); ok && n.Kind != yaml.ScalarNode {
		d.setting(n, field, setting)
		return
	}
	if text, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if n.Kind != yaml.ScalarNode {
			d.fail(n, field, "want one value, have %s", kindOf(n))
		} else if err := text.UnmarshalText([]byte(n.Value)); err != nil {
			d.fail(n, field, "%w", err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.fields(n, field, v)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fail(n, field, "want a list, have %s", kindOf(n))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, element := range n.Content {
			d.into(element, field+"["+strconv.Itoa(i)+"]", v.Index(i))
		}
	case reflect.Map:
		d.mapping(n, field, v)
	default:
		d.scalar(n, field, v)
	}
}

func (d *decoder) scalar(n *yaml.Node, field string, v reflect.Value) {
	want := map[reflect.Kind]string{reflect.String: "a string", reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Float64: "a number"}[v.Kind()]
	bad := n.Kind != yaml.ScalarNode
	switch {
	case bad:
	case v.Kind() == reflect.String:
		if bad = n.Tag != "!!str"; !bad {
			v.SetString(n.Value)
		} else {
			want += ": write it in quotes"
		}
	case v.Kind() == reflect.Bool:
		if bad = n.Tag != "!!bool"; !bad {
			v.SetBool(strings.EqualFold(n.Value, "true"))
		}
	case v.Kind() == reflect.Int:
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if bad = err != nil || n.Tag != "!!int"; !bad {
			v.SetInt(i)
		}
	case v.Kind() == reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if bad = err != nil || n.Tag != "!!int" && n.Tag != "!!float"; !bad {
			v.SetFloat(f)
		}
	}
	if bad {
		d.fail(n, field, "%s: want %s", kindOf(n), want)
	}
}

// mapping decodes a map with string keys.
func (d *decoder) mapping(n *yaml.Node, field string, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	d.each(n, field, func(name string, _, value *yaml.Node) {
		element := reflect.New(v.Type().Elem()).Elem()
		d.into(value, field+"."+name, element)
		v.SetMapIndex(reflect.ValueOf(name), element)
	})
}

// each calls fn for each field of a mapping. Duplicate fields are errors.
func (d *decoder) each(n *yaml.Node, field string, fn func(name string, key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, field, "want a mapping, have %s", kindOf(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			d.fail(key, field, "want a name, have %s", kindOf(key))
		case seen[key.Value]:
			d.fail(key, join(field, key.Value), "given twice")
		default:
			seen[key.Value] = true
			fn(key.Value, key, value)
		}
	}
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

func (d *decoder) fields(n *yaml.Node, field string, v reflect.Value) {
	names := fieldNames(v.Type())
	d.each(n, field, func(name string, key, value *yaml.Node) {
		i := slices.Index(names, name)
		if i >= 0 {
			if input := v.Type().Field(i).Tag.Get("input"); input == "ignored" || input == "optional" && value.Tag == "!!null" {
				return
			}
		}
		if i < 0 {
			d.fail(key, join(field, name), "unknown field%s", suggest(name, names))
			return
		}
		if reason := v.Type().Field(i).Tag.Get("refused"); reason != "" {
			only, some := v.Type().Field(i).Tag.Lookup("only")
			if text := textOf(value); !some || !isOneOf(text, only) {
				d.fail(key, join(field, name), "%w", wantOnly(text, only, reason))
			}
			return
		}
		d.into(value, join(field, name), v.Field(i))
		if least := v.Type().Field(i).Tag.Get("least"); least == "1" && v.Field(i).Int() < 1 && value.Tag == "!!int" {
			d.fail(value, join(field, name), "%s: want 1 at least", value.Value)
		}
	})
}

// textOf returns a value as text. A list or mapping that isn't empty has no text of its own.
func textOf(n *yaml.Node) string {
	switch {
	case n.Tag == "!!null":
		return ""
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		return "[]"
	case n.Kind == yaml.MappingNode && len(n.Content) == 0:
		return "{}"
	case n.Kind == yaml.ScalarNode:
		return n.Value
	}
	return kindOf(n)
}

// isOneOf reports whether text is empty, or one of the words, which are joined by |, in any case and unit of time; * is any.
func isOneOf(text, words string) bool {
	duration, err := time.ParseDuration(text)
	return text == "" || slices.ContainsFunc(strings.Split(words, "|"), func(word string) bool {
		d, bad := time.ParseDuration(word)
		return word == "*" || strings.EqualFold(word, text) || err == nil && bad == nil && d == duration
	})
}

// wanted says which values of a field are taken, and why no others.
func wanted(words, reason string) string {
	switch words {
	case "", "[]", "{}", "none":
		return reason
	}
	return "want " + strings.ReplaceAll(words, "|", " or ") + ": " + reason
}

// wantOnly returns the error of a field that is taken only with values that change nothing.
func wantOnly(text, words, reason string) error {
	if want := wanted(words, reason); want != reason {
		return fmt.Errorf("%.64q: %s", text, want)
	}
	return errors.New(reason)
}

// onlyDoc returns the description of such a field.
func onlyDoc(words, reason string) string {
	switch words {
	case "*":
		return "Without effect: " + reason + "."
	case "", "[]", "{}", "none":
		return "Only empty: " + reason + "."
	}
	return "Only " + strings.ReplaceAll(words, "|", " or ") + ", which changes nothing: " + reason + "."
}

// fieldNames returns the JSON names of a struct's fields.
func fieldNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return names
}
