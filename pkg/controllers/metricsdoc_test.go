// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"flag"
	"testing"

	"github.com/google/go-cmp/cmp"

	daemonmetrics "github.com/calico-go/calico/pkg/daemon/metrics"
	"github.com/calico-go/calico/test/metricspage"
)

var update = flag.Bool("update", false, "write the controllers' section of docs/metrics.md")

const metricsHead = `## Metrics of calico-controllers

This section is made from what the controllers register by ` + "`go test ./pkg/controllers -run TestMetricsPage -update`" + `. ` + "`-metrics`" + ` sets the
address on which they are served. Only the leader has the metrics of addresses: in the others they are absent or 0.

`

// TestMetricsPage compares docs/metrics.md with the registered metrics, and these with the names that dashboards use.
func TestMetricsPage(t *testing.T) {
	m := newMetrics(daemonmetrics.NewRegistry("calico_controllers", "1"))
	m.count(kindPod, func() int { return 0 }, func() int { return 0 })
	page := metricspage.Section{Page: "../../docs/metrics.md", Head: metricsHead, Registry: m.registry, Prefixes: []string{"calico_controllers_", "ipam_"}}
	want := []string{
		"calico_controllers_build_info", "calico_controllers_invalid_objects", "calico_controllers_leader", "calico_controllers_objects", "calico_controllers_overwritten_total",
		"calico_controllers_sync_errors_total", "calico_controllers_sync_seconds",
		"ipam_allocated", "ipam_free", "ipam_gc_blocked", "ipam_gc_candidates", "ipam_gc_released_total",
	}
	if diff := cmp.Diff(want, page.Check(t, *update)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
