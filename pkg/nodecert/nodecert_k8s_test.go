// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package nodecert

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
)

// TestRequests: a node makes another request when the one before was answered, or is gone, and less often the longer none helps.
func TestRequests(t *testing.T) {
	p := kubernetes.Control(t)
	client, err := kube.New(kube.Config{Kubeconfig: p.Kubeconfig, Name: "calico-node"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	k := New(Config{Node: "n1", File: filepath.Join(t.TempDir(), "pem"), Kube: client, Problems: problems.New(log), Logger: log})
	requests := func() int { return len(strings.Fields(p.Kubectl("get", "csr", "-o", "name"))) }
	try := func(times, want int, last time.Duration) {
		t.Helper()
		var done bool
		var pause time.Duration
		for range times {
			done, pause = k.renew(t.Context(), "there is none")
		}
		if got := requests(); done || got != want || pause != last {
			t.Errorf("%d requests, want %d; done %v, pause %v, want %v", got, want, done, pause, last)
		}
	}
	try(1, 1, time.Second)
	if len(k.Problems.All()) != 0 {
		t.Errorf("a signer takes a moment: %v", k.Problems.All())
	}
	try(5, 1, 32*time.Second)
	try(5, 1, time.Minute)
	if all := k.Problems.All(); len(all) != 1 || !strings.Contains(all[0].Reason, "calico-etcd-signer") {
		t.Errorf("the signer is away: %v", all)
	}
	p.Kubectl("delete", "csr", k.request)
	try(2, 1, time.Minute)
	p.Kubectl("certificate", "deny", k.request)
	try(1, 1, 5*time.Minute)
	try(3, 2, time.Minute)
	k.tries = 0 // its certificate was not due for a while
	p.Kubectl("certificate", "deny", k.request)
	try(1, 2, time.Second)
	// Signed, and of no use: another's key.
	try(1, 3, 2*time.Second)
	p.Kubectl("certificate", "approve", k.request)
	try(1, 3, 4*time.Second)
}
