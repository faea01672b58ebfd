// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/calico-go/calico/pkg/resource"
)

// reference is docs/reference, which this test compares with the Go types.
const reference = "../../docs/reference"

// TestReference expects exactly one page in docs/reference for each kind, matching the Go types.
func TestReference(t *testing.T) {
	want := map[string]string{}
	index := &strings.Builder{}
	fmt.Fprint(index, "# Reference of resources\n\nThe kinds of `projectcalico.org/v3` that `calicoctl` reads and writes, by field. `calicoctl schema KIND` prints the JSON schema"+
		" of one,\nfor editors. What is not listed is refused, with the reason; [calicoctl](../calicoctl.md) says how they are used."+
		"\n\n<!-- Made by `go test ./pkg/resource -run TestReference -update`. -->\n\n")
	for _, k := range resource.Kinds() {
		name := strings.ToLower(k.Name) + ".md"
		want[name] = page(k)
		fmt.Fprintf(index, "- [%s](%s)\n", k.Name, name)
	}
	rule := &strings.Builder{}
	fmt.Fprint(rule, "# Rules\n\nOf policies and profiles. A packet must match all that a rule names.\n\n| field | value | meaning |\n|---|---|---|\n")
	policy, err := resource.Find("NetworkPolicy")
	if err != nil {
		t.Fatal(err)
	}
	rows(rule, "", policy.Schema().Properties["spec"].Properties["ingress"].Items)
	want["rule.md"] = rule.String()
	fmt.Fprint(index, "- [rules](rule.md) of policies and profiles\n")
	want["calico-v3.md"] = calicoPage(t)
	fmt.Fprint(index, "- [Calico's v3 API](calico-v3.md), field by field: what is supported, and why the rest is refused\n")
	want["README.md"] = index.String()
	for name, text := range want {
		path := filepath.Join(reference, name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		} else if diff := cmp.Diff(string(have), text); diff != "" {
			t.Errorf("%s is not what the Go types say: run this test with -update (-have +want):\n%s", path, diff)
		}
	}
	files, err := os.ReadDir(reference)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if want[f.Name()] == "" {
			t.Errorf("%s/%s is of no kind", reference, f.Name())
		}
	}
}

func page(k *resource.Kind) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "# %s\n\n", k.Name)
	if len(k.Aliases) > 0 {
		fmt.Fprintf(b, "Short names: `%s`. ", strings.Join(k.Aliases, "`, `"))
	}
	fmt.Fprintf(b, "%s\n\n| field of `spec` | value | meaning |\n|---|---|---|\n", map[bool]string{true: "In a namespace.", false: "In no namespace."}[k.Namespaced])
	rows(b, "", k.Schema().Properties["spec"])
	if k.Name == "FelixConfiguration" {
		fmt.Fprintf(b, "\nThe [parameters](../configuration.md) say what they do, and what they may be.\n")
	}
	return b.String()
}

// described are the fields whose own fields are described elsewhere.
var described = map[string]string{
	"ingress": " See [rules](rule.md).", "egress": " See [rules](rule.md).",
	"importV4": " Fields as of `exportV4`.", "exportV6": " Fields as of `exportV4`.", "importV6": " Fields as of `exportV4`.", "destination": " Fields as of `source`.", "notICMP": " Fields as of `icmp`.",
}

// rows describes the fields of an object, each followed by its own fields.
func rows(b *strings.Builder, prefix string, s *resource.Schema) {
	for _, name := range s.Order {
		f := s.Properties[name]
		if f.Description == "" {
			fmt.Fprintf(b, "%s%s has no description\n", prefix, name)
		}
		value := valueOf(f)
		if slices.Contains(s.Required, name) {
			value += ", required"
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s%s |\n", prefix, name, value, f.Description, described[name])
		if described[name] != "" {
			continue
		}
		suffix := "."
		if f.Items != nil {
			f, suffix = f.Items, "[]."
		}
		rows(b, prefix+name+suffix, f)
	}
}

func valueOf(s *resource.Schema) string {
	switch {
	case s.Items != nil && s.Type != "array":
		return "string, or list: " + valueOf(s.Items)
	case s.Items != nil:
		return "list: " + valueOf(s.Items)
	case len(s.Enum) > 0:
		return strings.Join(s.Enum, ", ")
	case s.Format != "":
		return s.Format
	case s.Type == "object" && s.Additional != nil && s.Properties == nil:
		return "map of strings"
	}
	switch t := s.Type.(type) {
	case []string:
		return strings.Join(t, " or ")
	case string:
		return t
	}
	return "any"
}

var compiled map[string]*jsonschema.Schema

// schemas returns the schemas of all kinds, compiled by an independent library.
func schemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	if compiled != nil {
		return compiled
	}
	compiled = map[string]*jsonschema.Schema{}
	for _, k := range resource.Kinds() {
		text, err := json.Marshal(k.Schema())
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(k.Name, doc); err != nil {
			t.Fatal(err)
		}
		if compiled[k.Name], err = c.Compile(k.Name); err != nil {
			t.Fatal(err)
		}
	}
	return compiled
}

func validate(t *testing.T, schema *jsonschema.Schema, text []byte) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(value)
}

// TestSchemaRefuses: the schemas refuse documents of the wrong form.
func TestSchemaRefuses(t *testing.T) {
	for document, good := range map[string]bool{
		`{"apiVersion":"projectcalico.org/v3","kind":"IPPool","metadata":{"name":"x"},"spec":{"cidr":"10.0.0.0/8","blockSize":26,"vxlanMode":"Always"}}`: true,
		`{"apiVersion":"projectcalico.org/v3","kind":"IPPool","metadata":{"name":"x"},"spec":{"blockSize":26}}`:                                          false,
		`{"apiVersion":"projectcalico.org/v3","kind":"IPPool","metadata":{"name":"x"},"spec":{"cidr":"10.0.0.0/8","vxlanMode":"Perhaps"}}`:               false,
		`{"apiVersion":"projectcalico.org/v3","kind":"IPPool","metadata":{"name":"x"},"spec":{"cidr":"10.0.0.0/8","blocksize":26}}`:                      false,
		`{"apiVersion":"projectcalico.org/v3","kind":"IPPool","metadata":{"name":"x","namespace":"y"},"spec":{"cidr":"10.0.0.0/8"}}`:                     false,
		`{"apiVersion":"v1","kind":"IPPool","metadata":{"name":"x"},"spec":{"cidr":"10.0.0.0/8"}}`:                                                       false,
	} {
		if err := validate(t, schemas(t)["IPPool"], []byte(document)); (err == nil) != good {
			t.Errorf("%s: %v", document, err)
		}
	}
}

// TestNoSpec: every kind's resource without a spec has an object for one, as its schema says.
func TestNoSpec(t *testing.T) {
	for _, k := range resource.Kinds() {
		all, err := resource.Decode("f", []byte("apiVersion: projectcalico.org/v3\nkind: "+k.Name+"\nmetadata: {name: default}\n"))
		if err != nil || len(all) != 1 {
			t.Errorf("%s: %v", k.Name, err)
			continue
		}
		if text, err := json.Marshal(all[0]); err != nil || strings.Contains(string(text), `"spec":null`) {
			t.Errorf("%s, %v", text, err)
		}
	}
}
