// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/model"
)

// TestEndpointGauge: each endpoint is counted once, by its latest status.
func TestEndpointGauge(t *testing.T) {
	g := newEndpointGauge()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g.vec)
	for _, step := range []struct {
		path   string
		status model.EndpointStatus
		want   map[string]float64
	}{
		{"gone before", "", map[string]float64{"up": 0, "down": 0, "error": 0}},
		{"a", model.EndpointDown, map[string]float64{"up": 0, "down": 1, "error": 0}},
		{"a", model.EndpointUp, map[string]float64{"up": 1, "down": 0, "error": 0}},
		{"a", model.EndpointUp, map[string]float64{"up": 1, "down": 0, "error": 0}},
		{"b", model.EndpointError, map[string]float64{"up": 1, "down": 0, "error": 1}},
		{"a", "", map[string]float64{"up": 0, "down": 0, "error": 1}},
		{"a", "", map[string]float64{"up": 0, "down": 0, "error": 1}},
	} {
		g.set(step.path, step.status)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, m := range families[0].Metric {
			got[m.Label[0].GetValue()] = m.Gauge.GetValue()
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s %q (-want +got):\n%s", step.path, step.status, diff)
		}
	}
}
