// SPDX-License-Identifier: Apache-2.0

// Package resource turns the operator's resources, projectcalico.org/v3, into the data model and back. A resource is a
// view of keys in etcd; there is no second copy of it.
package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// APIVersion is the version of all resources.
const APIVersion = "projectcalico.org/v3"

// Metadata names a resource. Fields set by a server are ignored in the input.
type Metadata struct {
	Name            string            `json:"name,omitempty"`
	Namespace       string            `json:"namespace,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty" input:"optional"`
	Annotations     map[string]string `json:"annotations,omitempty" input:"optional"`

	UID               string `json:"uid,omitempty" input:"ignored"`
	CreationTimestamp string `json:"creationTimestamp,omitempty" input:"ignored"`
	Generation        string `json:"generation,omitempty" input:"ignored"`
	ManagedFields     string `json:"managedFields,omitempty" input:"ignored"`
	SelfLink          string `json:"selfLink,omitempty" input:"ignored"`
	Finalizers        string `json:"finalizers,omitempty" input:"ignored"`
	OwnerReferences   string `json:"ownerReferences,omitempty" input:"ignored"`
}

// A Resource is one object of the operator. Spec is a pointer to the struct of its kind.
type Resource struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       any      `json:"spec"`

	By By `json:"-"` // who writes it; nothing is read into it

	file  string
	nodes nodes
	older bool   // it was read from a document of apiVersion v1
	as    string // of a Node: its AS number, its own or the default
}

// ID returns the name that is unique within the kind: namespace/name, or name.
func (r Resource) ID() string { return r.Metadata.id() }

func (m Metadata) id() string {
	if m.Namespace != "" {
		return m.Namespace + "/" + m.Name
	}
	return m.Name
}

// Title returns kind and name, as messages name a resource.
func (r Resource) Title() string { return r.Kind + " " + r.ID() }

// at returns an error of one field, with its place if the resource was read from a document.
func (r Resource) at(field, format string, args ...any) error {
	e := &FieldError{File: r.file, Field: field, Err: fmt.Errorf(format, args...)}
	for place := field; ; {
		if n := r.nodes[place]; n != nil {
			e.Line, e.Col = n.Line, n.Column
			break
		}
		i := strings.LastIndexAny(place, ".[")
		if i < 0 {
			break
		}
		place = place[:i]
	}
	if e.File == "" && len(r.nodes) == 0 {
		e.Field = r.Title() + ": " + field
	}
	return e
}

// Place returns file:line, where the document of a resource begins.
func (r Resource) Place() string {
	if n := r.nodes[""]; n != nil {
		return fmt.Sprintf("%s:%d", r.file, n.Line)
	}
	return r.file
}

// Decode parses the documents of a file, YAML or JSON; a list of resources counts as its items. If there are any errors it
// returns them all, joined, and no resource.
func Decode(file string, data []byte) ([]Resource, error) {
	all, errs := decodeFile(file, data)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// DecodeSupported is Decode, but resources of kinds that are refused are left out, and no errors.
func DecodeSupported(file string, data []byte) (all []Resource, left []*UnsupportedError, err error) {
	all, errs := decodeFile(file, data)
	errs = slices.DeleteFunc(errs, func(err error) bool {
		unsupported, is := errors.AsType[*UnsupportedError](err)
		if is {
			left = append(left, unsupported)
		}
		return is
	})
	return all, left, errors.Join(errs...)
}

func decodeFile(file string, data []byte) (all []Resource, errs []error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: not YAML: %s", file, strings.TrimPrefix(err.Error(), "yaml: ")))
			break
		}
		if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
			continue
		}
		more, bad := decodeNode(file, doc.Content[0])
		all, errs = append(all, more...), append(errs, bad...)
	}
	return all, errs
}

// DecodeInto parses the document of a file into a struct, by the JSON names of its fields, as strictly as Decode.
func DecodeInto(file string, data []byte, v any) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("%s: not YAML: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return fmt.Errorf("%s: empty", file)
	}
	d := &decoder{file: file, nodes: nodes{}}
	d.into(doc.Content[0], "", reflect.ValueOf(v).Elem())
	return errors.Join(d.errs...)
}

func decodeAll(file string, list []*yaml.Node) (all []Resource, errs []error) {
	for _, item := range list {
		more, bad := decodeNode(file, item)
		all, errs = append(all, more...), append(errs, bad...)
	}
	return all, errs
}

