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

The agent serves its metrics for Prometheus at ` + "`/metrics`" + `, on the address that the parameters ` + "`PrometheusMetricsHost`" + ` and
` + "`PrometheusMetricsPort`" + ` set: see [configuration](configuration.md). The page also has the usual metrics of the Go runtime and of the
process, ` + "`go_…`" + ` and ` + "`process_…`" + `. For what to look at first, see [debugging](debugging.md#what-the-agent-says).

### Who may read them

The host itself can read them, and clients that a policy lets in. The host's firewall closes the ports (PrometheusMetricsPort, and
MetricsPorts for the controllers') to all others, with or without host endpoints. The ports count as an endpoint with the label
` + "`projectcalico.org/serves: metrics`" + ` and without profiles: the ingress rules of its policies decide. The following policy lets in a
Prometheus outside the cluster, by its address, and one that is a pod. It selects the pod by namespace as well, because anyone who creates
pods chooses their labels:

` + "```yaml\n" + metricsPolicy + "```" + `

- If a pod's pool masquerades, the pod reaches other hosts with the address of its own host: then add the hosts' addresses to ` + "`nets`" + `. A pod
  reaches its own host only if DefaultEndpointToHostAction is not ` + "`DROP`" + `. ` + "`calicoctl explain`" + ` shows both.
- Policies for ` + "`all()`" + ` apply to this endpoint as to others. Policies of host endpoints apply in addition, as for any other port.
- Fail-safe ports stay open.

### What a reader may cost

Each source may have 8 connections and 10 new ones a second, all sources together 64 connections. The agent writes 16 pages at once and
refuses more. A client that asks more than 5 times a second gets the values gathered last.

### What there is

Counters start at 0 whenever the agent starts. Those that end in ` + "`_drift_repaired_total`" + ` grow when another program on the host changes what
the agent maintains.

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
