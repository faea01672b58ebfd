// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// Metrics are the counters of a Reconciler.
type Metrics struct {
	endpoints, policies, profiles, sets, members, rules prometheus.Gauge
	mostRules, meanRules, reached                       prometheus.Gauge
	Seconds                                             *prometheus.HistogramVec // of an Apply, by its scope
	writes, repairs, failures                           prometheus.Counter
}

// NewMetrics returns unregistered Metrics whose histograms have these buckets.
func NewMetrics(buckets []float64) Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "calico_node_firewall_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "calico_node_firewall_" + name, Help: help})
	}
	return Metrics{
		endpoints: gauge("endpoints", "Endpoints of this host that have a firewall, workloads and the host's own."),
		policies:  gauge("policies", "Policies that apply to an endpoint of this host."),
		profiles:  gauge("profiles", "Profiles that an endpoint of this host refers to."),
		sets:      gauge("sets", "Sets of addresses or ports that rules refer to."),
		members:   gauge("set_members", "Members of all sets that rules refer to."),
		rules:     gauge("rules", "Rules in the kernel's table."),
		mostRules: gauge("endpoint_rules_max", "Rules of the policies and profiles of the endpoint that has most."),
		meanRules: gauge("endpoint_rules_mean", "Rules of the policies and profiles of an endpoint, on average."),
		reached:   gauge("connections_reached", "Workloads that came to MaxConnectionsPerEndpoint connections in the last 5 minutes."),
		Seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "calico_node_firewall_apply_seconds", Help: "Time to bring the firewall in line and read it back: the whole, or what changed.", Buckets: buckets,
		}, []string{"scope"}),
		writes:   counter("writes_total", "Changes sent to the kernel's table."),
		repairs:  counter("drift_repaired_total", "Changes sent to the kernel's table that undid what something else had changed, or what a change that failed had made; they are in calico_node_firewall_writes_total too."),
		failures: counter("failures_total", "Times that the firewall could not be brought in line."),
	}
}

// Register adds them to a registry.
func (m Metrics) Register(r *prometheus.Registry) {
	r.MustRegister(m.endpoints, m.policies, m.profiles, m.sets, m.members, m.rules, m.mostRules, m.meanRules, m.reached,
		m.Seconds, m.writes, m.repairs, m.failures)
}

// read records the result of one Apply.
func (m Metrics) read(report nft.Report, r *Reconciler) {
	m.writes.Add(float64(report.Writes))
	m.repairs.Add(float64(report.Repairs))
	if r.err != nil {
		m.failures.Inc()
		return
	}
	byKind := map[policy.RulesKind]int{}
	for id := range r.state.Rules {
		byKind[id.Kind]++
	}
	m.endpoints.Set(float64(len(r.state.Endpoints)))
	m.policies.Set(float64(byKind[policy.KindPolicy]))
	m.profiles.Set(float64(byKind[policy.KindProfile]))
	m.sets.Set(float64(len(r.state.Sets)))
	m.members.Set(float64(r.counts.members))
	m.rules.Set(float64(report.Rules))
	most, sum := 0, 0
	for _, n := range r.counts.rules {
		most, sum = max(most, n), sum+n
	}
	m.mostRules.Set(float64(most))
	m.meanRules.Set(float64(sum) / float64(max(len(r.counts.rules), 1)))
}
