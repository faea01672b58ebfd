// SPDX-License-Identifier: Apache-2.0

package output

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/template"

	"k8s.io/client-go/util/jsonpath"

	"github.com/calico-go/calico/pkg/resource"
)

// A Printer prints resources of a kind. one says that a single resource was asked for: it is printed alone, not as a list.
// headed says that tables have headings.
type Printer func(w io.Writer, kind *resource.Kind, list []resource.Resource, one, headed bool) error

// Parse parses the argument of -o.
func Parse(format string) (Printer, error) {
	name, arg, _ := strings.Cut(format, "=")
	switch name {
	case "table", "ps", "":
		return table(false), nil
	case "wide":
		return table(true), nil
	case "name":
		return func(w io.Writer, kind *resource.Kind, list []resource.Resource, _, _ bool) error {
			for _, r := range list {
				if _, err := fmt.Fprintf(w, "%s/%s\n", strings.ToLower(kind.Name), r.Metadata.Name); err != nil {
					return err
				}
			}
			return nil
		}, nil
	case "json":
		return func(w io.Writer, kind *resource.Kind, list []resource.Resource, one, _ bool) error {
			return JSON(w, whole(kind, list, one))
		}, nil
	case "yaml":
		return func(w io.Writer, kind *resource.Kind, list []resource.Resource, one, headed bool) error {
			if !headed {
				if _, err := io.WriteString(w, "---\n"); err != nil {
					return err
				}
			}
			if one && len(list) == 1 {
				return YAML(w, list[0])
			}
			return yamlList(w, kind, list)
		}, nil
	case "go-template", "go-template-file":
		if name == "go-template-file" {
			data, err := os.ReadFile(arg)
			if err != nil {
				return nil, err
			}
			arg = string(data)
		}
		t, err := template.New("-o").Parse(arg)
		if err != nil {
			return nil, fmt.Errorf("-o %s: %w", name, err)
		}
		return generic(t.Execute), nil
	case "jsonpath":
		p, err := path(arg)
		if err != nil {
			return nil, err
		}
		return generic(func(w io.Writer, data any) error {
			if err := p.Execute(w, data); err != nil {
				return err
			}
			_, err := io.WriteString(w, "\n")
			return err
		}), nil
	case "custom-columns":
		return customColumns(arg)
	}
	return nil, fmt.Errorf("-o %s: want table, wide, name, json, yaml, go-template=TEMPLATE, jsonpath=PATH or custom-columns=HEAD:.path", format)
}

// Deleted prints, in a format of Parse, that a resource is gone: a line in a table, or in JSON and YAML an event as in Kubernetes watches.
// said is false for formats that can't express it.
func Deleted(w io.Writer, format string, r resource.Resource) (said bool, err error) {
	event := struct {
		Type   string            `json:"type"`
		Object resource.Resource `json:"object"`
	}{"DELETED", r}
	switch format {
	case "json":
		return true, JSON(w, event)
	case "yaml":
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return true, err
		}
		return true, YAML(w, event)
	case "table", "ps", "", "wide":
		_, err := fmt.Fprintf(w, "%s deleted\n", r.Title())
		return true, err
	}
	return false, nil
}

func path(text string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(text, "{") {
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	p := jsonpath.New("-o").AllowMissingKeys(true)
	if err := p.Parse(text); err != nil {
		return nil, fmt.Errorf("-o jsonpath: %w", err)
	}
	return p, nil
}

// whole returns a single resource, or a list of them.
func whole(kind *resource.Kind, list []resource.Resource, one bool) any {
	if one && len(list) == 1 {
		return list[0]
	}
	if list == nil {
		list = []resource.Resource{}
	}
	return struct {
		APIVersion string              `json:"apiVersion"`
		Items      []resource.Resource `json:"items"`
		Kind       string              `json:"kind"`
	}{resource.APIVersion, list, kind.Name + "List"}
}

// yamlList prints one resource after the other, so that the whole list is never in memory as text.
func yamlList(w io.Writer, kind *resource.Kind, list []resource.Resource) error {
	b := bufio.NewWriter(w)
	items := "items:"
	if len(list) == 0 {
		items += " []"
	}
	fmt.Fprintf(b, "apiVersion: %s\n%s\n", resource.APIVersion, items)
	for _, r := range list {
		var item bytes.Buffer
		if err := YAML(&item, r); err != nil {
			return err
		}
		indent := "- "
		for line := range bytes.Lines(item.Bytes()) {
			b.WriteString(indent)
			b.Write(line)
			indent = "  "
		}
	}
	fmt.Fprintf(b, "kind: %sList\n", kind.Name)
	return b.Flush() // with the first error of all writes
}

// generic returns a Printer that passes the resources, with their JSON names, to a template.
func generic(execute func(io.Writer, any) error) Printer {
	return func(w io.Writer, kind *resource.Kind, list []resource.Resource, one, _ bool) error {
		data, err := fields(whole(kind, list, one))
		if err != nil {
			return err
		}
		return execute(w, data)
	}
}

func fields(v any) (data any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &data)
	return data, err
}

func customColumns(spec string) (Printer, error) {
	var heads []string
	var paths []*jsonpath.JSONPath
	for column := range strings.SplitSeq(spec, ",") {
		head, text, ok := strings.Cut(column, ":")
		if !ok || head == "" || text == "" {
			return nil, fmt.Errorf("-o custom-columns: %q: want HEAD:.path", column)
		}
		p, err := path(text)
		if err != nil {
			return nil, err
		}
		heads, paths = append(heads, head), append(paths, p)
	}
	return func(w io.Writer, _ *resource.Kind, list []resource.Resource, _, _ bool) error {
		var rows [][]string
		for _, r := range list {
			data, err := fields(r)
			if err != nil {
				return err
			}
			row := make([]string, len(paths))
			for i, p := range paths {
				var b bytes.Buffer
				if err := p.Execute(&b, data); err != nil {
					return err
				}
				if row[i] = b.String(); row[i] == "" {
					row[i] = "<none>"
				}
			}
			rows = append(rows, row)
		}
		return Table(w, heads, rows)
	}, nil
}

func table(wide bool) Printer {
	return func(w io.Writer, kind *resource.Kind, list []resource.Resource, _, headed bool) error {
		var heads []string
		if kind.Namespaced {
			heads = append(heads, "NAMESPACE")
		}
		heads = append(heads, "NAME")
		columns := slices.DeleteFunc(slices.Clone(kind.Columns), func(c resource.Column) bool { return c.Wide && !wide })
		if slices.ContainsFunc(list, func(r resource.Resource) bool { return r.Metadata.UID != "" }) {
			columns = append(columns, resource.Column{Head: "OWNER", Cell: func(r resource.Resource) string {
				if r.Metadata.UID == "" {
					return ""
				}
				return "kubernetes"
			}})
		}
		for _, c := range columns {
			heads = append(heads, c.Head)
		}
		var rows [][]string
		for _, r := range list {
			var row []string
			if kind.Namespaced {
				row = append(row, r.Metadata.Namespace)
			}
			row = append(row, r.Metadata.Name)
			for _, c := range columns {
				row = append(row, c.Cell(r))
			}
			rows = append(rows, row)
		}
		if !headed && len(rows) > 0 {
			heads, rows = rows[0], rows[1:]
		}
		return Table(w, heads, rows)
	}
}
