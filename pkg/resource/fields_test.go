// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/resource"
)

// calicoPage returns the page that says what becomes of each field of Calico's v3 API. A field that isn't known here is an error: it needs a
// reason.
func calicoPage(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("testdata/calico-v3-fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	specs := map[string]*resource.Schema{}
	for _, k := range slices.Concat(resource.Kinds(), resource.DefinedKinds()) {
		specs[k.Name] = k.Schema().Properties["spec"]
	}
	specs["Rule"] = specs["NetworkPolicy"].Properties["ingress"].Items
	b, kinds := &strings.Builder{}, map[string]bool{}
	fmt.Fprint(b, "# Calico's v3 API\n\nEach kind of Calico's `projectcalico.org/v3` and each field of its spec, as of single files of Calico's sources\n"+
		"after v3.32, and what becomes of it here. `calicoctl` and the API server refuse what is not supported, with the reason. `Rule` is what policies\n"+
		"and profiles have in `ingress` and `egress`.\n\n<!-- Made by `go test ./pkg/resource -run TestReference -update`. -->\n")
	kind, answers := "", []string(nil)
	fields := map[string][]string{} // by answer
	end := func() {
		if len(answers) > 0 {
			fmt.Fprint(b, "\n| fields of `spec` | here |\n|---|---|\n")
		}
		for _, answer := range answers {
			fmt.Fprintf(b, "| `%s` | %s |\n", strings.Join(fields[answer], "`, `"), answer)
		}
		answers = nil
		clear(fields)
	}
	for line := range strings.Lines(string(data)) {
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case !strings.HasPrefix(line, " "):
			end()
			kind = strings.TrimSpace(line)
			kinds[kind] = true
			fmt.Fprintf(b, "\n## %s\n", kind)
			if _, err := resource.Find(kind); err != nil && kind != "Rule" {
				fmt.Fprintf(b, "\nNot of calicoctl: %s.\n", strings.TrimPrefix(err.Error(), kind+": "))
			}
			continue
		}
		for path := range strings.FieldsSeq(line) {
			answer := fieldHere(specs[kind], path)
			if answer == "" {
				t.Errorf("%s: spec.%s is a field of Calico's that isn't known here", kind, path)
			}
			if fields[answer] == nil {
				answers = append(answers, answer)
			}
			fields[answer] = append(fields[answer], path)
		}
	}
	end()
	for _, k := range resource.Kinds() {
		if !kinds[k.Name] && k.Name != "DHCPSubnet" { // ours
			t.Errorf("%s isn't listed", k.Name)
		}
	}
	return b.String()
}

// fieldHere says what becomes of a field: "" = it isn't known.
func fieldHere(s *resource.Schema, path string) string {
	answer := "supported"
	for name := range strings.SplitSeq(path, ".") {
		name = strings.TrimSuffix(name, "[]")
		if reason := s.Reason(name); reason != "" {
			return "refused: " + reason
		}
		f := s.Properties[name]
		if f == nil {
			if answer == "supported" {
				return ""
			}
			return answer
		}
		if limit := f.Description; strings.HasPrefix(limit, "Only ") || strings.HasPrefix(limit, "Without effect") {
			answer = strings.ToLower(limit[:1]) + strings.TrimSuffix(limit[1:], ".")
		}
		if s = f; s.Items != nil {
			s = s.Items
		}
	}
	return answer
}
