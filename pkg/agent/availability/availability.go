// SPDX-License-Identifier: Apache-2.0

// Package availability tells the Kubernetes API that the network of this host's Node is there: its condition
// NetworkUnavailable is False, so that the scheduler sends pods. That it isn't any more is for the controllers to say, when the
// agent's status in etcd is gone: an agent that restarts takes nothing back. Its Keeper keeps other things of the Node as well.
package availability

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calico-go/calico/pkg/daemon/mailbox"
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

// Config is what a Keeper works with.
type Config struct {
	Node string
	API  API
	What string // is kept, for the log
	// Served is closed when the agent serves the host for the first time. Unready says why it doesn't now, "" = it does.
	Served  <-chan struct{}
	Unready func() string
	Logger  *slog.Logger
}

// Keeper keeps the condition.
type Keeper struct {
	cfg  Config
	news mailbox.Signal

	mu    sync.Mutex
	wrong bool // the condition is to be set, as last seen

	failed string // as it was logged; Run's own
}

// New makes a Keeper.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg, news: mailbox.NewSignal()} }

// Run keeps the condition from when the agent serves, and while it does, until the context ends.
func (k *Keeper) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-k.cfg.Served:
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return k.cfg.API.Watch(ctx, k.cfg.Node, k.seen) })
	group.Go(func() error { return k.keep(ctx) })
	return group.Wait()
}

// seen takes in what the API has.
func (k *Keeper) seen(available bool) {
	k.mark(!available)
	k.news.Send()
}

func (k *Keeper) mark(wrong bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wrong = wrong
}

// take says whether the condition is to be set, as far as was seen, and takes it to be right from now on.
func (k *Keeper) take() (wrong bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	wrong, k.wrong = k.wrong, false
	return wrong
}

func (k *Keeper) keep(ctx context.Context) error {
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.news:
		case <-tick.C:
		}
		// An agent that can't serve leaves the condition to the controllers, who know it to be gone.
		if k.cfg.Unready() != "" || !k.take() {
			continue
		}
		err := k.cfg.API.Set(ctx, k.cfg.Node)
		if err != nil {
			k.mark(true)
		}
		if ctx.Err() == nil {
			k.tell(err)
		}
	}
}

func (k *Keeper) tell(err error) {
	if err == nil {
		k.failed = ""
		k.cfg.Logger.Info("the Node is set right", "what", k.cfg.What)
		return
	}
	if err.Error() != k.failed {
		k.failed = err.Error()
		k.cfg.Logger.Warn("the Node could not be set right, trying again", "what", k.cfg.What, "err", err)
	}
}
