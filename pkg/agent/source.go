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

// Source feeds an agent that doesn't read etcd with endpoints and policy, in terms of the data model.
type Source struct {
	// Name is the source's name in the log and on the pages for health.
	Name string
	// Start returns the function that feeds the agent until its context ends. It is called before the agent's pages are served.
	Start func(Parts) (func(context.Context) error, error)
}

// Parts are what a Source uses of an agent.
type Parts struct {
	run.Env
	// Update passes an update to the agent, the first a Resync; it blocks while the agent has many queued.
	Update func(context.Context, model.Update)
}

// RunFrom is Run for a host without etcd and without other hosts: the agent keeps its workloads' links, routes and policy, and serves their
// DHCP. It has no tunnels and no BGP.
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
	p.report.Naming.Set("") // no other agent could have it
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
