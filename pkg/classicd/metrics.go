// SPDX-License-Identifier: Apache-2.0

package classicd

import "github.com/prometheus/client_golang/prometheus"

// metrics are the metrics of a role.
type metrics struct {
	messages  *prometheus.CounterVec
	connected *prometheus.GaugeVec
	invalid   prometheus.Gauge
}

func newMetrics(r *prometheus.Registry) metrics {
	m := metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calico_classic_messages_total", Help: "Messages that came, by the socket.",
		}, []string{"socket"}),
		connected: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "calico_classic_connected", Help: "1 while a socket that connects has its peer.",
		}, []string{"socket"}),
		invalid: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "calico_classic_invalid", Help: "What of the messages and of etcd can't be used, as /debug/invalid lists it.",
		}),
	}
	r.MustRegister(m.messages, m.connected, m.invalid)
	return m
}
