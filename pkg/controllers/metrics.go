// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"github.com/prometheus/client_golang/prometheus"
)

// The kinds of objects, as metrics, events and logs call them.
const (
	kindNamespace      = "Namespace"
	kindServiceAccount = "ServiceAccount"
	kindPod            = "Pod"
	kindNetworkPolicy  = "NetworkPolicy"
	kindClusterPolicy  = "ClusterNetworkPolicy"
	kindService        = "Service"
	kindNode           = "Node"
	// The kinds that ClusterNetworkPolicy has replaced.
	kindAdminPolicy    = "AdminNetworkPolicy"
	kindBaselinePolicy = "BaselineAdminNetworkPolicy"
	// kindProtection is the kind of the policies that reserve ports of the nodes for nodes.
	kindProtection = "HostProtection"
	// kindTier is the kind of the tiers that ClusterNetworkPolicies are in.
	kindTier = "Tier"
)

// metrics are the controllers' metrics.
type metrics struct {
	registry    *prometheus.Registry
	leader      prometheus.Gauge
	errors      *prometheus.CounterVec
	overwritten *prometheus.CounterVec
	took        *prometheus.HistogramVec
	ipam        ipamMetrics
}

func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		registry: registry,
		leader:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "calico_controllers_leader", Help: "1 where this process leads, and so writes to etcd."}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calico_controllers_sync_errors_total", Help: "Keys of etcd that could not be written and are tried again.",
		}, []string{"kind"}),
		overwritten: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calico_controllers_overwritten_total", Help: "Keys of etcd that somebody else had changed or deleted, and that were written again: see the events Overwritten.",
		}, []string{"kind"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "calico_controllers_sync_seconds", Help: "From when a key of etcd was known not to be as desired to when it was.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
		}, []string{"kind"}),
	}
	m.ipam = newIPAMMetrics()
	m.ipam.register(m.registry)
	m.registry.MustRegister(m.leader, m.errors, m.overwritten, m.took)
	return m
}

// count adds gauges of how many objects of a kind there are and how many of them have problems.
func (m *metrics) count(kind string, objects, invalid func() int) {
	labels := prometheus.Labels{"kind": kind}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "calico_controllers_objects", Help: "Objects of Kubernetes that are known.", ConstLabels: labels,
		}, func() float64 { return float64(objects()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "calico_controllers_invalid_objects", Help: "Objects of Kubernetes that are not wholly acted upon: see their events.", ConstLabels: labels,
		}, func() float64 { return float64(invalid()) }),
	)
	m.errors.WithLabelValues(kind)
	m.overwritten.WithLabelValues(kind)
	m.took.WithLabelValues(kind)
}
