// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// TestStopWhileFlushing stops the loop while connections are being deleted for it. The loop ends when they are, and the goroutine that
// deletes them does not wait for the loop. If both waited, the bubble would fail by itself.
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

// TestEndsByItself makes reopening the kernel fail: the loop ends, and so does what runs beside it.
func TestEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		c.end = errors.New("no socket")
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{put(model.GlobalConfigKey{Name: "InterfacePrefix"}, model.Text("tap"), 2)}}
		<-c.stopped
		c.beside.Wait()
	})
}

// TestStatusLeaseLost revokes the lease of the host's status: the agent gets another, and writes the status again.
func TestStatusLeaseLost(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.felix = map[string]string{"reportingttlsecs": "5", "reportingintervalsecs": "1"}
	h.start()
	h.ready()
	key := model.StatusKey{Host: h.name}
	first := h.leaseOf(key)
	if err := h.store.Revoke(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	h.until("status under another lease", func() bool { lease := h.leaseOf(key); return lease != 0 && lease != first })
	h.ready()
}

// TestStatusOutlivesAgent: an agent that is stopped leaves the host's status to
// its lease, and the next agent takes it over.
func TestStatusOutlivesAgent(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	key := model.StatusKey{Host: h.name}
	stop := h.start()
	h.until("status", func() bool { return h.get(key) != nil })
	first := h.leaseOf(key)
	stop()
	if h.get(key) == nil || h.leaseOf(key) != first {
		t.Fatal("the status did not stay under its lease")
	}
	h.start()
	h.until("status under another lease", func() bool {
		lease := h.leaseOf(key)
		if lease == 0 {
			t.Error("the status was gone for a while")
		}
		return lease != first
	})
	h.until("the last status", func() bool { return h.get(model.LastStatusKey{Host: h.name}) != nil })
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
