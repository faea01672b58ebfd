// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/nsm"
)

// A schema is as much of a CustomResourceDefinition's as is looked at.
type schema struct {
	Required   []string
	Properties map[string]schema
	Items      *schema
}

// holds fails where a value has fields that the API server would drop, or lacks those that it wants.
func (s schema) holds(t *testing.T, at string, value any) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		if s.Properties == nil {
			return
		}
		if unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(v)), func(k string) bool { _, is := s.Properties[k]; return is }); len(unknown) > 0 {
			t.Errorf("%s: the definition has no %v", at, unknown)
		}
		for k, p := range s.Properties {
			if v[k] == nil && slices.Contains(s.Required, k) {
				t.Errorf("%s: %s is missing", at, k)
			}
			p.holds(t, at+"."+k, v[k])
		}
	case []any:
		for _, item := range v {
			s.Items.holds(t, at+"[]", item)
		}
	}
}

// TestKinds: what a manager writes is what the definitions have, and reads back as it was.
func TestKinds(t *testing.T) {
	text, err := os.ReadFile("../../k8s-manifests/nsm/kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]any{}
	e := nsm.Endpoint{
		Service: "vpn", Host: "a", Name: "gw", Address: "192.0.2.1:5005",
		Interfaces: []nsm.Interface{{Type: nsm.Kernel, Parameters: map[string]string{"pools": "10.60.0.0/24"}}, {Type: nsm.Kernel}},
	}
	for name, spec := range map[string]any{"NetworkService": kube.NetworkServiceSpec{Payload: ethernet}, "NetworkServiceEndpoint": specOf(e)} {
		data, err := json.Marshal(spec)
		var v any
		if err == nil {
			err = json.Unmarshal(data, &v)
		}
		if err != nil {
			t.Fatal(err)
		}
		written[name] = v
	}
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var d struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema schema }
				}
			}
		}
		if err := yaml.Unmarshal(part, &d); err != nil {
			t.Fatal(err)
		}
		kind := d.Spec.Names.Kind
		d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].holds(t, kind, written[kind])
		delete(written, kind)
	}
	if len(written) > 0 {
		t.Errorf("not defined: %v", written)
	}
	o := &kube.NetworkServiceEndpoint{Spec: specOf(e)}
	if got := toldOf(o); got.err != nil || !cmp.Equal(got.Endpoint, e) {
		t.Error(got.err, cmp.Diff(e, got.Endpoint))
	}
	if o.Spec.Service = ""; toldOf(o).err == nil {
		t.Error("an endpoint of no service is taken")
	}
}
