// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/kubernetes"
)

// TestUpKubernetes types what the lab suggests into its shell.
func TestUpKubernetes(t *testing.T) {
	root, err := kubernetes.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "calico-lab"), "up", "--kubernetes")
	cmd.Env = append(cmd.Environ(), "SHELL=/bin/sh")
	cmd.Stdin = strings.NewReader(`set -e
kubectl create deployment web --replicas 4 --image ` + kubernetes.Agnhost + ` -- /agnhost netexec
kubectl rollout status deployment/web --timeout=120s
kubectl get pods -o wide
exit 7
`)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%v, want the shell's status 7", err)
	}
	for _, want := range []string{"Kubernetes with Calico runs after", "successfully rolled out", "node-a", "node-b"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
