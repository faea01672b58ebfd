// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const manifests = "../../../k8s-manifests"

// TestManifestsAreValid has an API server check what users apply, without and with the components, and finds nothing that
// it warns of.
func TestManifestsAreValid(t *testing.T) {
	p := Control(t)
	check := func(t *testing.T, text string) {
		t.Helper()
		out, err := p.TryKubectl(text, "apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-")
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if want := strings.Count("\n"+text, "\nkind: "); want == 0 || strings.Count(out, "(server dry run)") != want {
			t.Errorf("want %d objects: %s", want, out)
		}
	}
	for _, file := range []string{"calico.yaml", "calico-etcd.yaml", "calico-uninstall.yaml"} {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(manifests, file))
			if err != nil {
				t.Fatal(err)
			}
			check(t, string(text))
		})
	}
	for _, components := range []string{"ha", "host-protection", "ha host-protection"} {
		t.Run(components, func(t *testing.T) { check(t, kustomize(t, "calico", strings.Fields(components)...)) })
	}
}

// kustomize builds an overlay with components, as a user does with a kustomization of his own.
func kustomize(t *testing.T, overlay string, components ...string) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs(manifests)
	if err != nil {
		t.Fatal(err)
	}
	if root, err = filepath.Rel(dir, root); err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + root + "/overlays/" + overlay + "]\ncomponents:\n"
	for _, c := range components {
		text += "- " + root + "/components/" + c + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(Bin(t), "kubectl"), "kustomize", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl kustomize: %v\n%s", err, out)
	}
	return string(out)
}
