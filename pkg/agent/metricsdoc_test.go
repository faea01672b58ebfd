// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/store"
)

const metricsPage = "../../docs/metrics.md"

const metricsHead = `# Metrics of calico-node

This page is made from what the agent registers by ` + "`go test ./pkg/agent -run TestMetricsPage -update`" + `.

They are served at ` + "`/metrics`" + `, for Prometheus, where the parameters ` + "`PrometheusMetricsHost` and `PrometheusMetricsPort`" + ` say:
[configuration](configuration.md). Beside them stand those of the Go runtime and of the process, ` + "`go_…` and `process_…`" + `, which are
everybody's. What to look at first: [debugging](debugging.md#what-the-agent-says).

Counters begin at 0 with each start of the agent. Those that end in ` + "`_drift_repaired_total`" + ` grow where something else on the host changes what the agent keeps.

| Name | Type | Labels | Meaning |
|---|---|---|---|
`

// allMetrics has all that a run of the agent registers.
func allMetrics(t *testing.T) *metrics {
	p := problems.New(slog.New(slog.NewTextHandler(t.Output(), nil)))
	m := newMetrics("1", p.Count)
	m.attach(router.NewMetrics(), router.NewPeerMetrics(router.HostNetwork(router.NetworkConfig{Node: "h", VarDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})), newHostMetrics(p), newWatchMetric(new(store.Client)))
	return m
}

// described is what a metric's description says of it, by name: its labels and its help.
func described(t *testing.T, m *metrics) map[string][2]string {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		m.registry.Describe(descs)
	}()
	parts := regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"),(?: unit: "[^"]*",)? constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	all := map[string][2]string{}
	for d := range descs {
		found := parts.FindStringSubmatch(d.String())
		if found == nil {
			t.Fatalf("%s: not understood", d)
		}
		if !strings.HasPrefix(found[1], "calico_node_") {
			continue
		}
		help, err := strconv.Unquote(found[2])
		if err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		var labels []string
		for label := range strings.SplitSeq(found[3]+","+found[4], ",") {
			if name, _, _ := strings.Cut(label, "="); name != "" {
				labels = append(labels, "`"+name+"`")
			}
		}
		all[found[1]] = [2]string{strings.Join(labels, ", "), help}
	}
	return all
}

// typeOf is a metric's type by its name.
func typeOf(name string) string {
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case strings.HasSuffix(name, "_seconds"):
		return "histogram"
	}
	return "gauge"
}

// TestMetricsPage holds docs/metrics.md to what is registered.
func TestMetricsPage(t *testing.T) {
	m := allMetrics(t)
	all := described(t, m)
	var names []string
	for name, of := range all {
		names = append(names, name)
		if help := of[1]; !strings.HasSuffix(help, ".") || regexp.MustCompile(`(?i)\bthese\b`).MatchString(help) {
			t.Errorf("%s: %q is no sentence that stands by itself: the list is sorted by name", name, help)
		}
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, name := range names {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, typeOf(name), all[name][0], all[name][1])
	}
	if *update {
		if err := os.WriteFile(metricsPage, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("docs/metrics.md is not what the agent registers: go test ./pkg/agent -run TestMetricsPage -update (-want +got):\n%s", diff)
	}
}
