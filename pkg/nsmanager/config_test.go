// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/nsmgrpc"
	"github.com/calico-go/calico/test/metricspage"
)

// TestDocumented: the page of network service connections has each setting, with its variable and its default.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/network-service-mesh.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range options(new(Config), "") {
		for _, text := range []string{"`-" + o.Flag + "`", "`" + o.Variable + "`", "`" + o.Initial + "` |"} {
			if !strings.HasPrefix(o.Flag, "etcd-") && text != "`` |" && !strings.Contains(string(page), text) {
				t.Errorf("there is no %s", text)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the section of docs/metrics.md")

const metricsHead = `## Metrics of calico-nsm

This section is made from what a manager registers by ` + "`go test ./pkg/nsmanager -run TestMetricsPage -update`" + `.

`

// TestMetricsPage holds docs/metrics.md to what is registered.
func TestMetricsPage(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := &Manager{Env: run.Env{Problems: problems.New(slog.New(slog.DiscardHandler))}}
	m.measure(registry)
	m.asked("client", nil)
	page := metricspage.Section{Page: "../../docs/metrics.md", Head: metricsHead, Registry: registry, Prefixes: []string{"calico_nsm_"}}
	want := []string{"calico_nsm_connections", "calico_nsm_endpoints", "calico_nsm_invalid", "calico_nsm_requests_total"}
	if diff := cmp.Diff(want, page.Check(t, *update)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestOptions(t *testing.T) {
	var c Config
	good := []string{"CALICO_NSM_ADDRESS=192.0.2.1", "CALICO_NSM_CA_FILE=ca", "CALICO_NSM_CERT_FILE=c", "CALICO_NSM_KEY_FILE=k"}
	err := run.ParseEnviron(options(&c, "a"), append(good, "ETCD_ENDPOINTS=http://x:1,http://y:2", "ETCD_USERNAME=nsm"))
	if err != nil || c.Node != "a" || c.Port != 5005 || c.VXLANPort != 4795 || c.Directory != nsmgrpc.DefaultDirectory || len(c.Store.Endpoints) != 2 || c.Store.Username != "nsm" || c.KeepDefaultRoutes {
		t.Errorf("%+v, %v", c, err)
	}
	ca := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(ca, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"-etcd-ca-cert-file", "-etcd-ca-file"} {
		var c Config
		if _, err := Daemon(&c, "a").Prepare("", []string{flag, ca}, good, io.Discard); err != nil || c.Store.CAFile != ca {
			t.Errorf("%s: %q, %v", flag, c.Store.CAFile, err)
		}
	}
	for _, bad := range []struct{ set, want string }{
		{"CALICO_NSM_ADDRESS=", "CALICO_NSM_ADDRESS: "}, {"CALICO_NSM_ADDRESS=0.0.0.0", "CALICO_NSM_ADDRESS: "}, {"CALICO_NSM_ADDRESS=fe80::1%eth0", "CALICO_NSM_ADDRESS: "},
		{"CALICO_NSM_PORT=0", "CALICO_NSM_PORT: "}, {"CALICO_NSM_VXLAN_PORT=70000", "CALICO_NSM_VXLAN_PORT: "}, {"CALICO_NSM_DIRECTORY=nsm", "want an absolute path"},
		{"CALICO_NSM_CA_FILE=", "CALICO_NSM_CA_FILE: it is required"}, {"NODENAME=a b", "NODENAME: "},
	} {
		if err := run.ParseEnviron(options(new(Config), "a"), append(good, bad.set)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want %s", bad.set, err, bad.want)
		}
	}
}
