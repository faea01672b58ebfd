// SPDX-License-Identifier: Apache-2.0

package dhcpd

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the counters of Servers.
type Metrics struct {
	ports             prometheus.Gauge
	requests          *prometheus.CounterVec
	answered, ignored prometheus.Counter
}

// NewMetrics returns unregistered Metrics.
func NewMetrics() Metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "calico_node_dhcp_requests_total", Help: "What virtual machines asked of DHCP and of a router, by whether it was answered.",
	}, []string{"result"})
	return Metrics{
		ports:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "calico_node_dhcp_ports", Help: "Taps that are served by DHCP."}),
		requests: requests, answered: requests.WithLabelValues("answered"), ignored: requests.WithLabelValues("ignored"),
	}
}

// Register adds them to a registry.
func (m Metrics) Register(r *prometheus.Registry) { r.MustRegister(m.ports, m.requests) }
