// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/plan"
)

// Metrics are the metrics of routes to other hosts.
type Metrics struct {
	routes, problems          *prometheus.GaugeVec
	tunnels, remotes, hosts   prometheus.Gauge
	advertised                prometheus.Gauge
	applySeconds              *prometheus.HistogramVec
	writes, repairs, failures prometheus.Counter
	jumps                     prometheus.Counter // of the clock
}

// NewMetrics returns unregistered Metrics, all 0.
func NewMetrics() Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "calico_node_route_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "calico_node_route_" + name, Help: help})
	}
	m := Metrics{
		routes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "calico_node_routes", Help: "Routes that this host should have for others' workloads, by what they come from: a block of its own, etcd (host), BGP.",
		}, []string{"origin"}),
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "calico_node_route_problems", Help: "Problems with routes to other hosts, by kind: see /debug/invalid.",
		}, []string{"kind"}),
		tunnels:    gauge("tunnels", "Tunnel devices that this host should have."),
		remotes:    gauge("remotes", "Other hosts that this host's VXLAN devices know."),
		hosts:      gauge("hosts", "Addresses of other hosts."),
		advertised: gauge("advertised", "Prefixes that this host advertises by BGP."),
		applySeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "calico_node_route_apply_seconds", Help: "Time to bring routes and tunnels in line and read them back: the whole, or what changed.", Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12), // of a tenth of a millisecond to some seconds
		}, []string{"scope"}),
		writes:   counter("writes_total", "Changes made to routes to other hosts and to tunnels."),
		repairs:  counter("drift_repaired_total", "Changes made to routes to other hosts and to tunnels that undid what something else had changed; they are in calico_node_route_writes_total too."),
		failures: counter("failures_total", "Times that routes and tunnels could not be read."),
		jumps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "calico_node_clock_jumps_total", Help: "Times that the host's clock was set, by a second or more.",
		}),
	}
	m.count(&plan.State{}) // show 0 rather than nothing
	return m
}

// Register adds them to a registry.
func (m Metrics) Register(r *prometheus.Registry) {
	r.MustRegister(m.routes, m.problems, m.tunnels, m.remotes, m.hosts, m.advertised, m.applySeconds, m.writes, m.repairs, m.failures, m.jumps)
}

// count records the sizes of the plan.
func (m Metrics) count(now *plan.State) {
	routes := map[plan.Origin]int{plan.FromBlock: 0, plan.FromHost: 0, plan.FromBGP: 0}
	for _, r := range now.Routes {
		routes[r.Origin]++
	}
	for origin, n := range routes {
		m.routes.WithLabelValues(string(origin)).Set(float64(n))
	}
	problems := map[plan.ProblemKind]int{}
	for id := range now.Problems {
		problems[id.Kind]++
	}
	for _, kind := range plan.ProblemKinds() {
		m.problems.WithLabelValues(string(kind)).Set(float64(problems[kind]))
	}
	m.tunnels.Set(float64(len(now.Tunnels)))
	m.remotes.Set(float64(len(now.Remotes)))
	m.hosts.Set(float64(len(now.Hosts)))
	m.advertised.Set(float64(len(now.Advertisements)))
}

// peerMetrics asks the speaker on each scrape.
type peerMetrics struct {
	speaker                           speaker
	peers, received, learned, refused *prometheus.Desc
	troubles                          *prometheus.Desc
}

// scrapePatience is how long the speaker has to answer.
const scrapePatience = 5 * time.Second

// NewPeerMetrics returns the metrics of the network's speaker.
func NewPeerMetrics(n network) *peerMetrics {
	return &peerMetrics{
		speaker:  n.speaker,
		peers:    prometheus.NewDesc("calico_node_bgp_peers", "BGP neighbours, by the state of the session.", []string{"state"}, nil),
		troubles: prometheus.NewDesc("calico_node_bgp_troubles", "BGP neighbours without a session, by what is wrong; those not tried yet aside.", []string{"kind"}, nil),
		received: prometheus.NewDesc("calico_node_bgp_received_prefixes", "Prefixes that the neighbours have sent, taken or not.", nil, nil),
		learned:  prometheus.NewDesc("calico_node_bgp_learned_paths", "Best paths to learned prefixes, by all neighbours.", nil, nil),
		refused:  prometheus.NewDesc("calico_node_bgp_refused_prefixes", "Prefixes sent by neighbours that are taken from none: a default route, and what this host announces itself.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *peerMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.peers
	out <- m.troubles
	out <- m.received
	out <- m.learned
	out <- m.refused
}

// Collect implements prometheus.Collector.
func (m *peerMetrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	peers, err := m.speaker.Status(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(m.peers, err)
		return
	}
	states := map[string]int{}
	for _, s := range []string{bgp.Idle, bgp.Connecting, bgp.OpenSent, bgp.OpenConfirm, bgp.Established, bgp.Flooded, bgp.Refused} {
		states[s] = 0
	}
	troubles := map[bgp.Trouble]int{}
	received, learned, refused := 0, 0, 0
	for _, p := range peers {
		states[p.State]++
		troubles[p.Trouble]++
		received, learned, refused = received+p.Received, learned+p.Used, refused+p.Refused
	}
	for state, n := range states {
		out <- prometheus.MustNewConstMetric(m.peers, prometheus.GaugeValue, float64(n), state)
	}
	for _, kind := range bgp.Troubles() {
		out <- prometheus.MustNewConstMetric(m.troubles, prometheus.GaugeValue, float64(troubles[kind]), string(kind))
	}
	out <- prometheus.MustNewConstMetric(m.received, prometheus.GaugeValue, float64(received))
	out <- prometheus.MustNewConstMetric(m.learned, prometheus.GaugeValue, float64(learned))
	out <- prometheus.MustNewConstMetric(m.refused, prometheus.GaugeValue, float64(refused))
}
