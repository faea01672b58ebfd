// SPDX-License-Identifier: Apache-2.0

// Package agent is the node agent: it watches etcd, works out what follows for
// this host, keeps the kernel so, and says at the gate when an endpoint is
// programmed.
//
// state.go, desired.go and plan.go decide and do nothing else; loop.go owns the
// state and acts. The packages below are its parts.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/agent/etcdway"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/statefile"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/logfile"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	daemonmetrics "github.com/calico-go/calico/pkg/daemon/metrics"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/store"
)

// Names of files in the run and the var directory.
const (
	SocketName   = "agent.sock"
	NodenameName = "nodename"
	MTUName      = "mtu"
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
	// Methods are how the host finds its addresses, of IPv4 and of IPv6; the zero
	// value is as IP and IP6 that aren't set.
	Methods [2]plan.Method
	// AS is the host's own number, 0 = as etcd says.
	AS model.ASNumber
	// Felix are the parameters in the environment, by name without FELIX_.
	Felix map[string]string
	// ConfigFile is the file of parameters, which need not be there.
	ConfigFile string
	file       map[string]string // what it says
	place      string            // status.Place, "" = it isn't known, or not that no other agent is here
	Version    string
	Logger     *slog.Logger
	// Level is that of Logger; the agent changes it as it is set in etcd.
	Level *slog.LevelVar
	// LogFile is where Logger writes as well, once it is told where; nil = it doesn't.
	LogFile *logfile.File
}

// Run is the agent. It ends, cleanly, when the context does; what it has
// programmed stays.
func Run(ctx context.Context, cfg Config) error {
	if err := privileged(); err != nil {
		return err
	}
	err := run(ctx, cfg)
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w: run it as root, with the capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN", err)
	}
	return err
}

func run(ctx context.Context, cfg Config) error {
	if cfg.Level == nil {
		cfg.Level = new(slog.LevelVar)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	defer passHangups(cfg.Logger)()
	release, err := alone(cfg.RunDir)
	if err != nil {
		return fmt.Errorf("run directory %s (CALICO_RUN_DIR): %w", cfg.RunDir, err)
	}
	defer release()
	leave, doubt, err := aloneInNetwork()
	if err != nil {
		return fmt.Errorf("this network namespace: %w", err)
	}
	defer leave()
	if doubt == nil {
		cfg.place, doubt = status.Place()
	}
	if doubt != nil {
		cfg.Logger.Warn("another agent in this network namespace would not be noticed", "reason", doubt)
	}
	trouble := problems.New(cfg.Logger)
	file, err := params.ReadFile(cfg.ConfigFile)
	instead := "what else it says"
	if file == nil {
		instead = "what stands elsewhere, and the defaults"
	}
	trouble.ReportSetting(cfg.ConfigFile, err, instead)
	cfg.file = file
	params := params.Resolve(cfg.settings().Layers(params.Stored{})...).Params
	if err := writeNode(cfg); err != nil {
		return fmt.Errorf("leave the node's name for the plugin (CALICO_VAR_DIR): %w", err)
	}
	cfg.Store.Logger, cfg.Store.RefusedTimeout = cfg.Logger, refusedTimeout
	client, err := store.Open(ctx, cfg.Store)
	if err != nil {
		return fmt.Errorf("etcd (ETCD_ENDPOINTS and its like): %w", err)
	}
	defer func() { _ = client.Close() }() // the process is ending: leases are closed already
	h := health.New()
	h.Away = func() string {
		if _, err := client.WatchTrouble(); err != nil {
			return err.Error()
		}
		if len(cfg.Store.Endpoints) == 0 {
			return "no answer yet"
		}
		return "no answer yet from " + strings.Join(cfg.Store.Endpoints, ", ")
	}
	h.Interrupted = client.WatchTrouble
	l := newLoop(cfg, params, h, trouble, status.New(status.Config{
		Node: cfg.Node, VarDir: cfg.VarDir, Place: cfg.place, Logger: cfg.Logger, Health: h, Problems: trouble,
	}, client))
	way := etcdway.New(cfg.Logger, client)
	l.expect, l.etcdAddrs = client.Expect, way.Needed
	r, id, left := attach(cfg, client, l, way.All)
	l.adopt()
	l.state.setPrefixes(l.params.InterfacePrefixes) // it has nothing to judge yet
	errHealth, errMetrics := l.serving.Move()
	if err := errors.Join(fixed("-health (CALICO_HEALTH_ADDRESS)", cfg.Health, errHealth), fixed("-metrics (CALICO_METRICS_ADDRESS)", cfg.Metrics, errMetrics)); err != nil {
		l.serving.Close()
		r.CloseGracefully(ctx)
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.serving.Run(ctx) })
	group.Go(func() error { return gate.Serve(ctx, filepath.Join(cfg.RunDir, SocketName), gatekeeper{l}) })
	group.Go(func() error { return l.report.Run(ctx) })
	group.Go(func() error { return watch(ctx, client, way, l, r) })
	group.Go(func() error { return way.KeepClear(ctx) })
	group.Go(func() error { return r.Talk(ctx) })
	group.Go(func() error { return r.Run(ctx) })
	group.Go(func() error { return id.Run(ctx) })
	group.Go(func() error { return left.Run(ctx) })
	group.Go(func() error { return l.runToEnd(ctx) })
	cfg.Logger.Info("calico-node runs", "version", cfg.Version, "node", cfg.Node)
	err = group.Wait()
	cfg.Logger.Info("calico-node stops; what is programmed stays")
	return err
}

