// SPDX-License-Identifier: Apache-2.0

package workload

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the counters of a Reconciler.
type Metrics struct {
	Seconds         *prometheus.HistogramVec // of an apply, by its scope
	Programmed      prometheus.Histogram
	Writes, Repairs prometheus.Counter
}

// NewMetrics returns unregistered Metrics whose histograms have these buckets.
func NewMetrics(buckets []float64) Metrics {
	return Metrics{
		Seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "calico_node_apply_seconds", Help: "Time to bring the kernel in line and read it back: the whole state, or some endpoints.", Buckets: buckets,
		}, []string{"scope"}),
		Programmed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "calico_node_programmed_seconds", Help: "Time from hearing of an endpoint to having read it back from the kernel.", Buckets: buckets,
		}),
		Writes: prometheus.NewCounter(prometheus.CounterOpts{Name: "calico_node_kernel_writes_total",
			Help: "Changes made to what the kernel holds for workload interfaces (routes, neighbours, sysctls, the IPv6 gateway's address) and to the host's forwarding."}),
		Repairs: prometheus.NewCounter(prometheus.CounterOpts{Name: "calico_node_drift_repaired_total",
			Help: "Changes made for workload interfaces and the host's forwarding that undid what something else had changed; they are in calico_node_kernel_writes_total too."}),
	}
}

// Register adds them to a registry.
func (m Metrics) Register(r *prometheus.Registry) {
	r.MustRegister(m.Seconds, m.Programmed, m.Writes, m.Repairs)
}

func (m Metrics) observe(done Result) {
	scope := "some"
	if done.whole {
		scope = "whole"
	}
	m.Seconds.WithLabelValues(scope).Observe(done.took.Seconds())
	if done.err == nil {
		m.Writes.Add(float64(done.report.Writes))
		m.Repairs.Add(float64(done.report.Repairs))
	}
}
