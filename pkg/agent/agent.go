// SPDX-License-Identifier: Apache-2.0

// Package agent is the node agent: it watches etcd, works out what follows for
// this host, brings the kernel in line, and tells callers of the gate when an
// endpoint is programmed.
//
// loop.go drives the reconcilers of workloads and the firewall; what cuts connections, the
// router, identity and status run beside it. Each is a package below this one and knows none of
// the others: what they share is passed on as values.
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

// refusedTimeout is when the log says that nothing listens where etcd should be.
// The agent goes on trying.
const refusedTimeout = 3 * time.Second

// Config is what an agent is told when it starts.
type Config struct {
	Node   string // this host's name in the data model
	Store  store.Config
	RunDir string // where the gate's socket is made
	VarDir string // where the node's name and MTU are left for the plugin
	// Health and Metrics are where these are served, host:port, whatever the
	// parameters say; 0 = nowhere, "" = as they say.
	Health, Metrics string
	// CNI is where the container runtime's network configuration is kept: Dir "" = nowhere.
	CNI conflist.Config
	// Kubernetes is where pods are known from.
	Kubernetes Kubernetes
	// Methods are how the host finds its addresses, of IPv4 and of IPv6; the zero
	// value is as IP and IP6 that aren't set.
	Methods [2]plan.Method
	// AS is the host's own number, 0 = as etcd says.
	AS model.ASNumber
	// ConfigFile is the file of parameters, which need not be there.
	ConfigFile string
	file       map[string]string // what it says
	felix      map[string]string // the parameters in the environment, by name without FELIX_
	place      string            // status.Place, "" = it isn't known

	// InterfaceRetry is when an interface that could not be programmed is tried again, 0 = after 1 s at first.
	InterfaceRetry time.Duration

	// CleanUp: what an older version has left on the host is listed, and with Yes removed, and nothing else done.
	CleanUp, Yes bool

	probePeriod time.Duration // of probe.Config
}

// Run is the agent. It ends, cleanly, when the context does; what it has
// programmed stays.
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

// begin takes the agent's run directory, which end gives back, and reads the file of parameters.
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

// runToEnd is run, and what that began beside itself, which ends with it and may use the kernel until then.
func (l *loop) runToEnd(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.close()
	defer l.mtu.Wait()
	defer l.beside.Wait()
	defer cancel() // run may end by itself, with an error
	return l.run(ctx)
}

// serve has health and metrics served, where they were asked for when the agent was started.
func (l *loop) serve(cfg Config) error {
	errHealth, errMetrics := l.serving.Move()
	err := errors.Join(fixed("-health (CALICO_HEALTH_ADDRESS)", cfg.Health, errHealth), fixed("-metrics (CALICO_METRICS_ADDRESS)", cfg.Metrics, errMetrics))
	if err != nil {
		l.serving.Close()
	}
	return err
}

// fixed is an error that ends the start: that of an address that was asked for
// when the agent was started. Others may yet change, and are tried again.
func fixed(flag, value string, err error) error {
	if value == "" || err == nil {
		return nil
	}
	return fmt.Errorf("flag %s: %w", flag, err)
}
