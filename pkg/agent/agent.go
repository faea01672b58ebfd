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
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calico-go/calico/pkg/agent/availability"
	"github.com/calico-go/calico/pkg/agent/conflist"
	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/agent/debugstate"
	"github.com/calico-go/calico/pkg/agent/dhcpd"
	"github.com/calico-go/calico/pkg/agent/etcdguard"
	"github.com/calico-go/calico/pkg/agent/firewall"
	"github.com/calico-go/calico/pkg/agent/forward"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/probe"
	"github.com/calico-go/calico/pkg/agent/reclaim"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/agent/workload"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/logfile"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	daemonmetrics "github.com/calico-go/calico/pkg/daemon/metrics"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/runlock"
	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/daemon/statefile"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/store"
)

// Names of files in the run and the var directory.
const (
	socketName   = "agent.sock"
	nodenameName = "nodename"
	mtuName      = "mtu"
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
	// Felix are the parameters in the environment, by name without FELIX_.
	Felix map[string]string
	// ConfigFile is the file of parameters, which need not be there.
	ConfigFile string
	file       map[string]string // what it says
	place      string            // status.Place, "" = it isn't known

	// InterfaceRetry is when an interface that could not be programmed is tried again, 0 = after 1 s at first.
	InterfaceRetry time.Duration

	probePeriod time.Duration // of probe.Config
	Version     string
	Logger      *slog.Logger
	// Level is that of Logger; the agent changes it as it is set in etcd.
	Level *slog.LevelVar
	// LogFile is where Logger writes as well, once it is told where; nil = it doesn't.
	LogFile *logfile.File
}

