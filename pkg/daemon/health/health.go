// SPDX-License-Identifier: Apache-2.0

// Package health tracks whether a daemon is alive and ready, and serves the pages that say so.
package health

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

const (
	// stuckAfter is how long one turn of the main loop may take. A turn takes milliseconds, and there is one every 10 s
	// at least.
	stuckAfter = 30 * time.Second
	// disconnectedAfter is how long the changes from etcd may be interrupted before the daemon is unready. An election in etcd, and the
	// client's switch away from a member that hangs, take less.
	disconnectedAfter = 20 * time.Second
)

const unread = " has not been read yet"

// Monitor tracks whether a daemon is alive and whether it is ready: what is wrong with its main loop and with its other parts.
type Monitor struct {
	last atomic.Pointer[time.Time] // time of the main loop's last turn

	starting string // the reason while the daemon starts

	mu       sync.Mutex
	main     string            // why the main loop is unready
	parts    map[string]string // why other parts are unready, by name
	etcd     map[string]string // why other parts are unready through the fault of etcd, by name
	degraded map[string]string // what is wrong that makes only the readiness page fail, by part
	remarks  map[string]string // more text for the readiness page, by part

	// OfHost limits the readiness page to the host's own faults: those of etcd become remarks. Set it before using the monitor.
	OfHost bool
	// Source names what the daemon must have read before it does anything: etcd, unless set before using the monitor.
	Source string
	// Away says why Source can't be read, as last found, and names it; nil = unknown. Set it before using the monitor.
	Away func() string
	// Interrupted says since when no changes arrive from etcd, and why; no error = they arrive. Set it like Away.
	Interrupted func() (since time.Time, err error)
}

// New returns the monitor of a daemon that is starting now.
func New(daemon string) *Monitor {
	starting := daemon + " is starting"
	m := &Monitor{Source: "etcd", starting: starting, main: starting, parts: map[string]string{}, etcd: map[string]string{}, degraded: map[string]string{}, remarks: map[string]string{}}
	m.Turn()
	return m
}

// Reads sets Away and Interrupted to those of an etcd client. It must be called before the monitor is used.
func (m *Monitor) Reads(etcd interface {
	Away() string
	WatchTrouble() (since time.Time, err error)
}) {
	m.Away, m.Interrupted = etcd.Away, etcd.WatchTrouble
}

// Turn records a turn of the main loop, which must call it at each.
func (m *Monitor) Turn() {
	now := time.Now()
	m.last.Store(&now)
}

// stuck says for how long the main loop has not turned, if that is too long; "" = it is alive.
func (m *Monitor) stuck() string {
	if since := time.Since(*m.last.Load()); since > stuckAfter {
		return fmt.Sprintf("the main loop has been stuck for %v", since.Round(time.Second))
	}
	return ""
}

// SetUnready sets why the main loop is unready; "" = it is ready.
func (m *Monitor) SetUnready(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.main = reason
}

// Set sets why a part of the daemon is unready; "" = it is ready.
func (m *Monitor) Set(part, reason string) { m.set(m.parts, part, reason) }

// SetEtcd sets why a part of the daemon is unready through the fault of etcd; "" = it is ready.
func (m *Monitor) SetEtcd(part, reason string) { m.set(m.etcd, part, reason) }

// SetDegraded sets what is wrong with a part of the daemon that doesn't keep the rest from working; "" = nothing. The readiness page fails
// with it; Unready leaves it out.
func (m *Monitor) SetDegraded(part, reason string) { m.set(m.degraded, part, reason) }

// Remark sets what the readiness page adds about a part of the daemon without failing; "" = nothing.
func (m *Monitor) Remark(part, text string) { m.set(m.remarks, part, text) }

func (m *Monitor) set(in map[string]string, part, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in[part] = reason
}

// Unread says why the content of etcd is still unknown; "" = it has been read.
func (m *Monitor) Unread() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.main != m.starting && m.main != m.Source+unread {
		return ""
	}
	return m.Source + unread + m.why()
}

// why returns ": " and what keeps the daemon from reading etcd; "" = it has been read, or the reason is unknown.
func (m *Monitor) why() string {
	if m.main != m.starting && m.main != m.Source+unread || m.Away == nil {
		return ""
	}
	return ": " + m.Away()
}

// Disconnected says why no changes arrive from etcd, if that has lasted at least this long; "" = they arrive.
func (m *Monitor) Disconnected(least time.Duration) string {
	if m.Interrupted == nil {
		return ""
	}
	since, err := m.Interrupted()
	if err == nil || time.Since(since) < least {
		return ""
	}
	return fmt.Sprintf("no change in etcd is heard of since %s: %v", since.UTC().Format(time.RFC3339), err)
}

// Unready says why the daemon can't work now; "" = it can.
func (m *Monitor) Unready() string {
	own, etcd := m.reasons()
	return strings.Join(append(own, etcd...), "; ")
}

// reasons returns why the daemon can't work now: its own reasons, and those through the fault of etcd.
func (m *Monitor) reasons() (own, etcd []string) {
	if s := m.stuck(); s != "" {
		return []string{s}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.main != "" {
		own = append(own, m.main+m.why())
	}
	for _, reason := range texts(m.parts) {
		if reason != m.main {
			own = append(own, reason)
		}
	}
	etcd = texts(m.etcd)
	if reason := m.Disconnected(disconnectedAfter); reason != "" && m.why() == "" { // why already says so
		etcd = append(etcd, reason)
	}
	return own, etcd
}

// readiness returns why the readiness page fails, "" = it doesn't, and what the page adds.
func (m *Monitor) readiness() (unfit string, remarks []string) {
	reasons, etcd := m.reasons()
	if !m.OfHost {
		reasons, etcd = append(reasons, etcd...), nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(append(reasons, texts(m.degraded)...), "; "), append(etcd, texts(m.remarks)...)
}

// texts returns the non-empty values, sorted by key.
func texts(of map[string]string) (out []string) {
	for _, part := range slices.Sorted(maps.Keys(of)) {
		if of[part] != "" {
			out = append(out, of[part])
		}
	}
	return out
}

// Handler serves /liveness and /readiness, also under Kubernetes' usual names /healthz and /readyz: 200, or 503 with the reason. It serves
// invalid at /debug/invalid.
func (m *Monitor) Handler(invalid http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"GET /liveness", "GET /healthz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { reply(w, m.stuck()) })
	}
	for _, path := range []string{"GET /readiness", "GET /readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			reason, remarks := m.readiness()
			reply(w, reason, remarks...)
		})
	}
	mux.Handle("GET /debug/invalid", invalid)
	return mux
}

func reply(w http.ResponseWriter, reason string, remarks ...string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if reason == "" {
		reason = "ok"
	} else {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, strings.Join(append([]string{reason}, remarks...), "\n")) // a client that left needs no answer
}

// WaitsFor says what the daemon still has to learn before it does anything; "" = nothing. synced reports whether a whole snapshot of the
// source was read, ready whether the snapshot declares itself ready.
func WaitsFor(source string, synced, ready bool) string {
	switch {
	case !synced:
		return source + unread
	case !ready:
		return (model.ReadyKey{}).Path() + " is not true in etcd"
	}
	return ""
}
