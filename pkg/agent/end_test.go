// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/agent/etcdguard"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/workload"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
)

// TestStopWhileFlushing stops the loop while connections are being deleted for
// it: it ends when they are, and whoever deletes them does not wait for it. A
// bubble in which both wait fails by itself.
func TestStopWhileFlushing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		c.with(func() { c.tracked = time.Minute })
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{gone(testKey("a"))}}
		time.Sleep(time.Second)
		synctest.Wait()
		began := time.Now()
		c.cancel()
		<-c.stopped
		if took := time.Since(began); took != 0 {
			t.Errorf("the loop ended after %v", took)
		}
		c.beside.Wait()
		if took := time.Since(began); took > time.Minute || took < 59*time.Second {
			t.Errorf("connections were deleted after %v", took)
		}
	})
}

// TestEndsByItself has the kernel not be opened again: the loop ends, and so does what runs beside it.
func TestEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) {
			c.system.open = func([]string) (workload.Path, error) { return c, c.end }
		})
		c.end = errors.New("no socket")
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{put(model.GlobalConfigKey{Name: "InterfacePrefix"}, model.Text("tap"), 2)}}
		<-c.stopped
		c.beside.Wait()
	})
}

// TestStopWhileTelling stops an agent whose loop is busy while etcd has something to
// tell it: that is a clean end.
func TestStopWhileTelling(t *testing.T) {
	h := newHost(t)
	cfg, health, log := h.config(), health.New(), slog.New(slog.DiscardHandler)
	l := newLoop(cfg, params.Resolve().Params, health, problems.New(log), named(h.name, health, log))
	l.updates = make(chan model.Update) // the loop takes none but the first
	r, _, _ := attach(cfg, h.store, l, nil)
	defer r.CloseGracefully(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	f := newFeed(l, etcdguard.New(log, h.store), r)
	go func() {
		ended <- h.store.Watch(ctx, watched(), func(u model.Update) error { return f.Update(ctx, u) })
	}()
	await(t, "what etcd holds", l.updates)
	h.put(model.ReadyKey{}, model.Ready(true))
	go func() { _ = r.Run(ctx) }()
	h.until("the router is told, and so the loop is next", func() bool {
		return !strings.Contains(r.State(t.Context()).Waiting, "etcd has not been read")
	})
	cancel()
	if err := await(t, "the end of the watch", ended); err != nil {
		t.Errorf("watch: %v", err)
	}
}

// TestStatusLeaseLost revokes the lease of the host's status: the agent takes
// another, and writes the status again.
func TestStatusLeaseLost(t *testing.T) {
	for name, felix := range map[string]map[string]string{
		"found by the keepalive": {"reportingttlsecs": "5", "reportingintervalsecs": "3600"},
		"found by a report":      {"reportingttlsecs": "5", "reportingintervalsecs": "1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.put(model.ReadyKey{}, model.Ready(true))
			h.felix = felix
			h.start()
			h.ready()
			key := model.StatusKey{Host: h.name}
			var first int64
			another := func() bool { // a lease so short may end by itself
				lease := h.leaseOf(key)
				if lease == 0 || lease == first {
					return false
				}
				first = lease
				return true
			}
			h.until("status under a lease", another)
			if err := h.store.Revoke(context.Background(), first); err != nil {
				t.Fatal(err)
			}
			h.until("status under another lease", another)
			h.ready()
		})
	}
}

// TestStatusOutlivesAgent: an agent that is stopped leaves the host's status to
// its lease, which ends by itself, and the next agent takes it over.
func TestStatusOutlivesAgent(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.felix = map[string]string{"reportingttlsecs": "300"} // longer than anything here takes
	key := model.StatusKey{Host: h.name}
	stop := h.start()
	h.until("status", func() bool { return h.get(key) != nil })
	first, written := h.leaseOf(key), h.revision(key)
	stop()
	if h.get(key) == nil || h.leaseOf(key) != first {
		t.Fatal("the status did not stay under its lease")
	}
	h.felix = map[string]string{"reportingttlsecs": "5"}
	stop = h.start()
	h.untilChanged("status under another lease", key, written, func(e *clientv3.Event) bool {
		if e.Type == clientv3.EventTypeDelete {
			t.Error("the status was gone for a while")
		}
		return e.Kv.Lease != first
	})
	last := model.LastStatusKey{Host: h.name}
	h.until("the last status, which is written after it", func() bool { return h.get(last) != nil })
	stop()
	h.until("status is gone", func() bool { return h.get(key) == nil })
	if h.get(last) == nil {
		t.Error("the last status is gone as well")
	}
}

// untilChanged looks at each change of a key after a revision, in order, until one is what is waited for.
func (h *host) untilChanged(what string, key model.Key, after int64, is func(*clientv3.Event) bool) {
	h.Helper()
	h.client(func(ctx context.Context, c *clientv3.Client) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for r := range c.Watch(ctx, key.Path(), clientv3.WithRev(after+1)) {
			if slices.ContainsFunc(r.Events, is) {
				return nil
			}
		}
		return fmt.Errorf("waited for %s: the watch of %s has ended", what, key.Path())
	})
}

// TestStatusTurnedOff: a host that doesn't report is not one that is dead, which
// would be the last status without the live one.
func TestStatusTurnedOff(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	live, last := model.StatusKey{Host: h.name}, model.LastStatusKey{Host: h.name}
	stop := h.start()
	h.until("status", func() bool { return h.get(live) != nil && h.get(last) != nil })
	together := h.deletion(live, last)
	setting := model.HostConfigKey{Host: h.name, Name: "ReportingIntervalSecs"}
	h.put(setting, model.Text("0"))
	h.until("no status", func() bool { return h.get(live) == nil && h.get(last) == nil })
	if n := await(t, "their deletion", together); n != 2 {
		t.Errorf("%d of the two were deleted at once", n)
	}
	h.put(setting, model.Text("30"))
	h.until("status", func() bool { return h.get(live) != nil && h.get(last) != nil })
	stop()
	// What an agent that reported has left is cleared by one that doesn't.
	h.felix = map[string]string{"reportingintervalsecs": "0"}
	h.start()
	h.until("no status", func() bool { return h.get(live) == nil && h.get(last) == nil })
}

// deletion tells how many of the keys the first transaction deletes that deletes any.
func (h *host) deletion(keys ...model.Key) <-chan int {
	h.Helper()
	counts, watching := make(chan int, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	var prefixes []string
	for _, key := range keys {
		prefixes = append(prefixes, key.Path())
	}
	ended := make(chan error, 1)
	go func() {
		ended <- h.store.Watch(ctx, prefixes, func(u model.Update) error {
			if u.Resync {
				close(watching)
				return nil
			}
			n := 0
			for _, e := range u.Entries {
				if !e.Exists() {
					n++
				}
			}
			if n > 0 {
				counts <- n
				cancel()
			}
			return nil
		})
	}()
	h.Cleanup(func() {
		cancel()
		<-ended
	})
	await(h, "what etcd holds", watching)
	return counts
}

// TestHangup: SIGHUP ends no agent, however often it comes, and SIGTERM still does.
func TestHangup(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	var log bytes.Buffer
	agent := h.agent()
	agent.Stderr = &log
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.kill(agent) })
	h.ready()
	for range 3 {
		if err := agent.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	p := h.addPod(1) // it works on
	h.until("status up", func() bool { return h.get(p.statusKey()) == model.EndpointUp })
	if err := h.terminate(agent); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	if !strings.Contains(log.String(), "SIGHUP does nothing: settings in etcd apply as they change") {
		t.Errorf("the log says nothing of it:\n%s", &log)
	}
}