// Run is the agent. It ends, cleanly, when the context does; what it has
// programmed stays.
func Run(ctx context.Context, cfg Config) error {
	return asRoot(func() error { return runWithEtcd(ctx, cfg) })
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

func runWithEtcd(ctx context.Context, cfg Config) error {
	trouble, params, end, err := begin(&cfg)
	if err != nil {
		return err
	}
	defer end()
	if cfg.place, err = status.Place(); err != nil {
		cfg.Logger.Warn("it isn't known where this agent runs: a lease of its former run counts as another's", "reason", err)
	}
	if err := writeNode(cfg); err != nil {
		return fmt.Errorf("leave the node's name for the plugin (CALICO_VAR_DIR): %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	kubernetes, err := cfg.kubernetes()
	if err != nil {
		return err
	}
	if kubernetes != nil {
		defer kubernetes.Close()
		defer cfg.keepNode(ctx, kubernetes, stop)() // the certificate waits for etcd, and etcd's pod for the label
	}
	certificate, err := cfg.certificate(ctx, kubernetes, trouble)
	if err != nil {
		return err
	}
	cfg.Store.Logger, cfg.Store.RefusedTimeout = cfg.Logger, refusedTimeout
	client, err := store.Open(ctx, cfg.Store)
	if err != nil {
		return fmt.Errorf("etcd (ETCD_ENDPOINTS and its like): %w", err)
	}
	defer func() { _ = client.Close() }() // the process is ending: leases are closed already
	h := health.New()
	h.OfHost = true
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
	guard := etcdguard.New(cfg.Logger, client)
	l.gate.expect, l.router.etcdAddrs = client.Expect, guard.Needed
	r, id, left := attach(cfg, client, l, guard.Addrs)
	l.adopt()
	if err := l.serve(cfg); err != nil {
		r.CloseGracefully(ctx)
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.serving.Run(ctx) })
	gates, cidrs := gatekeeper{loop: l}, &podCIDRs{log: cfg.Logger, problems: trouble}
	if certificate != nil {
		group.Go(func() error { return certificate.Run(ctx) })
	}
	if kubernetes != nil {
		keeper := newPods(cfg, kubernetes, cidrs.SetNode)
		gates.pods, l.system.warnPod = keeper, podEvents(kubernetes, keeper)
		group.Go(func() error { return keeper.Run(ctx) })
	}
	group.Go(func() error { return gate.Serve(ctx, filepath.Join(cfg.RunDir, socketName), gates) })
	group.Go(func() error { return l.report.Run(ctx) })
	f := newFeed(l, guard, r)
	f.dhcp = newDHCP(cfg, l)
	if kubernetes != nil {
		f.podCIDRs = cidrs
		f.leader = &leadership{log: cfg.Logger, health: h, problems: trouble, gauge: l.metrics.unled}
	}
	group.Go(func() error { return f.dhcp.Run(ctx) })
	f.reclaim = newReclaim(cfg, client, l)
	group.Go(func() error { return f.watch(ctx, client) })
	group.Go(func() error { return f.reclaim.Run(ctx) })
	group.Go(func() error { return guard.Run(ctx) })
	group.Go(func() error { return r.Talk(ctx) })
	group.Go(func() error { return r.Run(ctx) })
	group.Go(func() error { return id.Run(ctx) })
	group.Go(func() error { return left.Run(ctx) })
	group.Go(func() error { return l.runToEnd(ctx) })
	served := make(chan struct{})
	group.Go(func() error { return closeWhenServing(ctx, h, served) })
	if cfg.CNI.Dir != "" {
		cni := cfg.conflist()
		cni.Served, cni.Health, cni.Problems, cni.Event = served, h, trouble, nodeEvents(cfg.Node, kubernetes)
		group.Go(func() error { return conflist.New(cni).Run(ctx) })
	}
	if kubernetes != nil {
		node := availability.New(availability.Config{
			Node: cfg.Node, API: availability.Kubernetes{Client: kubernetes}, What: "condition NetworkUnavailable", Served: served, Unready: h.Unready, Logger: cfg.Logger,
		})
		group.Go(func() error { return node.Run(ctx) })
	}
	cfg.Logger.Info("calico-node runs", "version", cfg.Version, "node", cfg.Node)
	err = group.Wait()
	cfg.Logger.Info("calico-node stops; what is programmed stays")
	return err
}

// begin completes what an agent is told, takes its run directory, which end gives back, and reads the file of parameters.
func begin(cfg *Config) (trouble *problems.Ledger, start params.Params, end func(), err error) {
	if cfg.Level == nil {
		cfg.Level = new(slog.LevelVar)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	release, err := runlock.Take(cfg.RunDir)
	if err != nil {
		return nil, start, nil, fmt.Errorf("run directory %s (CALICO_RUN_DIR): %w", cfg.RunDir, err)
	}
	pass := passHangups(cfg.Logger)
	trouble = problems.New(cfg.Logger)
	file, err := params.ReadFile(cfg.ConfigFile)
	instead := "what else it says"
	if file == nil {
		instead = "what stands elsewhere, and the defaults"
	}
	trouble.ReportSetting(cfg.ConfigFile, err, instead)
	cfg.file = file
	return trouble, params.Resolve(cfg.settings().Layers(params.Stored{})...).Params, func() { release(); pass() }, nil
}

func newLoop(cfg Config, start params.Params, h *health.Monitor, trouble *problems.Ledger, r *status.Reporter) *loop {
	m := newMetrics(cfg.Version, trouble.Count)
	trouble.Unread, trouble.Source = h.Unread, h.Source
	var l *loop
	known := cfg.settings()
	known.Roles = func(prefixes []string) ([]hostnet.Role, error) { return l.system.roles(prefixes) }
	l = &loop{
		log: cfg.Logger, params: start, interfaceRetry: cfg.InterfaceRetry, system: hostSystem(cfg, trouble, h),
		metrics: m, health: h, report: r, problems: trouble,
		adoption: params.NewAdoption(known, trouble), serving: serving.New(trouble, h.Handler(trouble), daemonmetrics.Handler(m.registry)),
		updates: make(chan model.Update, updateBuffer),
		asks:    make(chan chan debugstate.Endpoints), stopped: make(chan struct{}), gate: newWaiters(), deleted: mailbox.NewSignal(),
		etcd: newEtcdState(cfg.Node, h.Source), mtu: workload.NewShrinker(cfg.Logger, start.MTULiveUpdate),
		router: routerState{handover: router.NewHandover(), etcdAddrs: func() []netip.Addr { return nil }},
	}
	return l
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

// hostSystem is the host that the process runs on.
func hostSystem(cfg Config, trouble *problems.Ledger, h *health.Monitor) system {
	prober := probe.New(probe.Config{
		Accepted: func() (uint64, error) { return nft.Counted(firewall.ProbeRules(), model.Inbound) }, Period: cfg.probePeriod, Logger: cfg.Logger,
	})
	return system{
		open: func(prefixes []string) (workload.Path, error) {
			return hostpath.New(hostpath.Config{Prefixes: prefixes, Logger: cfg.Logger})
		},
		openFirewall: func(alive func()) (firewall.Table, error) {
			return nft.Open(nft.Config{Logger: cfg.Logger, Between: alive})
		},
		connections:       conntrack.List,
		deleteConnections: conntrack.Delete,
		interfaces:        hostnet.Interfaces,
		forward:           forward.New(forward.Config{Path: prober.Findings, Logger: cfg.Logger, Problems: trouble, Health: h}),
		probe:             prober,
		routes:            func() connections.Routes { return &hostnet.Lookup{} },
		roles:             hostnet.Roles,
		writeNode:         func() error { return writeNode(cfg) },
		programmed:        func(string, int64) {},
		writeMTU: func(mtu int) error {
			return statefile.Write(filepath.Join(cfg.VarDir, mtuName), []byte(strconv.Itoa(mtu)+"\n"))
		},
	}
}

// writeNode leaves the node's name for the plugin.
func writeNode(cfg Config) error {
	return statefile.Write(filepath.Join(cfg.VarDir, nodenameName), []byte(cfg.Node+"\n"))
}

// feed is where what etcd holds enters the agent, whatever source it comes from.
type feed struct {
	reclaim  *reclaim.Keeper // nil: etcd is never another one
	readable readable
	unknown  *problems.Unknown
	guard    *etcdguard.Guard
	dhcp     *dhcpd.Keeper // nil: nothing is served
	status   *status.Reporter
	router   *router.Router
	leader   *leadership // nil, as podCIDRs: there is no Kubernetes
	podCIDRs *podCIDRs
	updates  chan<- model.Update
}

func newFeed(l *loop, guard *etcdguard.Guard, r *router.Router) *feed {
	return &feed{unknown: problems.NewUnknown(l.etcd.host, l.problems), guard: guard, status: l.report, router: r, updates: l.updates}
}

// watch feeds what etcd holds until the context ends.
func (f *feed) watch(ctx context.Context, client *store.Client) error {
	for {
		err := client.Watch(ctx, watched(), func(u model.Update) error { return f.Update(ctx, u) })
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, reclaim.ErrReplaced) {
			return err
		}
	}
}

// newReclaim makes what keeps the host's pods in whatever etcd there is.
func newReclaim(cfg Config, client *store.Client, l *loop) *reclaim.Keeper {
	k := reclaim.New(reclaim.Config{
		Node: cfg.Node, RunDir: cfg.RunDir, VarDir: cfg.VarDir, Etcd: client, Links: func() ([]link.Link, error) { return link.List("") },
		LeadsTo: link.Link.LeadsTo, NameWaits: l.report.Naming.Waits, Health: l.health, Problems: l.problems, Logger: cfg.Logger, Entered: l.metrics.reentered.Inc,
	})
	l.gate.held = k.Held
	return k
}

// Update hands on one update; nil even where the context ends, as the source does so by itself, but for one of another
// etcd: reclaim.ErrReplaced. The loop comes last, as only that may have to be waited for.
func (f *feed) Update(ctx context.Context, u model.Update) error {
	if f.reclaim != nil {
		if err := f.reclaim.Hear(ctx, u); err != nil {
			return err
		}
	}
	f.readable.fill(u)
	f.unknown.Hear(u)
	f.guard.Hear()
	f.status.Hear(u)
	f.router.Hear(u)
	if f.dhcp != nil {
		f.dhcp.Hear(u)
	}
	if f.leader != nil {
		f.leader.Hear(u)
		f.podCIDRs.Hear(u)
	}
	u, ok := forLoop(u)
	if !ok {
		return nil
	}
	select {
	case f.updates <- u:
	case <-ctx.Done():
	}
	return nil
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
