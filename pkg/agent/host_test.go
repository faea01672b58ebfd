// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// patience bounds every wait for a condition. A machine that is busy with other things
// takes several seconds for what else takes one.
const patience = 90 * time.Second

// host is a host to run an agent on: the namespace of the test process, with an
// etcd.
type host struct {
	testing.TB
	name    string
	dir     string
	etcd    *embed.Etcd
	etcdCfg *embed.Config
	serving sync.RWMutex // held by requests to etcd
	stopped bool         // etcd is, or is about to be
	store   *store.Client
	health  string
	metrics string
	felix   map[string]string
	file    string // of parameters
}

func newHost(tb testing.TB) *host {
	tb.Helper()
	free := freeAddrs(tb, 4)
	h := &host{TB: tb, name: "host-1", dir: tb.TempDir(), health: free[0], metrics: free[1]}
	client, peer := url.URL{Scheme: "http", Host: free[2]}, url.URL{Scheme: "http", Host: free[3]}
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(h.dir, "etcd")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.TickMs, cfg.ElectionMs = 20, 200
	cfg.UnsafeNoFsync = true
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + peer.String()
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainUnaryInterceptor(h.serve)}
	h.etcdCfg = cfg
	h.startEtcd()
	tb.Cleanup(h.stopEtcd)
	var err error
	h.store, err = store.Open(context.Background(), store.Config{Endpoints: []string{client.String()}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = h.store.Close() })
	tb.Cleanup(func() { // what agents and tests leave
		_ = exec.Command("conntrack", "-F").Run()
		for _, family := range []string{"-4", "-6"} {
			_ = exec.Command("ip", family, "route", "flush", "proto", strconv.Itoa(kernel.RouteProtocol)).Run()
		}
	})
	return h
}

// serve lets requests through until etcd is stopped: one that asks for the
// member's status after its database is closed would end the test process.
func (h *host) serve(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	h.serving.RLock()
	defer h.serving.RUnlock()
	if h.stopped {
		return nil, status.Error(codes.Unavailable, "etcd is stopped")
	}
	return handler(ctx, req)
}

func (h *host) startEtcd() {
	h.Helper()
	h.serving.Lock()
	h.stopped = false
	h.serving.Unlock()
	e, err := embed.StartEtcd(h.etcdCfg)
	if err != nil {
		h.Fatal(err)
	}
	h.etcd = e
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(patience):
		h.Fatal("etcd did not get ready")
	}
}

func (h *host) stopEtcd() {
	if h.etcd != nil {
		h.serving.Lock()
		h.stopped = true
		h.serving.Unlock()
		h.etcd.Server.HardStop()
		h.etcd.Close()
		h.etcd = nil
	}
}

// freeAddrs are addresses that nobody listens at, no two the same, below the ports that the
// kernel gives to connections: one of those may be taken before it is used.
func freeAddrs(tb testing.TB, n int) []string {
	tb.Helper()
	addrs := make([]string, 0, n)
	for len(addrs) < n {
		addr := "127.0.0.1:" + strconv.Itoa(10000+rand.IntN(22000))
		l, err := net.Listen("tcp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			tb.Fatal(err)
		}
		defer func() { _ = l.Close() }() // nobody has used it, and until all are found nobody may
		addrs = append(addrs, addr)
	}
	return addrs
}

func (h *host) config() Config {
	return Config{
		Node:    h.name,
		Store:   store.Config{Endpoints: []string{"http://" + h.etcdCfg.ListenClientUrls[0].Host}},
		RunDir:  filepath.Join(h.dir, "run"),
		VarDir:  filepath.Join(h.dir, "var"),
		Health:  h.health,
		Metrics: h.metrics,
		Felix:   h.felix,

		ConfigFile: h.file,
		Version:    "test",
		Logger:     slog.New(slog.NewTextHandler(h.Output(), nil)),
	}
}

// start runs an agent in this process, until the returned function is called.
func (h *host) start() (stop func()) {
	h.Helper()
	return h.startWith(func(*Config) {})
}

