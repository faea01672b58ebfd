// SPDX-License-Identifier: Apache-2.0

// Package status reports to etcd that the host's agent is alive, by a lease that also holds the host's name, and the status of each
// endpoint.
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
	// leastBackoff and mostBackoff bound the pauses between tries while etcd does not serve.
	leastBackoff = 500 * time.Millisecond
	mostBackoff  = 10 * time.Second
)

// Config configures a Reporter.
type Config struct {
	Node string // the host's name in the data model
	// VarDir is where LeasesName is kept, "" = nowhere.
	VarDir string
	// Place is where this process runs, as the function Place says; "" = unknown, or possibly shared with another agent.
	Place    string
	Logger   *slog.Logger
	Health   *health.Monitor
	Problems *problems.Ledger
}

// Reporter writes the status of the host and of its endpoints. Its methods don't wait for etcd.
type Reporter struct {
	// Naming says why nothing may be done in the host's name, for all parts of the agent; "" = everything may be done.
	Naming    *mailbox.Value[string]
	host      *host
	endpoints *endpoints
}

// New returns a Reporter that writes nothing until Run.
func New(cfg Config, client *store.Client) *Reporter {
	n := mailbox.NewValue(NotNamed)
	return &Reporter{Naming: n, host: newHost(cfg, client, n), endpoints: newEndpoints(cfg, client, n)}
}

// Update takes in one update of the watch. Call it before anything else acts on the update, which may belong to another host with the name.
func (r *Reporter) Update(u model.Update) {
	r.host.update(u)
	if u.Resync {
		r.endpoints.resync()
	}
}

// Set records an endpoint's status, by the path of its key in etcd.
func (r *Reporter) Set(path string, key model.Key, status model.EndpointStatus) {
	r.endpoints.set(path, key, status)
}

// Noted returns the status last Set for an endpoint, "" = none.
func (r *Reporter) Noted(path string) model.EndpointStatus { return r.endpoints.noted(path) }

// Remove records that an endpoint is gone.
func (r *Reporter) Remove(path string) { r.endpoints.remove(path) }

// FirstUpdate records that Set was called for all endpoints: the status of others in etcd is stale.
func (r *Reporter) FirstUpdate() {
	r.host.firstUpdate()
	r.endpoints.firstUpdate()
}

// Filtered and Routed record that the firewall, and the routes, are as etcd says up to a revision, each once it has taken in an update
// after Update has.
func (r *Reporter) Filtered(revision int64) { r.host.done(firewall, revision) }
func (r *Reporter) Routed(revision int64)   { r.host.done(router, revision) }

// Settings say what is reported, and how often.
type Settings struct {
	// Interval is how often the host reports that it is alive, 0 = never; TTL is how long a report lasts in etcd.
	Interval, TTL time.Duration
	// Endpoints enables writing each endpoint's status, Delay after it changed.
	Endpoints bool
	Delay     time.Duration
}

// Configure applies settings.
func (r *Reporter) Configure(s Settings) {
	r.host.configure(s)
	r.endpoints.configure(s)
}

// Run writes until the context ends; the error is always nil. The host's status then stays in etcd until its lease ends: what is programmed
// stays as well, and most often another agent starts at once.
func (r *Reporter) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return r.host.run(ctx) })
	g.Go(func() error { return r.endpoints.run(ctx) })
	return g.Wait()
}
