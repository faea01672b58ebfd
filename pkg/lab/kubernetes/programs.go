// SPDX-License-Identifier: Apache-2.0

// Package kubernetes runs a real Kubernetes on one machine, in separate namespaces: Control is an API server with its
// etcd; Up is a cluster of two nodes with kubelet, kube-proxy and containerd. `make kubernetes` builds the programs.
// Tests that use it have the build tag e2ek8s, and `make e2e-k8s` runs them.
package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// Patience bounds every wait for something that a whole cluster does.
const Patience = 3 * eventually.Limit

// Root returns the directory of the repository that contains the working directory.
func Root() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/calico-go/calico").Output()
	if err != nil {
		return "", fmt.Errorf("find Calico's repository: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func root(tb testing.TB) string {
	tb.Helper()
	dir, err := Root()
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Bin returns the repository's bin/kubernetes.
func Bin(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(root(tb), "bin", "kubernetes")
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
		tb.Fatalf("no programs of Kubernetes: run make kubernetes: %v", err)
	}
	return dir
}