// startWith runs one that is told something else.
func (h *host) startWith(change func(*Config)) (stop func()) {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	cfg := h.config()
	change(&cfg)
	go func() { ended <- Run(ctx, cfg) }()
	stopped := false
	stop = func() {
		h.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				h.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			h.Error("Run did not end")
		}
	}
	h.Cleanup(stop)
	h.until("the gate's socket is there", func() bool {
		_, err := os.Stat(filepath.Join(h.dir, "run", SocketName))
		return err == nil
	})
	return stop
}

// spawn runs an agent as a process of its own.
func (h *host) spawn() *exec.Cmd {
	h.Helper()
	cmd := h.agent()
	cmd.Stderr = h.Output()
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { h.kill(cmd) })
	return cmd
}

// agent is a process that is an agent, to be started.
func (h *host) agent() *exec.Cmd {
	c := h.config()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), agentVariable+"=1", "NODENAME="+c.Node, "ETCD_ENDPOINTS="+c.Store.Endpoints[0],
		"CALICO_RUN_DIR="+c.RunDir, "CALICO_VAR_DIR="+c.VarDir, "CALICO_HEALTH_ADDRESS="+c.Health, "CALICO_METRICS_ADDRESS="+c.Metrics)
	return cmd
}

func (h *host) kill(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the signal is what it says
	}
}

// put writes to etcd.
func (h *host) put(key model.Key, value any) (revision int64) {
	h.Helper()
	revision, err := h.store.Commit(context.Background(), model.Change{Puts: []model.Put{{Key: key, Value: value}}})
	if err != nil {
		h.Fatal(err)
	}
	return revision
}

func (h *host) remove(keys ...model.Key) {
	h.Helper()
	if _, err := h.store.Commit(context.Background(), model.Change{Deletes: keys}); err != nil {
		h.Fatal(err)
	}
}

// get reads a key; nil = it isn't there.
func (h *host) get(key model.Key) any {
	h.Helper()
	snapshot, err := h.store.Read(context.Background(), store.Key(key))
	if err != nil {
		h.Fatal(err)
	}
	entry, _ := snapshot.Get(key)
	return entry.Value
}

func (h *host) ask(key model.WorkloadEndpointKey, revision int64, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return gate.Wait(ctx, filepath.Join(h.dir, "run", SocketName), gate.Request{Endpoint: key, Revision: revision})
}

// mustPass waits at the gate.
func (h *host) mustPass(key model.WorkloadEndpointKey, revision int64) {
	h.Helper()
	if err := h.ask(key, revision, patience); err != nil {
		h.Fatalf("gate: %v", err)
	}
}

// until waits for a condition.
func (h *host) until(what string, met func() bool) {
	h.Helper()
	for deadline := time.Now().Add(patience); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatalf("waited for %v: %s", patience, what)
		}
	}
}

func (h *host) fetch(addr, path string) (status int, body string) {
	response, err := http.Get("http://" + addr + path)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, strings.TrimSpace(string(b))
}

func (h *host) ready() {
	h.Helper()
	h.until("agent is ready", func() bool {
		status, _ := h.fetch(h.health, "/readiness")
		return status == http.StatusOK
	})
}

// unready waits until the agent says that it isn't ready, and why.
func (h *host) unready(reason string) {
	h.Helper()
	h.until("agent is not ready: "+reason, func() bool {
		status, body := h.fetch(h.health, "/readiness")
		return status == http.StatusServiceUnavailable && strings.Contains(body, reason)
	})
}

// metric reads one sample of the agent's.
func (h *host) metric(name string) float64 {
	h.Helper()
	status, body := h.fetch(h.metrics, "/metrics")
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(body)
	if status != http.StatusOK || m == nil {
		h.Fatalf("metrics: %d, no %s", status, name)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		h.Fatal(err)
	}
	return v
}

// ip runs iproute2 on the host.
func (h *host) ip(args ...string) string {
	h.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		h.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

func (h *host) sysctl(path string) string {
	b, err := os.ReadFile("/proc/sys/net/" + path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

// revision is that at which a key was written last.
func (h *host) revision(key model.Key) int64 {
	h.Helper()
	snapshot, err := h.store.Read(context.Background(), store.Key(key))
	if err != nil {
		h.Fatal(err)
	}
	entry, _ := snapshot.Get(key)
	return entry.Revision
}

func hostNet(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
