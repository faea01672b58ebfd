// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/daemon/runlock"
	"github.com/calico-go/calico/pkg/store"
)

// TestSecondAgent: a second agent takes nothing from the first, and may run when the first has ended.
func TestSecondAgent(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	first, err := runlock.Take(run, runlock.Agent)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Node: "host-2", RunDir: run, VarDir: filepath.Join(dir, "var"), ConfigFile: filepath.Join(dir, "none"), Health: "0", Metrics: "0",
		Store: store.Config{Endpoints: []string{"http://127.0.0.1:1"}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const want = "another process runs with this directory: stop it first"
	if err := Run(ctx, cfg, testEnv(t)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "var", nodenameName)); err == nil {
		t.Error("the second agent changed the node's name")
	}
	first()
	next, err := runlock.Take(run, runlock.Agent)
	if err != nil {
		t.Fatal(err)
	}
	next()
}
