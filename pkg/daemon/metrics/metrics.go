// SPDX-License-Identifier: Apache-2.0

// Package metrics has what the metrics of all daemons share: a registry, the metrics of the process and its version, and
// the page that Prometheus reads.
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
	// gathersPerSecond are those after the first gathersAtOnce.
	gathersPerSecond, gathersAtOnce = 5, 10
	// maxInFlight are pages that are written at once: to compress each takes 1 MiB.
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

// Handler serves /metrics.
func Handler(r *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(&paced{Gatherer: r, rate: rate.NewLimiter(gathersPerSecond, gathersAtOnce)}, promhttp.HandlerOpts{MaxRequestsInFlight: maxInFlight}))
	return mux
}

// paced is gathered only so often: one who asks more often gets what was gathered last.
type paced struct {
	prometheus.Gatherer
	rate *rate.Limiter

	mu   sync.Mutex
	last []*dto.MetricFamily
	err  error
}

// Gather returns what nobody changes.
func (p *paced) Gather() ([]*dto.MetricFamily, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate.Allow() {
		p.last, p.err = p.Gatherer.Gather()
	}
	return p.last, p.err
}
