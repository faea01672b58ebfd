// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/daemon/problems"
)

// hostMetrics exports the problems of the host itself, labeled by subject.
type hostMetrics struct {
	problems *problems.Ledger
	desc     *prometheus.Desc
}

func newHostMetrics(p *problems.Ledger) hostMetrics {
	return hostMetrics{p, prometheus.NewDesc("calico_node_host_problems",
		"1 for each thing that is wrong with this host: IP, IP6, NODENAME, addresses in etcd and of tunnels, BGP that can't speak as it should, an etcd that has not been read, and chains of other tables, sysctls and rules of routing that stop workloads' packets, and what else the agent has to try again; see /debug/invalid.", []string{"what"}, nil)}
}

// Describe implements prometheus.Collector.
func (m hostMetrics) Describe(out chan<- *prometheus.Desc) { out <- m.desc }

// Collect implements prometheus.Collector: one metric for each problem.
func (m hostMetrics) Collect(out chan<- prometheus.Metric) {
	for _, o := range m.problems.All() {
		if o.Kind == problems.Host {
			out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, 1, o.Path)
		}
	}
}
