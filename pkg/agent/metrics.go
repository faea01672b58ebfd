// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/agent/dhcpd"
	"github.com/calico-go/calico/pkg/agent/firewall"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/workload"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// metrics are the agent's own, and the registry that serves them.
type metrics struct {
	registry    *prometheus.Registry
	endpoints   endpointGauge
	workload    workload.Metrics
	connections connections.Metrics
	firewall    firewall.Metrics
	waiting     prometheus.Gauge
	waits       *prometheus.CounterVec
	resyncs     prometheus.Counter
	reentered   prometheus.Counter
	unled       prometheus.Gauge
	dhcp        dhcpd.Metrics
}

// latencies are histogram buckets from a tenth of a millisecond to a few seconds.
func latencies() []float64 { return prometheus.ExponentialBuckets(0.0001, 2.5, 12) }

func newMetrics(registry *prometheus.Registry, invalid func() int) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		registry:    registry,
		endpoints:   newEndpointGauge(),
		workload:    workload.NewMetrics(latencies()),
		firewall:    firewall.NewMetrics(latencies()),
		connections: connections.NewMetrics(),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "calico_node_gate_waiting", Help: "Callers that wait at the gate now.",
		}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calico_node_gate_waits_total", Help: "Waits at the gate, by how they ended.",
		}, []string{"result"}),
		reentered: counter("calico_node_endpoints_reentered_total", "Endpoints of this host entered again in an etcd that was made anew or restored from a backup."),
		unled: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "calico_node_controllers_unled_since", Help: "Unix time since when nobody leads calico-controllers, as this agent knows; 0 = somebody does, or it doesn't work with Kubernetes.",
		}),
		dhcp:    dhcpd.NewMetrics(),
		resyncs: counter("calico_node_watch_resyncs_total", "Whole snapshots taken of etcd, the first included."),
	}
	m.workload.Register(m.registry)
	m.firewall.Register(m.registry)
	m.dhcp.Register(m.registry)
	m.registry.MustRegister(
		m.endpoints.vec, m.endpoints.ownerless, m.connections.Over, m.connections.Denied, m.waiting, m.waits, m.resyncs, m.reentered, m.unled,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "calico_node_invalid_objects", Help: "Objects in etcd and settings that are not acted upon because they make no sense: see /debug/invalid.",
		}, func() float64 { return float64(invalid()) }),
	)
	return m
}

// attach registers the metrics of the router, and others.
func (m *metrics) attach(routes router.Metrics, others ...prometheus.Collector) {
	routes.Register(m.registry)
	m.registry.MustRegister(others...)
}

// endpointGauge counts endpoints by status. It is updated per changed endpoint: a host has too many to count them all each time.
type endpointGauge struct {
	vec       *prometheus.GaugeVec
	ownerless prometheus.Gauge
	of        map[string]model.EndpointStatus // by the endpoint's path
}

func newEndpointGauge() endpointGauge {
	g := endpointGauge{prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "calico_node_endpoints", Help: "Workload endpoints of this host, by what is reported of them.",
	}, []string{"status"}), prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "calico_node_endpoints_ownerless", Help: "Workload endpoints of this host that no DEL takes away, as they name no container and have no interface: see /debug/invalid.",
	}), map[string]model.EndpointStatus{}}
	for _, status := range []model.EndpointStatus{model.EndpointUp, model.EndpointDown, model.EndpointError} {
		g.vec.WithLabelValues(string(status))
	}
	return g
}

// set records an endpoint's status; "" = it is gone.
func (g endpointGauge) set(path string, status model.EndpointStatus) {
	before := g.of[path]
	if before == status {
		return
	}
	if before != "" {
		g.vec.WithLabelValues(string(before)).Dec()
	}
	if status == "" {
		delete(g.of, path)
		return
	}
	g.of[path] = status
	g.vec.WithLabelValues(string(status)).Inc()
}

// newWatchMetric returns a gauge of whether etcd is away.
func newWatchMetric(client *store.Client) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "calico_node_watch_interrupted", Help: "1 while etcd is away, so that no change is heard of.",
	}, func() float64 {
		if _, err := client.WatchTrouble(); err != nil {
			return 1
		}
		return 0
	})
}
