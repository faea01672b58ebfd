// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// Source is what an agent has its endpoints and policy from that doesn't read etcd: whoever speaks in the data model.
type Source struct {
	// Name is what the pages for health and the log call it.
	Name string
	// Start makes what tells the agent until a context ends, before the agent's pages are served.
	Start func(Parts) (func(context.Context) error, error)
}

// Parts are an agent's as a Source uses them.
type Parts struct {
	run.Env
	// Update takes an update, the first a Resync; it waits while the agent has many to do.
	Update func(context.Context, model.Update)
}

// RunFrom is Run for a host that knows no etcd and no other hosts: the agent keeps its workloads' links, routes and policy,
// and serves their DHCP. It has no tunnels and no BGP.
func RunFrom(ctx context.Context, cfg Config, env run.Env, source Source) error {
	return asRoot(func() error { return runFrom(ctx, cfg, env, source) })
}

func runFrom(ctx context.Context, cfg Config, env run.Env, source Source) error {
	params, end, err := begin(&cfg, env)
	if err != nil {
		return err
	}
	defer end()
	env.Health.Source, env.Health.OfHost = source.Name, true
	p := parts{
		metrics: newMetrics(env.Metrics, env.Problems.Count), wake: mailbox.NewSignal(), source: plainSource{},
		report: status.New(status.Config{Node: cfg.Node, Logger: env.Logger, Health: env.Health, Problems: env.Problems}, nil),
	}
	p.handover, p.dhcp = router.NewHandover(p.wake), newDHCP(cfg, env, p.metrics)
	p.report.Naming.Set("") // nobody else could have it
	l, unknown, dhcp := newLoop(cfg, env, params, p), problems.NewUnknown(cfg.Node, env.Problems), p.dhcp
	tell, err := source.Start(Parts{Env: env, Update: func(ctx context.Context, u model.Update) {
		unknown.Update(u)
		dhcp.Update(u)
		select {
		case l.updates <- u:
		case <-ctx.Done():
		}
	}})
	if err != nil {
		return err
	}
	env.Logger.Info("the agent runs", "version", env.Version, "host", cfg.Node, "source", source.Name)
	l.adopt()
	if err := l.serve(cfg); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.serving.Run(ctx) })
	group.Go(func() error { return gate.Serve(ctx, filepath.Join(cfg.RunDir, socketName), gatekeeper{loop: l}) })
	group.Go(func() error { return dhcp.Run(ctx) })
	group.Go(func() error { return l.runToEnd(ctx) })
	group.Go(func() error { return tell(ctx) })
	return group.Wait()
}
