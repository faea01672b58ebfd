// SPDX-License-Identifier: Apache-2.0

package nsmanager

import "github.com/prometheus/client_golang/prometheus"

// measure registers the manager's metrics.
func (m *Manager) measure(r *prometheus.Registry) {
	count := func(name, help string, of func() int) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			return float64(of())
		})
	}
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "calico_nsm_requests_total", Help: "Connections that were asked for, by who asks and how that ended.",
	}, []string{"by", "result"})
	r.MustRegister(
		m.requests,
		count("calico_nsm_connections", "Connections that the manager keeps, those included that wait for an endpoint or are being closed.", func() int { return len(m.ledger.All()) }),
		count("calico_nsm_endpoints", "Endpoints of this node.", func() int { return len(m.endpoints) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "calico_nsm_invalid", Help: "What is not in order, as /debug/invalid lists it.",
		}, func() float64 { return float64(m.Problems.Count()) }),
	)
}

// asked counts a request for a connection from a client or another manager.
func (m *Manager) asked(by string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.requests.WithLabelValues(by, result).Inc()
}
