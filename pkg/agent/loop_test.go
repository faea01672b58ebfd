// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/agent/firewall"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/agent/workload"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/doubles"
)

// clockwork is a loop under a clock of the test, with a fake kernel that records the calls: it tests when the loop does what. run_test.go
// tests what the loop does to a real kernel.
type clockwork struct {
	*loop
	ctx         context.Context
	cancel      context.CancelFunc
	start       time.Time
	events      chan hostpath.Event
	kernelTable *doubles.Table
	first       []model.Entry // what etcd holds

	mu       sync.Mutex
	calls    []string      // "whole 10s", "some 11s"
	refuse   error         // of every endpoint
	fail     error         // of every call
	unshrunk error         // of giving workloads a smaller MTU
	hold     time.Duration // of every call
	tracked  time.Duration // how long it takes to delete connections
	stale    []hostpath.StaleLink
	links    map[string]int // their indexes
	there    []hostnet.Interface
	end      error // of the loop, where the kernel is opened again
	opened   bool
}

// Workloads implements kernel.
func (c *clockwork) Workloads([]string) (workload.Path, error) {
	again := c.opened
	c.opened = true
	if again {
		return c, c.end
	}
	return c, nil
}

// Firewall implements kernel.
func (c *clockwork) Firewall(func()) (firewall.Table, error) { return c.kernelTable, nil }

// Interfaces implements kernel.
func (c *clockwork) Interfaces([]string) ([]hostnet.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.there, nil
}

// Roles implements kernel.
func (c *clockwork) Roles([]string) ([]hostnet.Role, error) { return nil, nil }

// List implements connections.Tracker.
func (c *clockwork) List(func(conntrack.Connection) bool) ([]conntrack.Tracked, error) {
	time.Sleep(c.tracked)
	return nil, nil
}

// Delete implements connections.Tracker.
func (c *clockwork) Delete([]conntrack.Tracked) (int, error) { return 0, nil }

// Routes implements connections.Tracker.
func (c *clockwork) Routes() connections.Routes { return noRoutes{} }

func (c *clockwork) call(what string, endpoints []hostpath.Endpoint) (hostpath.Report, error) {
	c.mu.Lock()
	c.calls = append(c.calls, what+" "+time.Since(c.start).String())
	refuse, fail, hold := c.refuse, c.fail, c.hold
	r := hostpath.Report{Stale: c.stale}
	c.mu.Unlock()
	time.Sleep(hold)
	for _, e := range endpoints {
		r.Endpoints = append(r.Endpoints, hostpath.Status{Interface: e.Interface, Err: refuse})
	}
	return r, fail
}

// Apply implements workload.Path.
func (c *clockwork) Apply(_ context.Context, desired []hostpath.Endpoint) (hostpath.Report, error) {
	return c.call("whole", desired)
}

// ApplySome implements workload.Path.
func (c *clockwork) ApplySome(_ context.Context, changed, _ []hostpath.Endpoint) (hostpath.Report, error) {
	return c.call("some", changed)
}

// Subscribe implements workload.Path.
func (c *clockwork) Subscribe(context.Context) (<-chan hostpath.Event, error) { return c.events, nil }

// Indexes implements workload.Path.
func (c *clockwork) Indexes(names ...string) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]int{}
	for _, name := range names {
		found[name] = c.links[name]
	}
	return found
}

// Close implements workload.Path.
func (c *clockwork) Close() {}

// noRoutes is a host that reaches everything through eth0.
type noRoutes struct{}

func (noRoutes) To(netip.Addr, netip.Addr) ([]string, error) { return []string{"eth0"}, nil }
func (noRoutes) Close()                                      {}

