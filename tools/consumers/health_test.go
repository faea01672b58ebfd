// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	"sigs.k8s.io/yaml"
)

// evaluate evaluates an expression about an object as Flux does: parsed and not type-checked, and with the object's members as variables.
func evaluate(t *testing.T, expression string, object map[string]any) (is bool, err error) {
	t.Helper()
	env, err := cel.NewEnv(cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true), cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(), ext.Sets(), ext.Encoders())
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Parse(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	result, _, err := program.Eval(object)
	if err != nil {
		return false, err
	}
	return result.Value().(bool), nil
}

// TestHealth: Argo CD finds its check for all of Calico's kinds, and that of Flux comes to what an object's conditions say.
func TestHealth(t *testing.T) {
	_, page, _ := strings.Cut(read(t, "../../docs/kubernetes.md"), "\n### Health in Argo CD and Flux\n")
	page, _, _ = strings.Cut(page, "\n## ")
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/kubernetes.md has %d checks, want 2", len(blocks))
	}
	var argo struct {
		Data struct {
			Customizations string `json:"resource.customizations"`
		} `json:"data"`
	}
	var kinds map[string]struct {
		Health string `json:"health.lua"`
	}
	if err := yaml.UnmarshalStrict([]byte(blocks[0][1]), &argo); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(argo.Data.Customizations), &kinds); err != nil || len(kinds) != 1 || kinds["projectcalico.org/*"].Health == "" {
		t.Errorf("Argo CD reads %v: %v", kinds, err)
	}
	var flux struct {
		Spec struct {
			Wait  bool `json:"wait"`
			Exprs []struct {
				APIVersion string `json:"apiVersion"`
				Kind       string `json:"kind"`
				Failed     string `json:"failed"`
				Current    string `json:"current"`
			} `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	if err := yaml.UnmarshalStrict([]byte(blocks[1][1]), &flux); err != nil || len(flux.Spec.Exprs) != 1 {
		t.Fatalf("Flux reads %v: %v", flux, err)
	}
	check := flux.Spec.Exprs[0]
	if definitions := read(t, manifests+"base/definitions.yaml"); check.APIVersion != "projectcalico.org/v3" || !strings.Contains(definitions, "kind: "+check.Kind+"\n") {
		t.Errorf("there is no %s %s", check.APIVersion, check.Kind)
	}
	const accepted, realised = "{type: Accepted, status: 'True', observedGeneration: 2}", "{type: Realised, status: 'True', observedGeneration: 2}"
	for _, tt := range []struct{ name, conditions, want string }{
		{"in force", accepted + ", " + realised, "current"},
		{"not yet in force", accepted + ", {type: Realised, status: 'False', observedGeneration: 2}", "waiting"},
		{"refused", "{type: Accepted, status: 'False', observedGeneration: 2}, {type: Realised, status: 'False', observedGeneration: 2}", "failed"},
		{"in force before it changed", "{type: Accepted, status: 'True', observedGeneration: 1}, {type: Realised, status: 'True', observedGeneration: 1}", "waiting"},
		{"refused before it changed", "{type: Accepted, status: 'False', observedGeneration: 1}, {type: Realised, status: 'False', observedGeneration: 1}", "waiting"},
		{"no condition", "", "waiting"},
	} {
		var object map[string]any
		if err := yaml.Unmarshal([]byte("{metadata: {generation: 2}, status: {conditions: ["+tt.conditions+"]}}"), &object); err != nil {
			t.Fatal(err)
		}
		got := "waiting"
		if is, err := evaluate(t, check.Failed, object); err != nil {
			t.Errorf("%s: failed: %v", tt.name, err)
		} else if is {
			got = "failed"
		} else if is, err := evaluate(t, check.Current, object); err != nil {
			t.Errorf("%s: current: %v", tt.name, err)
		} else if is {
			got = "current"
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if is, err := evaluate(t, check.Failed, map[string]any{"metadata": map[string]any{"generation": 1}}); is || err == nil { // at which Flux looks again
		t.Errorf("an object without a status: %v, %v", is, err)
	}
}
