// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/resource"
)

// TestPatches: a merge patch merges objects, replaces lists, and removes what is null; the operations of a JSON patch are done in
// order, and the error of one that can't be names it, its path and what to do.
func TestPatches(t *testing.T) {
	all, err := resource.Decode("doc", []byte(`
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: web, annotations: {a/b: x}}
spec:
  order: 1
  ingress:
  - {action: Allow, protocol: TCP, destination: {ports: [80]}}
  - {action: Log}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ patch, want string }{
		{`{"spec":{"order":2}}`, "ingress: [{action: Allow, protocol: TCP, destination: {ports: [80]}}, {action: Log}]\norder: 2"},
		{"spec: {order: null, ingress: [{action: Deny}]}", "ingress: [{action: Deny}]"},
		{`[{"op":"test","path":"/spec/order","value":1},{"op":"remove","path":"/spec/order"}]`, "ingress: [{action: Allow, protocol: TCP, destination: {ports: [80]}}, {action: Log}]"},
		{"- {op: replace, path: /spec/ingress/0/destination/ports, value: [80, 443]}\n- {op: move, from: /spec/ingress/1, path: /spec/ingress/0}",
			"ingress: [{action: Log}, {action: Allow, protocol: TCP, destination: {ports: [80, 443]}}]\norder: 1"},
		{`[{"op":"test","path":"/metadata/annotations/a~1b","value":"x"},{"op":"add","path":"/spec/ingress/-","value":{"action":"Deny"}},{"op":"remove","path":"/spec/ingress/0"}]`,
			"ingress: [{action: Log}, {action: Deny}]\norder: 1"},
		{`[]`, "ingress: [{action: Allow, protocol: TCP, destination: {ports: [80]}}, {action: Log}]\norder: 1"},

		{`[{"op":"test","path":"/spec/order","value":2},{"op":"remove","path":"/spec/order"}]`,
			"patch: operation 1, test /spec/order: another value is there: get the resource again, and see whether the patch is still right"},
		{`[{"op":"remove","path":"/spec/order"},{"op":"replace","path":"/spec/order","value":1}]`,
			"patch: operation 2, replace /spec/order: nothing is there: see calicoctl get -o json for the paths that are, and add what is missing"},
		{`[{"op":"add","path":"/spec/egress/-","value":{"action":"Deny"}}]`,
			"patch: operation 1, add /spec/egress/-: nothing is there: see calicoctl get -o json for the paths that are, and add what is missing"},
		{`[{"op":"copy","from":"/spec/egress","path":"/spec/ingress"}]`,
			"patch: operation 1, copy /spec/ingress: nothing is there: see calicoctl get -o json for the paths that are, and add what is missing"},
		{`[{"op":"remove","path":"/spec/ingress/2"}]`,
			"patch: operation 1, remove /spec/ingress/2: error in remove for path: '/spec/ingress/2': Unable to access invalid index: 2: invalid index referenced: see calicoctl get -o json for the paths that are"},
		{`[{"op":"remove","path":"/spec/ingress/-1"}]`,
			"patch: operation 1, remove /spec/ingress/-1: error in remove for path: '/spec/ingress/-1': Unable to access invalid index: -1: invalid index referenced: see calicoctl get -o json for the paths that are"},
		{`[{"op":"set","path":"/spec/order","value":1}]`, `patch: invalid operation {"op":"set","path":"/spec/order","value":1}: unsupported operation: want a list like [{"op":"replace","path":"/spec/disabled","value":true}]`},
		{`[{"op":"replace","path":"","value":{}}]`, "patch: operation 1, replace : want a path like /spec/disabled"},
		{`[{"op":"remove","path":"spec/order"}]`, "patch: operation 1, remove spec/order: want a path like /spec/disabled"},
		{`[{"op":"remove"}]`, `patch: invalid operation {"op":"remove"}: failed to decode 'path': operation missing path field: missing value: want a list like [{"op":"replace","path":"/spec/disabled","value":true}]`},
		{`[{"op":"add","path":"/spec/order"}]`, `patch: invalid operation {"op":"add","path":"/spec/order"}: failed to decode 'value': operation, missing value field: missing value: want a list like [{"op":"replace","path":"/spec/disabled","value":true}]`},
		{`[{"op":"move","path":"/spec/order"}]`, `patch: invalid operation {"op":"move","path":"/spec/order"}: failed to decode 'from': operation, missing from field: missing value: want a list like [{"op":"replace","path":"/spec/disabled","value":true}]`},
		{`["remove"]`, `patch: not a list of operations: want a list like [{"op":"replace","path":"/spec/disabled","value":true}]`},
		{`[{"op":`, "patch: not JSON or YAML: line 1: did not find expected node content"},
		{`[{"op":"add","path":"/spec/oder","value":1}]`, "GlobalNetworkPolicy web: patched: spec.oder: unknown field; did you mean order?"},
		{`[{"op":"replace","path":"/metadata/name","value":"x"}]`, "GlobalNetworkPolicy web: a patch can't change kind or name"},
	} {
		apply := resource.Patched
		if tc.patch[0] == '[' || tc.patch[0] == '-' {
			apply = resource.Operated
		}
		got := ""
		if r, err := apply(all[0], []byte(tc.patch)); err != nil {
			got = err.Error()
		} else {
			have, err := yaml.Marshal(r.Spec)
			if err != nil {
				t.Fatal(err)
			}
			var want any
			if err := yaml.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			got, tc.want = string(have), string(text)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.patch, diff)
		}
	}
}
