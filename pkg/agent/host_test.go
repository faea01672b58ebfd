// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/ports"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
	"github.com/calico-go/calico/test/etcd"
)

// host is a host to run an agent on: the namespace of the test process, with an
// etcd.
type host struct {
	testing.TB
	name    string
	dir     string
	etcd    *etcd.Server
	store   *store.Client // etcd's
	health  string
	metrics string
	felix   map[string]string
	file    string // of parameters
}

func newHost(tb testing.TB) *host {
	tb.Helper()
	h := &host{TB: tb, name: "host-1", dir: tb.TempDir(), etcd: etcd.New(tb)}
	free := ports.Free(tb, 2) // etcd listens already
	h.store, h.health, h.metrics = h.etcd.Store, free[0], free[1]
	tb.Cleanup(func() { // what agents and tests leave
		_ = exec.Command("conntrack", "-F").Run()
		for _, family := range []string{"-4", "-6"} {
			_ = exec.Command("ip", family, "route", "flush", "proto", strconv.Itoa(link.RouteProtocol)).Run()
		}
	})
	return h
}

func (h *host) config() Config {
	return Config{
		Node:    h.name,
		Store:   store.Config{Endpoints: []string{"http://" + h.etcd.Addr()}, RefusedTimeout: time.Second},
		RunDir:  filepath.Join(h.dir, "run"),
		VarDir:  filepath.Join(h.dir, "var"),
		Health:  h.health,
		Metrics: h.metrics,

		ConfigFile: h.file,
	}
}

// testEnv returns the Env of an agent in this process.
func testEnv(tb testing.TB) run.Env {
	tb.Helper()
	env, err := Daemon(new(Config), "h").Prepare("test", nil, nil, tb.Output())
	if err != nil {
		tb.Fatal(err)
	}
	return env
}

// testParts returns the parts beside a loop that has no etcd.
func testParts(env run.Env, report *status.Reporter) parts {
	p := parts{metrics: newMetrics(env.Metrics, env.Problems.Count), wake: mailbox.NewSignal(), report: report, source: plainSource{}}
	p.handover, p.dhcp = router.NewHandover(p.wake), newDHCP(Config{Node: "h"}, env, p.metrics)
	return p
}

// start runs an agent in this process until the returned function is called.
func (h *host) start() (stop func()) {
	h.Helper()
	return h.startWith(func(*Config) {})
}

// startWith is start with a changed Config.
func (h *host) startWith(change func(*Config)) (stop func()) {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	cfg := h.config()
	change(&cfg)
	env := testEnv(h)
	for name, value := range h.felix {
		env.Environ = append(env.Environ, "FELIX_"+name+"="+value)
	}
	go func() { ended <- Run(ctx, cfg, env) }()
	stopped := false
	stop = func() {
		h.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := eventually.Receive(h, "the end of Run", ended); err != nil {
			h.Errorf("Run: %v", err)
		}
	}
	h.Cleanup(stop)
	h.until("the gate's socket is there", func() bool {
		_, err := os.Stat(filepath.Join(h.dir, "run", socketName))
		return err == nil
	})
	return stop
}

// spawn starts an agent as a process of its own.
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

// agent returns the command that runs an agent.
func (h *host) agent() *exec.Cmd {
	c := h.config()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), agentVariable+"=1", "NODENAME="+c.Node, "ETCD_ENDPOINTS="+c.Store.Endpoints[0],
		"CALICO_RUN_DIR="+c.RunDir, "CALICO_VAR_DIR="+c.VarDir, "CALICO_HEALTH_ADDRESS="+c.Health, "CALICO_METRICS_ADDRESS="+c.Metrics)
	return cmd
}

// terminate ends an agent by SIGTERM, and returns the error of its exit.
func (h *host) terminate(cmd *exec.Cmd) error {
	h.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		h.Fatal(err)
	}
	defer time.AfterFunc(eventually.Limit, func() { _ = cmd.Process.Kill() }).Stop() // of that the error says so
	return cmd.Wait()
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
	return h.etcd.Put(key, value)
}

func (h *host) remove(keys ...model.Key) {
	h.Helper()
	h.etcd.Remove(keys...)
}

// get reads a key; nil = it doesn't exist.
func (h *host) get(key model.Key) any {
	h.Helper()
	return h.etcd.Get(key)
}

func (h *host) ask(key model.WorkloadEndpointKey, revision int64, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return gate.Wait(ctx, filepath.Join(h.dir, "run", socketName), gate.Request{Endpoint: key, Revision: revision})
}

// waits asks the gate, which must say why the endpoint doesn't pass yet. The agent answers when nine tenths of the time are over: on a busy
// machine the rest may be too short.
func (h *host) waits(what string, key model.WorkloadEndpointKey, revision int64, reason string) {
	h.Helper()
	var err error
	var rejected *gate.RejectedError
	for within := time.Second; within < eventually.Limit && !errors.As(err, &rejected); within *= 2 {
		err = h.ask(key, revision, within)
	}
	if !errors.As(err, &rejected) || !rejected.Retry || !strings.Contains(rejected.Reason, reason) {
		h.Errorf("%s: %v, want that %s", what, err, reason)
	}
}

// mustPass waits until the gate passes the endpoint.
func (h *host) mustPass(key model.WorkloadEndpointKey, revision int64) {
	h.Helper()
	if err := h.ask(key, revision, eventually.Limit); err != nil {
		h.Fatalf("gate: %v", err)
	}
}

// until waits for a condition.
func (h *host) until(what string, met func() bool) {
	h.Helper()
	h.etcd.Until(what, met)
}

func (h *host) fetch(addr, path string) (status int, body string) {
	client := http.Client{Timeout: eventually.Limit}
	response, err := client.Get("http://" + addr + path)
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

// metric returns one sample of the agent's metrics.
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

// revision returns the revision at which a key was last written.
func (h *host) revision(key model.Key) int64 {
	h.Helper()
	snapshot, err := h.store.Read(context.Background(), model.KeyRange(key))
	if err != nil {
		h.Fatal(err)
	}
	entry, _ := snapshot.Get(key)
	return entry.Revision
}

func hostNet(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// leaseOf returns the lease of a key, 0 for none.
func (h *host) leaseOf(key model.Key) int64 {
	h.Helper()
	return h.etcd.LeaseOf(key)
}

// client calls fn with a client of etcd's own library.
func (h *host) client(fn func(context.Context, *clientv3.Client) error) {
	h.Helper()
	h.etcd.Client(fn)
}

func (h *host) startEtcd() {
	h.Helper()
	h.etcd.Start()
}

func (h *host) stopEtcd() { h.etcd.Stop() }
