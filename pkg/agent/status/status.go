// SPDX-License-Identifier: Apache-2.0

// Package status reports to etcd: that the host's agent is alive, by a lease that also holds the host's name, and the
// status of each endpoint.
package status

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

const (
	// timeout bounds one request to etcd.
	timeout = 10 * time.Second
	// leastBackoff and mostBackoff are between tries while etcd does not serve.
	leastBackoff = 500 * time.Millisecond
	mostBackoff  = 10 * time.Second
)

// Config is what a reporter is told when it starts.
type Config struct {
	Node string // the host's name in the data model
	// VarDir is where LeasesName is kept, "" = nowhere.
	VarDir string
	// Place is where this process runs, as Place says; "" = it isn't known, or not that no other agent is there.
	Place    string
	Logger   *slog.Logger
	Health   *health.Monitor
	Problems *problems.Ledger
}

// Reporter writes the status of the host and of its endpoints. Its methods only leave notes: none waits for etcd.
type Reporter struct {
	// Naming is why nothing may be done in the host's name, as all parts of the agent see it; "" = everything may be.
	Naming    *mailbox.Value[string]
	host      *host
	endpoints *endpoints
}

// New returns a reporter that writes nothing until Run.
func New(cfg Config, client *store.Client) *Reporter {
	n := mailbox.NewValue(NotNamed)
	return &Reporter{Naming: n, host: newHost(cfg, client, n), endpoints: newEndpoints(cfg, client, n)}
}

// Update takes in one update of the watch. It is to be called before anybody acts upon what else the update says: that may
// be of another host which has the name.
func (r *Reporter) Update(u model.Update) {
	r.host.update(u)
	if u.Resync {
		r.endpoints.resync()
	}
}

// Set notes how an endpoint is, by the path that its key has in etcd.
func (r *Reporter) Set(path string, key model.Key, status model.EndpointStatus) {
	r.endpoints.set(path, key, status)
}

// Noted returns what Set was told of an endpoint last, "" = nothing.
func (r *Reporter) Noted(path string) model.EndpointStatus { return r.endpoints.noted(path) }

// Remove notes that an endpoint is gone.
func (r *Reporter) Remove(path string) { r.endpoints.remove(path) }

// FirstUpdate notes that all endpoints were told: what etcd says of others is stale.
func (r *Reporter) FirstUpdate() {
	r.host.firstUpdate()
	r.endpoints.firstUpdate()
}

// Settings are what is reported, and how often.
type Settings struct {
	// Interval is how often the host says that it lives, 0 = never; TTL is how long that stays in etcd without it.
	Interval, TTL time.Duration
	// Endpoints has the status of each endpoint written, Delay after it changed.
	Endpoints bool
	Delay     time.Duration
}

// Configure takes settings into use.
func (r *Reporter) Configure(s Settings) {
	r.host.configure(s)
	r.endpoints.configure(s)
}

// Run writes until the context ends; the error is always nil. The host's status stays in etcd then until its lease ends:
// what is programmed stays as well, and most often another agent comes at once.
func (r *Reporter) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return r.host.run(ctx) })
	g.Go(func() error { return r.endpoints.run(ctx) })
	return g.Wait()
}
