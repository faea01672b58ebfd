// SPDX-License-Identifier: Apache-2.0

// Package agent is the node agent: it watches etcd, works out what follows for
// this host, keeps the kernel so, and says at the gate when an endpoint is
// programmed.
//
// state.go, desired.go, plan.go and params.go decide and do nothing else;
// loop.go owns the state and acts; report.go writes to etcd.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/store"
)

// Names of files in the run and the var directory.
const (
	SocketName   = "agent.sock"
	NodenameName = "nodename"
	MTUName      = "mtu"
)

// Config is what an agent is told when it starts.
type Config struct {
	Node    string // this host's name in the data model
	Store   store.Config
	RunDir  string // where the gate's socket is made
	VarDir  string // where the node's name and MTU are left for the plugin
	Health  string // host:port of /liveness and /readiness, "" = none
	Metrics string // host:port of /metrics, "" = none
	// Felix are settings by lower-case parameter name, as ParseConfig makes them.
	Felix   map[string]string
	Version string
	Logger  *slog.Logger
	// Level is that of Logger; the agent changes it as it is set in etcd.
	Level *slog.LevelVar
}

// Run is the agent. It ends, cleanly, when the context does; what it has
// programmed stays.
func Run(ctx context.Context, cfg Config) error {
	params, wrong := resolve(cfg.Felix)
	for _, w := range wrong {
		return fmt.Errorf("FELIX_%s: %w", w.name, w.err)
	}
	if cfg.Level == nil {
		cfg.Level = new(slog.LevelVar)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Level.Set(params.LogLevel)
	if err := writeFile(filepath.Join(cfg.VarDir, NodenameName), []byte(cfg.Node+"\n")); err != nil {
		return fmt.Errorf("leave the node's name for the plugin (CALICO_VAR_DIR): %w", err)
	}
	cfg.Store.Logger = cfg.Logger
	client, err := store.Open(ctx, cfg.Store)
	if err != nil {
		return fmt.Errorf("etcd (ETCD_ENDPOINTS and its like): %w", err)
	}
	defer func() { _ = client.Close() }() // the process is ending: leases are closed already
	h := newHealth()
	trouble := newProblems(cfg.Logger)
	l := newLoop(cfg, params, h, trouble, newReporter(cfg.Logger, client, cfg.Node, h))
	var servers []server
	for _, s := range []struct {
		what, addr string
		handler    http.Handler
	}{{"health", cfg.Health, h.handler()}, {"metrics", cfg.Metrics, l.metrics.handler()}} {
		if s.addr == "" {
			continue
		}
		listener, err := net.Listen("tcp", s.addr)
		if err != nil {
			closeAll(servers)
			return fmt.Errorf("serve %s on %s: %w: free the port, or choose another address, or 0 for none", s.what, s.addr, err)
		}
		servers = append(servers, server{s.what, listener, s.handler})
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range servers {
		group.Go(func() error { return s.run(ctx) })
	}
	group.Go(func() error { return gate.Serve(ctx, filepath.Join(cfg.RunDir, SocketName), gatekeeper{l}) })
	group.Go(func() error { return l.report.run(ctx) })
	group.Go(func() error { return l.watch(ctx, client) })
	group.Go(func() error {
		// A flush under way hands its result to the loop, or sees that it has ended: in this order.
		defer l.flushes.Wait()
		defer close(l.stopped)
		return l.run(ctx)
	})
	cfg.Logger.Info("calico-node runs", "version", cfg.Version, "node", cfg.Node)
	err = group.Wait()
	cfg.Logger.Info("calico-node stops; what is programmed stays")
	return err
}

func newLoop(cfg Config, params Params, h *health, trouble *problems, r *reporter) *loop {
	return &loop{
		log: cfg.Logger, level: cfg.Level, environ: cfg.Felix, params: params,
		system:  hostSystem(cfg),
		metrics: newMetrics(cfg.Version, trouble.count), health: h, report: r, problems: trouble,
		updates: make(chan store.Update, updateBuffer),
		waits:   make(chan *wait), leaves: make(chan *wait),
		flushed: make(chan []netip.Addr), stopped: make(chan struct{}),
		state: newState(cfg.Node, params.InterfacePrefixes), desired: newDesired(),
		waiting: map[*wait]struct{}{}, dirty: map[string]struct{}{}, drifted: map[string]struct{}{},
		lost:     map[netip.Addr]struct{}{},
		flushing: map[netip.Addr]int{},
	}
}

// hostSystem is the host that the process runs on.
func hostSystem(cfg Config) system {
	return system{
		open: func(prefixes []string) (hostPath, error) {
			return kernel.NewHostPath(kernel.HostPathConfig{Prefixes: prefixes, Logger: cfg.Logger})
		},
		deleteConntrack: kernel.DeleteConntrack,
		writeMTU: func(prefixes []string) error {
			mtu, err := kernel.UplinkMTU(prefixes...)
			if err != nil {
				return err
			}
			return writeFile(filepath.Join(cfg.VarDir, MTUName), []byte(strconv.Itoa(mtu)+"\n"))
		},
	}
}

// watch hands on what etcd holds. The store rides out what etcd goes through.
func (l *loop) watch(ctx context.Context, client *store.Client) error {
	return client.Watch(ctx, watched(), func(u store.Update) error {
		select {
		case l.updates <- u:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// server is one HTTP server of the agent.
type server struct {
	what     string
	listener net.Listener
	handler  http.Handler
}

func closeAll(servers []server) {
	for _, s := range servers {
		_ = s.listener.Close() // it never served
	}
}

func (s server) run(ctx context.Context) error {
	h := &http.Server{Handler: s.handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	err := h.Serve(s.listener)
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve %s on %s: %w", s.what, s.listener.Addr(), err)
}
