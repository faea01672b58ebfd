// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/agent/router"
	daemonmetrics "github.com/calico-go/calico/pkg/daemon/metrics"
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

### Who may read them

The host itself, and those that a policy lets in: the ports (PrometheusMetricsPort, and MetricsPorts for the controllers') are closed to all
others, by the host's firewall, with or without host endpoints. They are an endpoint with the label ` + "`projectcalico.org/serves: metrics`" + ` and
without profiles: its policies' ingress rules decide. This one lets a Prometheus in that is a pod of a
namespace of yours, as whoever makes pods chooses their labels, and one at an address outside:

` + "```yaml\n" + metricsPolicy + "```" + `

- A pod whose pool masquerades comes to other hosts with the address of its own: then name the hosts' addresses among ` + "`nets`" + `. To its own host
  a pod comes only where DefaultEndpointToHostAction is not ` + "`DROP`" + `. ` + "`calicoctl explain`" + ` tells both.
- Policies for ` + "`all()`" + ` hold for this endpoint as for others. Those of host endpoints are asked besides, as of any other port.
- Fail-safe ports stay open.

### What a reader may cost

A source has 8 connections and 10 new ones a second, all have 64, and 16 pages are written at once; more are refused. Who asks more
often than 5 times a second gets what was gathered last.

### What there is

Counters begin at 0 with each start of the agent. Those that end in ` + "`_drift_repaired_total`" + ` grow where something else on the host changes what the agent keeps.

`

// metricsPolicy is the policy that the explanation of calicoctl's tests uses.
const metricsPolicy = `apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata:
  name: prometheus
spec:
  selector: projectcalico.org/serves == 'metrics'
  types: [Ingress]
  ingress:
  - action: Allow
    protocol: TCP
    source:
      selector: calico/k8s_ns == 'monitoring' && app == 'prometheus'
  - action: Allow
    protocol: TCP
    source:
      nets: [203.0.113.0/24]
`

// allMetrics returns everything that a run of the agent registers.
func allMetrics(t *testing.T) *metrics {
	p := problems.New(slog.New(slog.NewTextHandler(t.Output(), nil)))
	m := newMetrics(daemonmetrics.NewRegistry("calico_node", "1"), p.Count)
	m.attach(router.NewMetrics(), router.NewPeerMetrics(router.HostNetwork(router.NetworkConfig{Node: "h", VarDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})), newHostMetrics(p), newWatchMetric(new(store.Client)))
	return m
}

// TestMetricsPage compares docs/metrics.md with what is registered.
func TestMetricsPage(t *testing.T) {
	page := metricspage.Section{Page: metricsPage, Head: metricsHead, Registry: allMetrics(t).registry, Prefixes: []string{"calico_node_"}}
	script, err := os.ReadFile("../ctl/testdata/script/explain.txt")
	if err != nil || !strings.Contains(string(script), "-- metrics.yaml --\n"+metricsPolicy) {
		t.Errorf("the policy of the page isn't that of calicoctl's tests (%v):\n%s", err, metricsPolicy)
	}
	if names := page.Check(t, *update); len(names) == 0 {
		t.Error("no metrics")
	}
}
