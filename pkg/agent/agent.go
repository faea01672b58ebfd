// SPDX-License-Identifier: Apache-2.0

// Package agent is the node agent: it watches etcd, works out what follows for this host, programs the kernel, and tells callers of the
// gate when an endpoint is programmed.
//
// loop.go drives the reconcilers of workloads and the firewall; the cutter of connections, the router, identity and status run beside it.
// Each is a package below this one and imports none of the others: they exchange values.
package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calico-go/calico/pkg/agent/conflist"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/agent/workload"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/daemon/runlock"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/store"
)

// refusedTimeout is how long connections to etcd may be refused before the log says that nothing listens there. The agent keeps trying.
const refusedTimeout = 3 * time.Second

// Config is how an agent is started.
type Config struct {
	Node   string // this host's name in the data model
	Store  store.Config
	RunDir string // directory of the gate's socket
	VarDir string // directory of the files with the node's name and MTU, for the plugin
	// Health and Metrics are the addresses, host:port, to serve these on, whatever the parameters say; "0" = off, "" = as the parameters
	// say.
	Health, Metrics string
	// CNI is where the container runtime's network configuration is kept; nowhere if Dir is "".
	CNI conflist.Config
	// Kubernetes is how the Kubernetes API is reached.
	Kubernetes Kubernetes
	// Methods are how the host finds its IPv4 and its IPv6 address; the zero value stands for an unset IP and IP6.
	Methods [2]plan.Method
	// AS is this host's BGP AS number; 0 = as etcd says.
	AS model.ASNumber
	// ConfigFile is the file of parameters; it may be absent.
	ConfigFile string
	file       map[string]string // its parameters
	felix      map[string]string // the parameters in the environment, by name without FELIX_
	place      string            // status.Place; "" = unknown

	// InterfaceRetry is when an interface that could not be programmed is tried again, 0 = after 1 s at first.
	InterfaceRetry time.Duration

	// CleanUp only lists what an older version left on the host, then exits; with Yes it removes it too.
	CleanUp, Yes bool

	probePeriod time.Duration // probe.Config.Period
}

// Run runs the agent until the context ends, which is no error. What it programmed stays.
func Run(ctx context.Context, cfg Config, env run.Env) error {
	if cfg.CleanUp {
		return cleanUp(ctx, cfg.Yes)
	}
	return asRoot(func() error { return runWithEtcd(ctx, cfg, env) })
}

func asRoot(do func() error) error {
	if err := privileged(); err != nil {
		return err
	}
	err := do()
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w: run it as root, with the capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN", err)
	}
	return err
}

func runWithEtcd(ctx context.Context, cfg Config, env run.Env) error {
	params, end, err := begin(&cfg, env)
	if err != nil {
		return err
	}
	defer end()
	if cfg.place, err = status.Place(); err != nil {
		env.Logger.Warn("it isn't known where this agent runs: a lease of its former run counts as another's", "reason", err)
	}
	if err := (pluginFiles{cfg.VarDir, cfg.Node}).writeNode(); err != nil {
		return fmt.Errorf("leave the node's name for the plugin (CALICO_VAR_DIR): %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	kubernetes, err := cfg.kubernetes(env)
	if err != nil {
		return err
	}
	if kubernetes != nil {
		defer kubernetes.Close()
		defer cfg.keepNode(ctx, kubernetes, env, stop)() // the certificate waits for etcd, and etcd's pod for the label
	}
	certificate, err := cfg.certificate(ctx, kubernetes, env)
	if err != nil {
		return err
	}
	cfg.Store.Logger, cfg.Store.RefusedTimeout = env.Logger, refusedTimeout
	client, err := store.Open(ctx, cfg.Store)
	if err != nil {
		return fmt.Errorf("etcd (ETCD_ENDPOINTS and its like): %w", err)
	}
	defer func() { _ = client.Close() }() // the process is ending: leases are closed already
	env.Health.OfHost = true
	env.Health.Reads(client)
	a := assemble(cfg, env, params, client, kubernetes)
	a.loop.adopt()
	if err := a.loop.serve(cfg); err != nil {
		a.router.CloseGracefully(ctx)
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range a.runs(client, kubernetes, certificate) {
		group.Go(func() error { return run(ctx) })
	}
	env.Logger.Info("calico-node runs", "version", env.Version, "node", cfg.Node)
	err = group.Wait()
	env.Logger.Info("calico-node stops; what is programmed stays")
	return err
}

// begin takes the agent's run directory, reads the file of parameters and makes SIGHUP harmless. end gives the directory and the signal
// back.
func begin(cfg *Config, env run.Env) (start params.Params, end func(), err error) {
	release, err := runlock.Take(cfg.RunDir, runlock.Agent)
	if err != nil {
		return start, nil, fmt.Errorf("run directory %s (CALICO_RUN_DIR): %w", cfg.RunDir, err)
	}
	pass := passHangups(env.Logger)
	cfg.felix = params.Environ(env.Environ)
	file, err := params.ReadFile(cfg.ConfigFile)
	instead := "what else it says"
	if file == nil {
		instead = "what stands elsewhere, and the defaults"
	}
	env.Problems.ReportSetting(cfg.ConfigFile, err, instead)
	cfg.file = file
	return params.Resolve(cfg.settings(env).Layers(params.Stored{})...).Params, func() { release(); pass() }, nil
}

func newLoop(cfg Config, env run.Env, start params.Params, p parts) *loop {
	h, trouble := env.Health, env.Problems
	trouble.Unread, trouble.Source = h.Unread, h.Source
	return &loop{
		parts: p, log: env.Logger, params: start, interfaceRetry: cfg.InterfaceRetry, system: hostSystem(cfg, env, p.wake),
		health: h, problems: trouble, adoption: params.NewAdoption(cfg.settings(env), trouble), serving: env.Pages,
		updates: make(chan model.Update, updateBuffer), asks: make(chan func() bool), stopped: make(chan struct{}), gate: waiters{map[*wait]struct{}{}},
		reached: trouble.Group(problems.Host), etcd: newEtcdState(cfg.Node, h.Source), mtu: workload.NewShrinker(env.Logger, trouble, p.wake, start.MTULiveUpdate),
	}
}

// runToEnd runs the loop, then waits for the goroutines it started: they may use the kernel until then.
func (l *loop) runToEnd(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.close()
	defer l.mtu.Wait()
	defer l.beside.Wait()
	defer cancel() // run may end by itself, with an error
	return l.run(ctx)
}

// serve starts the pages for health and metrics. Only an address set when the agent was started makes it fail.
func (l *loop) serve(cfg Config) error {
	errHealth, errMetrics := l.serving.Move()
	err := errors.Join(fixed("-health (CALICO_HEALTH_ADDRESS)", cfg.Health, errHealth), fixed("-metrics (CALICO_METRICS_ADDRESS)", cfg.Metrics, errMetrics))
	if err != nil {
		l.serving.Close()
	}
	return err
}

// fixed returns an error that ends the start, for an address that was set when the agent was started. Other addresses may still change, and
// are retried.
func fixed(flag, value string, err error) error {
	if value == "" || err == nil {
		return nil
	}
	return fmt.Errorf("flag %s: %w", flag, err)
}
