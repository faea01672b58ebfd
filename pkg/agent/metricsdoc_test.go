// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"testing"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/store"
	"github.com/calico-go/calico/test/metricspage"
)

const metricsPage = "../../docs/metrics.md"

const metricsHead = `# Metrics of calico-node

This page is made from what the agent registers by ` + "`go test ./pkg/agent -run TestMetricsPage -update`" + `.

They are served at ` + "`/metrics`" + `, for Prometheus, where the parameters ` + "`PrometheusMetricsHost` and `PrometheusMetricsPort`" + ` say:
[configuration](configuration.md). Beside them stand those of the Go runtime and of the process, ` + "`go_…` and `process_…`" + `, which are
everybody's. What to look at first: [debugging](debugging.md#what-the-agent-says).

A source has 8 connections and 10 new ones a second, all have 64, and 16 pages are written at once; more are refused. Who asks more
often than 5 times a second gets what was gathered last.

Counters begin at 0 with each start of the agent. Those that end in ` + "`_drift_repaired_total`" + ` grow where something else on the host changes what the agent keeps.

`

// allMetrics has all that a run of the agent registers.
func allMetrics(t *testing.T) *metrics {
	p := problems.New(slog.New(slog.NewTextHandler(t.Output(), nil)))
	m := newMetrics("1", p.Count)
	m.attach(router.NewMetrics(), router.NewPeerMetrics(router.HostNetwork(router.NetworkConfig{Node: "h", VarDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})), newHostMetrics(p), newWatchMetric(new(store.Client)))
	return m
}

// TestMetricsPage holds docs/metrics.md to what is registered.
func TestMetricsPage(t *testing.T) {
	page := metricspage.Section{Page: metricsPage, Head: metricsHead, Registry: allMetrics(t).registry, Prefixes: []string{"calico_node_"}}
	if names := page.Check(t, *update); len(names) == 0 {
		t.Error("no metrics")
	}
}