func decodeNode(file string, n *yaml.Node) ([]Resource, []error) {
	if n.Kind == yaml.SequenceNode && len(n.Content) > 0 {
		return decodeAll(file, n.Content)
	}
	r := Resource{file: file, nodes: nodes{}}
	d := &decoder{file: file, nodes: r.nodes}
	d.nodes[""] = n
	parts := map[string]*yaml.Node{}
	d.each(n, "", func(name string, key, value *yaml.Node) {
		switch name {
		case "apiVersion", "kind", "metadata", "spec", "items":
			parts[name] = value
		case "status":
		default:
			d.fail(key, name, "unknown field%s", suggest(name, []string{"apiVersion", "kind", "metadata", "spec", "items"}))
		}
	})
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	if parts["kind"] == nil {
		d.fail(n, "kind", "missing: want one of %s", strings.Join(KindNames(), ", "))
		return nil, d.errs
	}
	d.into(parts["kind"], "kind", reflect.ValueOf(&r.Kind).Elem())
	if items := parts["items"]; items != nil {
		if !strings.HasSuffix(r.Kind, "List") || items.Kind != yaml.SequenceNode {
			d.fail(items, "items", "want a list, in a document whose kind ends in List")
			return nil, d.errs
		}
		return decodeAll(file, items.Content)
	}
	if v := parts["apiVersion"]; v != nil && v.Value == "v1" {
		decodeOlder(d, n, &r)
		return []Resource{r}, d.errs
	}
	k, err := Find(r.Kind)
	if err != nil {
		d.fail(parts["kind"], "kind", "%w", err)
		return nil, d.errs
	}
	if v := parts["apiVersion"]; v == nil || v.Value != APIVersion {
		if v == nil {
			d.fail(n, "apiVersion", "missing: want %s", APIVersion)
		} else {
			d.fail(v, "apiVersion", "%s: want %s", kindOf(v), APIVersion)
		}
		return nil, d.errs
	}
	r.APIVersion, r.Kind, r.Spec = APIVersion, k.Name, k.newSpec()
	if parts["metadata"] == nil {
		d.fail(n, "metadata", "missing: want metadata.name")
	} else {
		d.into(parts["metadata"], "metadata", reflect.ValueOf(&r.Metadata).Elem())
	}
	if spec := parts["spec"]; spec != nil && spec.Tag != "!!null" {
		d.into(spec, "spec", reflect.ValueOf(r.Spec).Elem())
	}
	if len(d.errs) == 0 {
		if err := k.checkNames(&r); err != nil {
			d.errs = append(d.errs, err)
		}
	}
	return []Resource{r}, d.errs
}

func (k *Kind) checkNames(r *Resource) error {
	switch {
	case r.Metadata.Name == "":
		return r.at("metadata.name", "missing")
	case len(r.Metadata.Name) > 253:
		return r.at("metadata.name", "%d characters: at most 253", len(r.Metadata.Name))
	case !k.Namespaced && r.Metadata.Namespace != "":
		return r.at("metadata.namespace", "%s is in no namespace: leave it out", A(k.Name))
	case k.Namespaced && r.Metadata.Namespace == "":
		r.Metadata.Namespace = "default"
	}
	return nil
}

var (
	labelKey   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

// checkLabels checks new labels: they must be valid in Kubernetes.
func (r Resource) checkLabels(old *Stored) error {
	for _, key := range slices.Sorted(maps.Keys(r.Metadata.Labels)) {
		value := r.Metadata.Labels[key]
		if old != nil {
			if had, ok := old.Metadata.Labels[key]; ok && had == value {
				continue
			}
		}
		switch {
		case !labelKey.MatchString(key):
			return r.at("metadata.labels", "%.64q: want a label like rack or example.com/rack: 63 letters, digits, - _ . at most, with a letter or digit at both ends", key)
		case !labelValue.MatchString(value):
			return r.at("metadata.labels."+key, "%.64q: want 63 letters, digits, - _ . at most, with a letter or digit at both ends", value)
		}
	}
	return nil
}

// equal reports whether two resources are the same apart from resourceVersion.
func equal(a, b Resource) bool {
	text := func(r Resource) string {
		r.Metadata.ResourceVersion = ""
		data, err := json.Marshal(r)
		if err != nil {
			return err.Error()
		}
		return string(data)
	}
	return text(a) == text(b)
}
