// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/controllers/collector"
)

// ipamMetrics are what the leader knows about addresses; other processes' are absent or 0.
type ipamMetrics struct {
	allocated, free     *prometheus.GaugeVec
	candidates, blocked prometheus.Gauge
	released            prometheus.Counter
}

func newIPAMMetrics() ipamMetrics {
	gauge := func(name, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name, Help: help} }
	return ipamMetrics{
		allocated:  prometheus.NewGaugeVec(gauge("ipam_allocated", "Addresses of a pool that are allocated, at the leader's last look."), []string{"pool"}),
		free:       prometheus.NewGaugeVec(gauge("ipam_free", "Addresses of a pool that are neither allocated nor reserved, at the leader's last look."), []string{"pool"}),
		candidates: prometheus.NewGauge(gauge("ipam_gc_candidates", "Addresses of pods that are gone or finished, whether or not they may be freed yet.")),
		blocked:    prometheus.NewGauge(gauge("ipam_gc_blocked", "1 while nothing is freed because too much would be at once: see the log, and calico-controllers -gc-resume.")),
		released:   prometheus.NewCounter(prometheus.CounterOpts{Name: "ipam_gc_released_total", Help: "Addresses freed because their pods, or hosts, were gone."}),
	}
}

func (m ipamMetrics) register(r *prometheus.Registry) {
	r.MustRegister(m.allocated, m.free, m.candidates, m.blocked, m.released)
}

func (m ipamMetrics) take(r collector.Report) {
	if r.Usage != nil { // etcd was read
		m.forget()
	}
	for _, u := range r.Usage {
		m.allocated.WithLabelValues(u.Pool.String()).Set(u.Allocated)
		m.free.WithLabelValues(u.Pool.String()).Set(u.Free)
	}
	m.candidates.Set(float64(r.Candidates))
	m.released.Add(float64(r.Released))
	if r.Blocked != "" {
		m.blocked.Set(1)
	}
}

// forget resets the metrics of a process that no longer leads.
func (m ipamMetrics) forget() {
	m.allocated.Reset()
	m.free.Reset()
	m.candidates.Set(0)
	m.blocked.Set(0)
}
