// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/store"
)

func TestParseConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	methods := func(v4, v6 string) (m [2]plan.Method) {
		for family, text := range []string{v4, v6} {
			var err error
			if m[family], err = plan.ParseMethod(text, family == 1); err != nil {
				t.Fatal(err)
			}
		}
		return m
	}
	defaults := func(change func(*Config)) Config {
		c := Config{
			Methods: methods("", ""),
			Node:    "box", Store: store.Config{},
			RunDir: "/run/calico", VarDir: "/var/lib/calico", ConfigFile: params.DefaultFile,
		}
		change(&c)
		return c
	}
	tests := []struct {
		name    string
		args    []string
		environ []string
		want    Config
		err     string
	}{
		{"nothing", nil, nil, defaults(func(*Config) {}), ""},
		{"environment", nil, []string{
			"NODENAME= node-1 ", "ETCD_ENDPOINTS=https://a:2379, https://b:2379,", "ETCD_CA_CERT_FILE=" + file, "ETCD_CERT_FILE=" + file,
			"ETCD_KEY_FILE=" + file, "ETCD_USERNAME=u", "ETCD_PASSWORD_FILE=" + file, "CALICO_RUN_DIR=/r", "CALICO_VAR_DIR=/v/",
			"CALICO_HEALTH_ADDRESS=0", "CALICO_METRICS_ADDRESS=127.0.0.1:1", "PATH=/bin", "CALICO_CONFIG_FILE=/etc/other",
		}, Config{
			Methods: methods("", ""),
			Node:    "node-1", Store: store.Config{Endpoints: []string{"https://a:2379", "https://b:2379"}, CAFile: file, CertFile: file, KeyFile: file, Username: "u", PasswordFile: file},
			RunDir: "/r", VarDir: "/v", Health: "0", Metrics: "127.0.0.1:1", ConfigFile: "/etc/other",
		}, ""},
		{"who the host is", []string{"-ip", "can-reach=192.0.2.1"}, []string{"IP=none", "IP6= autodetect", "AS=1.10"}, defaults(func(c *Config) {
			c.Methods, c.AS = methods("can-reach=192.0.2.1", "autodetect"), 65546
		}), ""},
		{"in a cluster", nil, []string{"KUBECONFIG= /k "}, defaults(func(c *Config) {
			c.Kubernetes = Kubernetes{Kubeconfig: "/k"}
		}), ""},
		{"without Kubernetes", []string{"-kubernetes", "off"}, nil, defaults(func(c *Config) { c.Kubernetes.Off = true }), ""},
		{"Kubernetes of nothing known", nil, []string{"CALICO_KUBERNETES=on"}, Config{}, `CALICO_KUBERNETES: "on": want auto or off`},
		{"IP of nothing known", nil, []string{"IP=eth0"}, Config{}, `IP: "eth0": want an address, none, autodetect`},
		{"IP6 of the other family", nil, []string{"IP6=192.0.2.1"}, Config{}, `IP6: "192.0.2.1": want an IPv6 address`},
		{"AS of no number", nil, []string{"AS=as"}, Config{}, `AS: "as": want an AS number`},
		{"name of two words", nil, []string{"NODENAME=a b"}, Config{}, `NODENAME: host name "a b": want letters`},
		{"address without port", []string{"-health", "localhost"}, nil, Config{}, `flag -health: address "localhost": want host:port`},
	}
	for _, test := range tests {
		var got Config
		_, err := Daemon(&got, "BOX").Prepare("", test.args, test.environ, io.Discard)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v, want %q", test.name, err, test.err)
			}
			continue
		}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(Config{}), cmp.Comparer(sameMethod)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", test.name, err, diff)
		}
	}
}

// TestHostName: the operating system's name is used if no other is set.
func TestHostName(t *testing.T) {
	for _, test := range []struct{ variable, hostname, want, err string }{
		{"NODENAME=", "BOX", "box", ""},
		{"NODENAME= ", "BOX", "box", ""},
		{"NODENAME= node-1 ", "BOX", "node-1", ""},
		{"NODENAME", "", "", "NODENAME: the host has no name: set NODENAME"},
		{"NODENAME", "a b", "", `host name "a b": want letters`},
	} {
		var got Config
		_, err := Daemon(&got, test.hostname).Prepare("", nil, []string{test.variable}, io.Discard)
		if test.err == "" && (err != nil || got.Node != test.want) || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s on %s: %q, %v; want %q, %s", test.variable, test.hostname, got.Node, err, test.want, test.err)
		}
	}
}

func sameMethod(a, b plan.Method) bool { return a.Kind == b.Kind && a.String() == b.String() }
