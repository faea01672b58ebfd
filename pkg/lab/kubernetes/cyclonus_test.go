// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/image"
)

// TestSlowCyclonus runs cyclonus' cases of NetworkPolicy. Left out are those that need SCTP, which not every kernel has; those that it has
// from Kubernetes, which are TestNetworkPolicy's; and those of two peers or ports that other cases have alone. CYCLONUS has the tags of the
// cases that are run instead, such as action,multi-peer.
func TestSlowCyclonus(t *testing.T) {
	c := Up(t, append(Images(t), cyclonusWorker(t))...)
	etcd := c.Install(Manifest(t))
	chosen := os.Getenv("CYCLONUS")
	cases := []string{"-include", chosen, "-exclude", "sctp"}
	if chosen == "" {
		cases = []string{"-exclude", "sctp,upstream-e2e,multi-peer,multi-port/protocol"}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.bin, "cyclonus.test"), append([]string{"-test.v", "-test.timeout=80m"}, cases...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	out, err := cmd.CombinedOutput()
	passed := strings.Count(string(out), "\n    --- PASS: ")
	if err != nil || passed == 0 || chosen == "" && passed != 99 {
		t.Errorf("%d passed: %v\n%s", passed, err, out)
	}
	t.Logf("%d passed", passed)
	for _, name := range []string{"x", "y", "z"} {
		c.Kubectl("wait", "--for=delete", "namespace/"+name, "--timeout=180s")
	}
	c.AwaitClean(etcd)
}

// cyclonusWorker writes a tar of the image that cyclonus' pods have, and returns its path.
func cyclonusWorker(t *testing.T) string {
	t.Helper()
	var files []image.File
	for name, program := range map[string]string{"agnhost": "agnhost", "worker": "cyclonus-worker"} {
		data, err := os.ReadFile(filepath.Join(root(t), "bin", "kubernetes", program))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, image.File{Name: name, Data: data, Mode: 0o755})
	}
	data, err := image.Save(image.Image{Name: "docker.io/mfenwick100/cyclonus-worker:latest", Entrypoint: []string{"/worker"}, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cyclonus.tar")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
