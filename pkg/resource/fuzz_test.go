// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/calico-go/calico/pkg/resource"
)

// FuzzDecode: any document either is an error, or a resource that can be checked, written and patched without panic.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/invalid/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, doc := range txtar.Parse(data).Files {
			f.Add(doc.Data)
		}
	}
	f.Add([]byte("kind: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := resource.Decode("fuzz", data)
		if err != nil && len(all) > 0 {
			t.Fatal("resources of a wrong document")
		}
		for _, r := range all {
			kind, err := resource.Find(r.Kind)
			if err != nil {
				t.Fatal(err)
			}
			change, created, err := kind.Write(kind.Ranges(), nil, r, resource.Apply)
			if checked := resource.Check(r); err == nil && checked != nil {
				t.Fatalf("written, but %v", checked)
			}
			if err == nil && (!created || len(change.Compares) == 0 && !change.Empty()) {
				t.Fatalf("%v", change)
			}
		}
	})
}

// FuzzPatch: a patch either makes a resource of the same kind and name that can be checked and read back, or is an error.
func FuzzPatch(f *testing.F) {
	all, err := resource.Decode("sample", []byte("apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: p\nspec:\n  cidr: 10.0.0.0/16\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"spec":{"blockSize":27}}`))
	f.Add([]byte("spec: {cidr: null}"))
	f.Add([]byte(`[{"op":"replace","path":"","value":[]},{"op":"copy","from":"/spec","path":"/spec/cidr"},{"op":"test","path":"/spec"}]`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[]}`))
	f.Add([]byte(`{"apiVersion":"projectcalico.org/v3","kind":"IPPoolList","items":[]}`))
	f.Fuzz(func(t *testing.T, patch []byte) {
		var config struct {
			Spec struct{ EtcdEndpoints string }
		}
		_ = resource.DecodeInto("fuzz", patch, &config)
		r, err := resource.Patched(all[0], patch)
		if err != nil {
			r, err = resource.Operated(all[0], patch)
		}
		if err != nil {
			return
		}
		again, err := resource.Patched(r, []byte("{}"))
		if r.Kind != "IPPool" || r.Metadata.Name != "p" || resource.Check(r) == nil && (err != nil || resource.Check(again) != nil) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
