// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/logfile"
	"github.com/calico-go/calico/pkg/daemon/metrics"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/store"
)

// Daemon is a long-lived program.
type Daemon struct {
	Name string
	// Prefix begins the names of its metrics.
	Prefix  string
	Options []Option
	// Health and Metrics are the default addresses of these pages, which flags -health and -metrics change; there is a -log-level too. If
	// Health is "", Run takes care of all three.
	Health, Metrics string
	// Run does the daemon's work, once the options are set, until the context ends, which is a clean exit.
	Run func(context.Context, Env) error
}

// Env is what Main prepares for a daemon's Run, which must call Health.Turn to count as alive.
type Env struct {
	Name, Version string
	Environ       []string // as os.Environ
	Logger        *slog.Logger
	// Level is the level of Logger, which also writes to LogFile once that has a path.
	Level    *slog.LevelVar
	LogFile  *logfile.File
	Health   *health.Monitor
	Problems *problems.Ledger
	Metrics  *prometheus.Registry
	// Pages serve Health, Problems and Metrics.
	Pages *serving.Servers

	unset map[string]func(string) error // by variable, the Set of an option that neither a flag nor a variable sets
	place func()                        // has Pages served where the options say
}

// Main runs the daemon with a command line and an environment, and returns the exit status.
func (d Daemon) Main(version string, args, environ []string) int {
	store.DiscardLibraryLogs()
	env, err := d.Prepare(version, args, environ, os.Stderr)
	return Main(d.Name, version, err, func(ctx context.Context) error { return d.Run(ctx, env) })
}

// Prepare sets the options from a command line and an environment, and returns the daemon's Env. Log and help are written to out. The error
// is as of Parse.
func (d Daemon) Prepare(version string, args, environ []string, out io.Writer) (Env, error) {
	level, file := new(slog.LevelVar), logfile.New()
	log := slog.New(slog.NewMultiHandler(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}), file.Handler()))
	e := Env{
		Name: d.Name, Version: version, Environ: environ, Logger: log, Level: level, LogFile: file,
		Health: health.New(d.Name), Problems: problems.New(log), Metrics: metrics.NewRegistry(d.Prefix, version),
	}
	e.Pages = serving.New(e.Problems, e.Health.Handler(e.Problems), metrics.Handler(e.Metrics))
	var healthAt, metricsAt serving.Address
	options := d.Options
	if d.Health != "" {
		options = slices.Concat(options, []Option{
			{Flag: "health", Variable: "CALICO_HEALTH_ADDRESS", Initial: d.Health, Help: "host:port of /liveness, /readiness and /debug/invalid; 0 = off", Set: address(&healthAt)},
			{Flag: "metrics", Variable: "CALICO_METRICS_ADDRESS", Initial: d.Metrics, Help: "host:port of /metrics; 0 = off", Set: address(&metricsAt)},
			levelOption(level),
		})
	}
	flags := flag.NewFlagSet(d.Name, flag.ContinueOnError)
	flags.SetOutput(out)
	err := Parse(flags, options, args, environ)
	e.place = func() { e.Pages.Configure(healthAt, metricsAt) }
	e.place()
	given, variables := map[string]bool{}, Variables(environ)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	e.unset = map[string]func(string) error{}
	for _, o := range options {
		if o.Variable != "" && !given[o.Flag] && variables[o.Variable] == "" {
			e.unset[o.Variable] = o.Set
		}
	}
	return e, err
}

// Unset returns those of some variables that nothing wins over: neither the environment nor the command line sets their options.
func (e Env) Unset(variables map[string]string) map[string]string {
	variables = maps.Clone(variables)
	maps.DeleteFunc(variables, func(name, _ string) bool { return e.unset[name] == nil })
	return variables
}

// Set sets options by their variables, as far as Unset returns these.
func (e Env) Set(variables map[string]string) error {
	var errs []error
	for name, value := range e.Unset(variables) {
		errs = append(errs, e.unset[name](value))
	}
	e.place()
	return errors.Join(errs...)
}

// Serve begins to serve the pages; Pages.Run must go on with it. It returns an error if they can't be served where they should be.
func (e Env) Serve() error {
	if err := errors.Join(e.Pages.Move()); err != nil {
		e.Pages.Close()
		return err
	}
	e.Logger.Info(e.Name+" runs", "version", e.Version)
	return nil
}
