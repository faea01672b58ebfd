// SPDX-License-Identifier: Apache-2.0

// Package availability tells the Kubernetes API that the network of this host's Node is there: its condition
// NetworkUnavailable is False, so that the scheduler sends pods. That it isn't any more is for the controllers to say, when the
// agent's status in etcd is gone: an agent that restarts takes nothing back. A Condition keeps other things of the Node as well.
package availability

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
)

// retryInterval is how often a condition is looked at that isn't right yet.
const retryInterval = 2 * time.Second

// API is the Kubernetes API.
type API interface {
	// Watch tells of the Node whether it is right, as its condition is by being False, and of each change, until the context
	// ends; it tells nothing while there is no such Node.
	Watch(ctx context.Context, node string, seen func(right bool)) error
	// Set sets it right.
	Set(ctx context.Context, node string) error
}

// Config is what a Condition works with.
type Config struct {
	Node string
	API  API
	What string // is kept, for the log
	// Served is closed when the agent serves the host for the first time. Unready says why it doesn't now, "" = it does.
	Served   <-chan struct{}
	Unready  func() string
	Problems *problems.Ledger
	Logger   *slog.Logger
}

// Condition is the Node's condition, which Run keeps.
type Condition struct {
	cfg   Config
	loop  *reconcile.Loop
	wrong atomic.Bool // the condition is to be set, as last seen
}

// New makes a Condition.
func New(cfg Config) *Condition {
	k := &Condition{cfg: cfg}
	k.loop = reconcile.New(reconcile.Timing{Every: retryInterval}, k.keep)
	return k
}

// Run keeps the condition from when the agent serves, and while it does, until the context ends.
func (k *Condition) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-k.cfg.Served:
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return k.cfg.API.Watch(ctx, k.cfg.Node, k.seen) })
	group.Go(func() error { return k.loop.Run(ctx) })
	return group.Wait()
}

// seen takes in what the API has.
func (k *Condition) seen(available bool) {
	k.wrong.Store(!available)
	k.loop.Wake()
}

// keep sets the condition where it was seen to be wrong, and takes it to be right from then on.
func (k *Condition) keep(ctx context.Context) (time.Duration, error) {
	// An agent that can't serve leaves the condition to the controllers, who know it to be gone.
	if k.cfg.Unready() != "" || !k.wrong.Swap(false) {
		return 0, nil
	}
	err := k.cfg.API.Set(ctx, k.cfg.Node)
	switch {
	case err == nil:
		k.cfg.Logger.Info("the Node is set right", "what", k.cfg.What)
	case ctx.Err() != nil:
		return 0, err
	default:
		k.wrong.Store(true)
	}
	k.cfg.Problems.Tell(problems.Host, k.cfg.What+" of the Node", err)
	return 0, err
}
