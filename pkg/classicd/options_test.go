// SPDX-License-Identifier: Apache-2.0

package classicd

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/test/metricspage"
)

// TestDocumented: the page of the APIs of 2014 has each setting of each role, with its variable and its default.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/classic-api.md")
	if err != nil {
		t.Fatal(err)
	}
	for title, options := range map[string][]run.Option{
		"Felix": felixOptions(new(FelixConfig), "host"), "ACL manager": managerOptions(new(ManagerConfig)), "Plugin": pluginOptions(new(PluginConfig)),
	} {
		_, section, _ := strings.Cut(string(page), "\n## "+title+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, o := range options {
			row := "| `-" + o.Flag + "` | `" + o.Variable + "` | "
			if strings.Contains(o.Variable, "CALICO_CLASSIC_") && o.Initial != "" {
				row += "`" + o.Initial + "` |"
			}
			shared := strings.HasPrefix(o.Flag, "etcd-") || strings.Contains(section, "`-"+o.Flag+"`") && !strings.Contains(o.Variable, "CALICO_CLASSIC_")
			if !strings.Contains(section, row) && !shared {
				t.Errorf("%s: there is no row %s", title, row)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the section of docs/metrics.md")

const metricsHead = `## Metrics of calico-classic

This section is made from what a role registers by ` + "`go test ./pkg/classicd -run TestMetricsPage -update`" + `. Felix also has those of
calico-node.

`

// TestMetricsPage compares docs/metrics.md with what is registered.
func TestMetricsPage(t *testing.T) {
	registry := prometheus.NewRegistry()
	newMetrics(registry)
	page := metricspage.Section{Page: "../../docs/metrics.md", Head: metricsHead, Registry: registry, Prefixes: []string{"calico_classic_"}}
	want := []string{"calico_classic_connected", "calico_classic_invalid", "calico_classic_messages_total"}
	if diff := cmp.Diff(want, page.Check(t, *update)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// TestRefused: invalid settings are refused, and missing ones named.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		options []run.Option
		set     string // VARIABLE=value
		want    string
	}{
		"no plugin":      {managerOptions(new(ManagerConfig)), "", "CALICO_CLASSIC_PLUGIN: it is required"},
		"no ACL manager": {felixOptions(new(FelixConfig), "host"), "CALICO_CLASSIC_PLUGIN=p", "CALICO_CLASSIC_ACL_MANAGER: it is required"},
		"no hosts":       {pluginOptions(new(PluginConfig)), "", "CALICO_CLASSIC_HOSTS: "},
		"a bad host":     {pluginOptions(new(PluginConfig)), "CALICO_CLASSIC_HOSTS=a/b", "CALICO_CLASSIC_HOSTS: "},
		"an address":     {managerOptions(new(ManagerConfig)), "CALICO_CLASSIC_BIND=host", `CALICO_CLASSIC_BIND: "host": want an IP address`},
		"no time":        {managerOptions(new(ManagerConfig)), "CALICO_CLASSIC_CONNECTION_TIMEOUT=0s", `CALICO_CLASSIC_CONNECTION_TIMEOUT: "0s": want a time`},
		"no prefix":      {pluginOptions(new(PluginConfig)), "CALICO_CLASSIC_INTERFACE_PREFIX= ", "CALICO_CLASSIC_INTERFACE_PREFIX: "},
	} {
		if err := run.ParseEnviron(c.options, []string{c.set}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
