// SPDX-License-Identifier: Apache-2.0

// Package metrics holds what the metrics of all daemons share: a registry, the metrics of the process and its version, and the page that
// Prometheus reads.
package metrics

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/time/rate"
)

const (
	// Metrics are gathered at most gathersPerSecond, after the first gathersAtOnce.
	gathersPerSecond, gathersAtOnce = 5, 10
	// maxInFlight bounds the pages written at once: compressing each takes 1 MiB.
	maxInFlight = 16
)

// NewRegistry returns a registry with the metrics of Go and of the process, and with <daemon>_build_info.
func NewRegistry(daemon, version string) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: daemon + "_build_info", Help: "1, with the version of the program.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	return r
}

// Handler serves the registry at /metrics.
func Handler(r *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(&paced{Gatherer: r, rate: rate.NewLimiter(gathersPerSecond, gathersAtOnce)}, promhttp.HandlerOpts{MaxRequestsInFlight: maxInFlight}))
	return mux
}

// paced limits how often metrics are gathered: a request in between gets the last result.
type paced struct {
	prometheus.Gatherer
	rate *rate.Limiter

	mu   sync.Mutex
	last []*dto.MetricFamily
	err  error
}

// Gather returns metrics that may be shared with earlier results; they are never modified.
func (p *paced) Gather() ([]*dto.MetricFamily, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate.Allow() {
		p.last, p.err = p.Gatherer.Gather()
	}
	return p.last, p.err
}
