// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/resource"
)

// definitions is the file of the CustomResourceDefinitions, which this test compares with the Go types.
const definitions = "../../k8s-manifests/base/definitions.yaml"

// TestDefinitions expects the CustomResourceDefinitions of the manifests to match the Go types.
func TestDefinitions(t *testing.T) {
	text, err := resource.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	want := "# SPDX-License-Identifier: Apache-2.0\n# Made by `go test ./pkg/resource -run TestDefinitions -update`.\n" + string(text)
	if *update {
		if err := os.WriteFile(definitions, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(definitions)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), want); diff != "" {
		t.Errorf("%s is not what the Go types say: run this test with -update (-have +want):\n%s", definitions, diff)
	}
	// The right to all kinds names each: a wildcard would be a right to all tiers as well.
	list := func(kinds []*resource.Kind, suffix string) string {
		var plurals []string
		for _, k := range kinds {
			plurals = append(plurals, strings.ToLower(k.Plural)+suffix)
		}
		slices.Sort(plurals)
		return strings.Join(plurals, ", ")
	}
	for _, tt := range []struct{ file, list string }{
		{"resources", list(resource.DefinedKinds(), "")}, {"controllers", list(resource.CustomKinds(), "")}, {"controllers", list(resource.CustomKinds(), "/status")},
	} {
		if rights, err := os.ReadFile("../../k8s-manifests/base/" + tt.file + "-rbac.yaml"); err != nil || !strings.Contains(string(rights), "  resources: ["+tt.list+"]\n") {
			t.Errorf("%s-rbac.yaml lacks a right to %s: %v", tt.file, tt.list, err)
		}
	}
}