func newLoop(cfg Config, start params.Params, h *health.Monitor, trouble *problems.Ledger, r *status.Reporter) *loop {
	m := newMetrics(cfg.Version, trouble.Count)
	trouble.Unread = h.Unread
	var l *loop
	known := cfg.settings()
	known.Roles = func(prefixes []string) ([]hostnet.Role, error) { return l.system.roles(prefixes) }
	l = &loop{
		log: cfg.Logger, params: start,
		system:  hostSystem(cfg),
		metrics: m, health: h, report: r, problems: trouble,
		adoption: params.NewAdoption(known, trouble), serving: serving.New(trouble, h.Handler(trouble), daemonmetrics.Handler(m.registry)),
		updates: make(chan model.Update, updateBuffer),
		waits:   make(chan *wait), leaves: make(chan *wait), late: make(chan struct{}),
		stopped:  make(chan struct{}),
		expect:   func(int64) {},
		deleted:  mailbox.NewSignal(),
		handover: router.NewHandover(), asks: make(chan chan string), route: route{done: make(chan shrunk)},
		state: newState(cfg.Node, start.InterfacePrefixes), desired: newDesired(), wall: newWall(cfg.Node),
		waiting: map[*wait]struct{}{}, dirty: map[string]struct{}{}, drifted: map[string]struct{}{}, absent: map[string]string{},
	}
	return l
}

// runToEnd is run, and what that began beside itself.
func (l *loop) runToEnd(ctx context.Context) error {
	defer l.flushes.Wait()
	defer close(l.stopped)
	return l.run(ctx)
}

// hostSystem is the host that the process runs on.
func hostSystem(cfg Config) system {
	return system{
		open: func(prefixes []string) (hostPath, error) {
			return hostpath.New(hostpath.Config{Prefixes: prefixes, Logger: cfg.Logger})
		},
		openFirewall: func(alive func()) (firewall, error) {
			return nft.Open(nft.Config{Logger: cfg.Logger, Between: alive})
		},
		connections:       conntrack.List,
		deleteConnections: conntrack.Delete,
		interfaces:        hostnet.Interfaces,
		routes:            func() connections.Routes { return &hostnet.Lookup{} },
		roles:             hostnet.Roles,
		writeNode:         func() error { return writeNode(cfg) },
		writeMTU: func(mtu int) error {
			return statefile.Write(filepath.Join(cfg.VarDir, MTUName), []byte(strconv.Itoa(mtu)+"\n"))
		},
	}
}

// writeNode leaves the node's name for the plugin.
func writeNode(cfg Config) error {
	return statefile.Write(filepath.Join(cfg.VarDir, NodenameName), []byte(cfg.Node+"\n"))
}

// watch hands on what etcd holds. The store rides out what etcd goes through. The
// router is told first, as that never waits.
func watch(ctx context.Context, client *store.Client, way *etcdway.Way, l *loop, r *router.Router) error {
	var before readable
	unknown := problems.NewUnknown(l.state.host, l.problems)
	return client.Watch(ctx, watched(), func(u model.Update) error {
		before.fill(u)
		unknown.Hear(u)
		way.Hear()
		l.report.Hear(u)
		r.Hear(u)
		u, ok := forLoop(u)
		if !ok {
			return nil
		}
		select {
		case l.updates <- u:
			return nil
		case <-ctx.Done():
			return nil // the watch ends by itself, which is no failure
		}
	})
}

// fixed is an error that ends the start: that of an address that was asked for
// when the agent was started. Others may yet change, and are tried again.
func fixed(flag, value string, err error) error {
	if value == "" || err == nil {
		return nil
	}
	return fmt.Errorf("flag %s: %w", flag, err)
}
