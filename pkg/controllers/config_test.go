// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConfig(t *testing.T) {
	var c Config
	if _, err := Daemon(&c).Prepare("", nil, nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{Nodes: true, Policies: true, Workloads: true, ServiceAccounts: true, Namespaces: true, Resources: true}
	if diff := cmp.Diff(want, c.Enabled); diff != "" {
		t.Errorf("enabled without a word (-want +got):\n%s", diff)
	}
	env, err := Daemon(&c).Prepare("", []string{"-log-level", "debug"},
		[]string{"ENABLED_CONTROLLERS=policy, Profile", "LOG_LEVEL=error", "CALICO_METRICS_ADDRESS=0", "POD_NAMESPACE=x", "PROTECTED_HOST_PORTS=2479, 2480", "ETCD_ENDPOINTS=http://a:1,http://b:1"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]bool{Policies: true, Namespaces: true}, c.Enabled); diff != "" {
		t.Errorf("enabled (-want +got):\n%s", diff)
	}
	if env.Level.Level() != slog.LevelDebug || c.LeaseNamespace != "x" || len(c.Store.Endpoints) != 2 || len(c.ProtectedPorts) != 2 {
		t.Errorf("%+v", c)
	}
}

func TestConfigRefused(t *testing.T) {
	for arg, want := range map[string]string{
		"-controllers=node,loadbalancer": `flag -controllers: "loadbalancer" is no controller`,
		"-protected-ports=2479,http":     `flag -protected-ports: port "http": want a number of 1 to 65535`,
		"-kubeconfig=/nowhere":           "flag -kubeconfig: open /nowhere",
	} {
		if _, err := Daemon(new(Config)).Prepare("", []string{arg}, nil, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
}
