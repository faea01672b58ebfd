// SPDX-License-Identifier: Apache-2.0

// Package availability tells the Kubernetes API that the network of this host's Node is available: it sets the condition NetworkUnavailable
// to False, so that the scheduler sends pods. Only the controllers set it to True, when the agent's status in etcd is gone: an agent that
// restarts takes nothing back. A Condition can keep other properties of the Node as well.
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

// retryInterval is how often a wrong condition is retried.
const retryInterval = 2 * time.Second

// API is the Kubernetes API.
type API interface {
	// Watch calls seen with whether the Node is right, initially and after each change, until the context ends. A condition is right when
	// it is False. While the Node doesn't exist, Watch doesn't call seen.
	Watch(ctx context.Context, node string, seen func(right bool)) error
	// Set makes it right.
	Set(ctx context.Context, node string) error
}

// Config configures a Condition.
type Config struct {
	Node string
	API  API
	What string // name in the log of what is kept
	// Served is closed when the agent first serves the host. Unready says why it doesn't now, "" = it does.
	Served   <-chan struct{}
	Unready  func() string
	Problems *problems.Ledger
	Logger   *slog.Logger
}

// Condition is the Node's condition, which Run keeps.
type Condition struct {
	cfg   Config
	loop  *reconcile.Loop
	wrong atomic.Bool // the condition must be set, as last seen
}

// New returns a Condition.
func New(cfg Config) *Condition {
	k := &Condition{cfg: cfg}
	k.loop = reconcile.New(reconcile.Timing{Every: retryInterval}, k.keep)
	return k
}

// Run keeps the condition once, and while, the agent serves the host, until the context ends.
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

// seen takes in the API's state.
func (k *Condition) seen(available bool) {
	k.wrong.Store(!available)
	k.loop.Wake()
}

// keep sets the condition if it was last seen wrong, and then takes it to be right.
func (k *Condition) keep(ctx context.Context) (time.Duration, error) {
	// An agent that can't serve leaves the condition to the controllers, which know that it is gone.
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