// did returns the calls so far, and forgets them.
func (c *clockwork) did() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// with changes what the fake kernel does.
func (c *clockwork) with(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// newClockwork runs a loop that has seen a snapshot, in a synctest bubble.
func newClockwork(t *testing.T) *clockwork { return startClockwork(t, func(*clockwork) {}) }

// named returns the reporter of a host whose name is not taken.
func named(host string, h *health.Monitor, log *slog.Logger) *status.Reporter {
	r := status.New(status.Config{Node: host, Logger: log, Health: h, Problems: problems.New(log)}, nil)
	r.Naming.Set("")
	return r
}

// asked is a source that records what it is asked.
type asked struct {
	plainSource
	held   func() string
	expect func(revision int64)
}

func (a asked) Held() string {
	if a.held == nil {
		return ""
	}
	return a.held()
}

func (a asked) Expect(revision int64) {
	if a.expect != nil {
		a.expect(revision)
	}
}

// startClockwork is newClockwork with a function that prepares it before it starts.
func startClockwork(t *testing.T, prepare func(*clockwork)) *clockwork {
	c := &clockwork{start: time.Now(), events: make(chan hostpath.Event), kernelTable: doubles.NewTable()}
	params := params.Resolve().Params
	env := testEnv(t)
	c.loop = newLoop(Config{Node: "h"}, env, params, testParts(env, named("h", env.Health, env.Logger)))
	c.system = system{kernel: c, tracker: c, files: pluginFiles{t.TempDir(), "h"}}
	c.params.RefreshInterval, c.params.FirewallInterval = 10*time.Second, time.Hour // an audit of the firewall would be a turn like any other
	c.first = []model.Entry{
		put(model.GlobalConfigKey{Name: "RouteRefreshInterval"}, model.Text("10"), 1), put(model.GlobalConfigKey{Name: "NftablesRefreshInterval"}, model.Text("3600"), 1),
		put(model.ReadyKey{}, model.Ready(true), 1), put(testKey("a"), testSpec("cali1", "10.0.0.1"), 1),
	}
	prepare(c)
	ctx, cancel := context.WithCancel(t.Context())
	c.ctx, c.cancel = ctx, cancel
	ended := make(chan error, 1)
	go func() { ended <- c.runToEnd(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, c.end) {
			t.Errorf("run: %v", err)
		}
	})
	c.updates <- model.Update{Revision: 1, Resync: true, Entries: c.first}
	synctest.Wait()
	return c
}

func (c *clockwork) expect(t *testing.T, name string, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, c.did()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		time.Sleep(21 * time.Second)
		c.expect(t, "nothing but the audit", "whole 0s", "whole 10s", "whole 20s")
		c.with(func() { c.fail = errors.New("broken") })
		time.Sleep(10500 * time.Millisecond)
		c.expect(t, "the kernel can't be read", "whole 30s", "whole 31s")
		c.with(func() { c.fail = nil })
		time.Sleep(10 * time.Second)
		c.did()
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{put(model.GlobalConfigKey{Name: "RouteRefreshInterval"}, model.Text("60"), 2)}}
		time.Sleep(2 * time.Minute)
		c.expect(t, "another interval", "whole 1m41.5s", "whole 2m41.5s")
		if got := c.health.Unready(); got != "" {
			t.Errorf("between audits: %s", got)
		}
	})
}

func TestReadyForAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		for _, host := range []string{"", "h"} {
			if err := (gatekeeper{loop: c.loop}).Ready(host); err != nil {
				t.Errorf("host %q: %v", host, err)
			}
		}
		var rejected *gate.RejectedError
		if err := (gatekeeper{loop: c.loop}).Ready("other"); !errors.As(err, &rejected) || rejected.Retry || !strings.HasPrefix(rejected.Reason, "this is the agent of host h, not of other: ") {
			t.Errorf("another host: %v", err)
		}
		// What its name is it says also where it isn't ready.
		for _, doubt := range []string{"", status.NotNamed, "another host that is called h lives"} {
			want := gate.NameOwn
			c.loop.health.SetUnready("a reason")
			if c.loop.report.Naming.Set(doubt); doubt != "" {
				want = gate.NameInDoubt
				c.loop.health.SetUnready("") // it hasn't heard yet
			}
			if err := (gatekeeper{loop: c.loop}).Ready("h"); !errors.As(err, &rejected) || !rejected.Retry || rejected.Name != want || rejected.Undecided != (doubt == status.NotNamed) {
				t.Errorf("doubt %q: %+v", doubt, rejected)
			}
		}
	})
}

// TestHeldAtTheGate: while pods are being re-entered in a replaced etcd, pods at the gate, which have an address already, are rejected for
// good.
func TestHeldAtTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		var why atomic.Pointer[string]
		why.Store(new(string))
		c.source = asked{held: func() string { return *why.Load() }}
		wait := func() error {
			return (gatekeeper{loop: c.loop}).Wait(c.ctx, gate.Request{Endpoint: model.WorkloadEndpointKey{Host: "h", Orchestrator: "cni", Workload: "w", Endpoint: "eth0"}, Revision: 9})
		}
		answers := make(chan error, 1)
		go func() { answers <- wait() }()
		synctest.Wait()
		reason := "etcd is another one"
		why.Store(&reason)
		for what, err := range map[string]error{"waits": <-answers, "comes": wait()} {
			if rejected, ok := errors.AsType[*gate.RejectedError](err); !ok || rejected.Retry || rejected.Reason != reason {
				t.Errorf("one that %s: %v", what, err)
			}
		}
	})
}

func TestDriftPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		time.Sleep(time.Second)
		c.did()
		for range 5 { // another program that doesn't give up
			c.events <- hostpath.Event{Interfaces: []string{"cali1", "cali-unknown"}}
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(time.Second)
		c.expect(t, "events", "some 1s", "some 1.02s", "some 1.04s")
		c.events <- hostpath.Event{Interfaces: []string{"cali-unknown"}}
		c.expect(t, "event of an interface that nobody wants")
		c.events <- hostpath.Event{All: true}
		c.expect(t, "event of everything", "whole 2.025s")
		for range 5 {
			c.events <- hostpath.Event{Forwarding: true}
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(time.Second)
		c.expect(t, "the host's forwarding is switched off again and again", "some 2.025s", "some 2.045s", "some 2.065s")
		close(c.events)
		time.Sleep(9 * time.Second)
		c.expect(t, "no events any more", "whole 10s")
	})
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		c.did()
		c.with(func() { c.refuse = errors.New("no") })
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{put(testKey("b"), testSpec("cali2", "10.0.0.2"), 2)}}
		time.Sleep(9 * time.Second)
		c.expect(t, "an endpoint that the kernel refuses", "some 0s", "some 1s", "some 3s", "some 7s")
		c.with(func() { c.refuse = &link.DownError{Interface: "cali2", Why: "is not there"} })
		time.Sleep(30 * time.Second)
		c.expect(t, "an endpoint without interface", "whole 10s", "whole 20s", "whole 30s")
		c.with(func() { c.refuse, c.fail = nil, errors.New("broken") })
		time.Sleep(12 * time.Second)
		c.expect(t, "a kernel that can't be read",
			"whole 40s", "whole 41s", "whole 43s", "whole 47s", "whole 50s")
	})
}

func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		c.with(func() { c.hold = time.Minute })
		time.Sleep(39 * time.Second)
		if got := reply(c.health, "/liveness"); got != "" {
			t.Errorf("after 29 s in one turn: %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := reply(c.health, "/liveness"); got != "the main loop has been stuck for 31s" {
			t.Errorf("after 31 s in one turn: %q", got)
		}
		c.with(func() { c.hold = 0 })
		time.Sleep(40 * time.Second)
		if got := reply(c.health, "/liveness"); got != "" {
			t.Errorf("once it went on: %s", got)
		}
	})
}

// TestFlushBeforeAnswer gives an address to another endpoint while connections with its former holder are being deleted.
func TestFlushBeforeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		c.tracked = 3 * time.Second
		b := testKey("b")
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{gone(testKey("a")), put(b, testSpec("cali2", "10.0.0.1"), 2)}}
		if err := (gatekeeper{loop: c.loop}).Wait(c.ctx, gate.Request{Endpoint: b, Revision: 2}); err != nil {
			t.Errorf("gate: %v", err)
		}
		if took := time.Since(c.start); took != 3*time.Second {
			t.Errorf("answered after %v", took)
		}
	})
}

// TestHostEndpointStatus: a host endpoint on a missing interface is down.
func TestHostEndpointStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := []hostnet.Interface{{Name: "eth0"}}
		key := model.HostEndpointKey{Host: "h", Endpoint: "1"}
		c := startClockwork(t, func(c *clockwork) {
			c.there = there
			c.first = append(c.first, put(key, model.HostEndpoint{Name: "eth1"}, 1), put(model.HostEndpointKey{Host: "h", Endpoint: "2"}, model.HostEndpoint{Name: "*"}, 1))
		})
		for _, step := range []struct {
			interfaces []hostnet.Interface
			want       model.EndpointStatus
		}{
			{there, model.EndpointDown},
			{[]hostnet.Interface{{Name: "eth0"}, {Name: "eth1"}}, model.EndpointUp},
			{there, model.EndpointDown},
		} {
			c.with(func() { c.there = step.interfaces })
			c.events <- hostpath.Event{Host: true}
			time.Sleep(time.Second)
			one, wildcard := c.report.Noted(key.Path()), c.report.Noted("/calico/v1/host/h/endpoint/2")
			if one != step.want || wildcard != model.EndpointUp {
				t.Errorf("with %v: %s and %s, want %s and %s", step.interfaces, one, wildcard, step.want, model.EndpointUp)
			}
		}
	})
}

// isNotYet reports whether err is the gate's answer after a wait in vain, for this reason.
func isNotYet(err error, reason string) bool {
	rejected, ok := errors.AsType[*gate.RejectedError](err)
	return ok && rejected.Retry && strings.Contains(rejected.Reason, reason)
}

// TestGateLeave: callers give up.
func TestGateLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		err := gatekeeper{loop: c.loop}.Wait(ctx, gate.Request{Endpoint: testKey("a"), Revision: 2})
		if !isNotYet(err, "etcd's revision 2 has not come yet, the latest is 1") {
			t.Errorf("Wait: %v", err)
		}
		synctest.Wait()
		c.updates <- model.Update{Revision: 3, Entries: nil}
		synctest.Wait()
		if n := len(c.gate.waiting); n != 0 {
			t.Errorf("%d still wait", n)
		}
	})
}

