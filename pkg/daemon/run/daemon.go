// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/metrics"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/runlock"
	"github.com/calico-go/calico/pkg/daemon/serving"
)

// Daemon is a long-lived program.
type Daemon struct {
	Name, Version string
	// Prefix is what the names of its metrics begin with.
	Prefix string
	// Options are its own; all daemons have -health, -metrics and -log-level.
	Options []Option
	// Lock is the directory that the process alone uses, once its options are set; nil = none.
	Lock *string
	// Health and Metrics are where these are served where nothing else is said.
	Health, Metrics string
	// Start makes what the daemon does until a context ends, before its pages are served.
	Start func(context.Context, Env) (func(context.Context) error, error)
}

// Env is what a daemon has of its process. It is alive while it calls Health.Turn.
type Env struct {
	Logger   *slog.Logger
	Health   *health.Monitor
	Problems *problems.Ledger
	Metrics  *prometheus.Registry
}

// Main runs the daemon with a command line and an environment, and returns the exit status.
func (d Daemon) Main(args, environ []string) int {
	var level slog.Level
	var health, metrics serving.Address
	flags := flag.NewFlagSet(d.Name, flag.ContinueOnError)
	err := Parse(flags, slices.Concat(d.Options, []Option{
		{Flag: "health", Variable: "CALICO_HEALTH_ADDRESS", Initial: d.Health, Help: "host:port of /liveness, /readiness and /debug/invalid; 0 = off", Set: Address(&health)},
		{Flag: "metrics", Variable: "CALICO_METRICS_ADDRESS", Initial: d.Metrics, Help: "host:port of /metrics; 0 = off", Set: Address(&metrics)},
		Level(&level),
	}), args, environ)
	return Main(d.Name, d.Version, err, func(ctx context.Context) error {
		return d.serve(ctx, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})), health, metrics)
	})
}

func (d Daemon) serve(ctx context.Context, log *slog.Logger, healthAt, metricsAt serving.Address) error {
	env := Env{Logger: log, Health: health.New(), Problems: problems.New(log), Metrics: metrics.NewRegistry(d.Prefix, d.Version)}
	if d.Lock != nil {
		release, err := runlock.Take(*d.Lock)
		if err != nil {
			return fmt.Errorf("directory %s: %w", *d.Lock, err)
		}
		defer release()
	}
	do, err := d.Start(ctx, env)
	if err != nil {
		return err
	}
	servers := serving.New(env.Problems, env.Health.Handler(env.Problems), metrics.Handler(env.Metrics))
	servers.Configure(healthAt, metricsAt)
	if err := errors.Join(servers.Move()); err != nil {
		servers.Close()
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return servers.Run(ctx) })
	group.Go(func() error { return do(ctx) })
	log.Info(d.Name+" runs", "version", d.Version)
	return group.Wait()
}