// TestGateRestored restores etcd from a backup: a new write has a revision that the agent has already seen, in etcd's former history.
func TestGateRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away error
		c := startClockwork(t, func(c *clockwork) {
			c.health.Interrupted = func() (time.Time, error) { return c.start, away }
		})
		c.updates <- model.Update{Revision: 9}
		synctest.Wait()
		b := testKey("b")
		ask := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(c.ctx, within)
			defer cancel()
			return gatekeeper{loop: c.loop}.Wait(ctx, gate.Request{Endpoint: b, Revision: 2})
		}
		away = errors.New("etcd is away")
		if err := ask(time.Second); !isNotYet(err, "etcd is away: endpoint "+b.Path()+" isn't known") {
			t.Errorf("while etcd is away: %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- ask(time.Minute) }()
		synctest.Wait()
		away = nil
		c.updates <- model.Update{Revision: 2, Resync: true, Entries: append(c.first, put(b, testSpec("cali2", "10.0.0.2"), 2))}
		if err := <-done; err != nil {
			t.Errorf("etcd is back: %v", err)
		}
	})
}

// TestGateBack restores etcd as it was: a caller that waits for a deleted endpoint is answered soon, although nothing else happens.
func TestGateBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		c := startClockwork(t, func(c *clockwork) {
			c.health.Interrupted = func() (time.Time, error) {
				if back.Load() {
					return time.Time{}, nil
				}
				return c.start, errors.New("etcd is away")
			}
		})
		done := make(chan error, 1)
		go func() {
			done <- gatekeeper{loop: c.loop}.Wait(c.ctx, gate.Request{Endpoint: testKey("b"), Revision: 1})
		}()
		synctest.Wait()
		back.Store(true)
		time.Sleep(lateAfter)
		synctest.Wait()
		select {
		case err := <-done:
			if rejected, ok := errors.AsType[*gate.RejectedError](err); !ok || rejected.Retry {
				t.Errorf("%v", err)
			}
		default:
			t.Error("a waiting caller gets no answer")
		}
	})
}

// TestGateLate waits at the gate for a revision that etcd has and the watch doesn't deliver: the watch is told again and again, but not for
// callers who wait no longer than usual.
func TestGateLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var expected []int64
		c := startClockwork(t, func(c *clockwork) { c.source = asked{expect: func(r int64) { expected = append(expected, r) }} })
		ask := func(revision int64) <-chan error {
			done := make(chan error, 1)
			go func() {
				done <- gatekeeper{loop: c.loop}.Wait(c.ctx, gate.Request{Endpoint: testKey("a"), Revision: revision})
			}()
			return done
		}
		tell := func(revision int64) {
			c.updates <- model.Update{Revision: revision}
			synctest.Wait()
		}
		soon := ask(2)
		time.Sleep(lateAfter - time.Millisecond)
		tell(2)
		late := ask(3)
		time.Sleep(2*lateAfter + time.Millisecond)
		tell(3)
		for _, done := range []<-chan error{soon, late} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		time.Sleep(2 * lateAfter)
		if d := cmp.Diff([]int64{3, 3}, expected); d != "" {
			t.Error(d)
		}
	})
}

// TestFrozen removes Ready: the desired state stays as it was.
func TestFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		c.did()
		c.updates <- model.Update{Revision: 2, Resync: true}
		c.expect(t, "etcd is empty")
		if got := c.health.Unready(); got != "/calico/v1/Ready is not true in etcd" {
			t.Errorf("unready: %q", got)
		}
		c.events <- hostpath.Event{Interfaces: []string{"cali1"}}
		c.expect(t, "drift is repaired all the same", "some 0s")
		c.updates <- model.Update{Revision: 3, Entries: []model.Entry{put(model.GlobalConfigKey{Name: "InterfacePrefix"}, model.Text("tap"), 3)}}
		c.expect(t, "settings are not taken")
		c.updates <- model.Update{Revision: 4, Entries: []model.Entry{put(model.ReadyKey{}, model.Ready(true), 4)}}
		synctest.Wait()
		if diff := cmp.Diff([]string{"tap"}, c.params.InterfacePrefixes); diff != "" {
			t.Error(diff)
		}
		if n := len(c.workload.Targets()); n != 0 {
			t.Errorf("%d endpoints are left", n)
		}
	})
}

// reply returns why a page of the agent's health fails, "" = it doesn't.
func reply(h *health.Monitor, page string) string {
	w := httptest.NewRecorder()
	h.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", page, nil))
	return strings.TrimPrefix(strings.TrimSpace(w.Body.String()), "ok")
}
