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
	// disconnectedAfter is how long no change in etcd may arrive before the daemon doesn't serve. etcd elects a leader,
	// and the client leaves a member that hangs, in less.
	disconnectedAfter = 20 * time.Second
)

const unread = " has not been read yet"

// Monitor knows whether a daemon lives and whether it serves: why its main loop doesn't, and why its other parts don't.
type Monitor struct {
	last atomic.Pointer[time.Time] // the main loop's last turn

	starting string // that it is

	mu       sync.Mutex
	main     string            // why the main loop doesn't serve
	parts    map[string]string // why others don't, by name
	etcd     map[string]string // why others don't that could if etcd let them, by name
	degraded map[string]string // what is wrong without keeping the daemon from its work, by name
	remarks  map[string]string // what else the readiness page says, by name

	// OfHost: the readiness page speaks of the host alone, and what etcd is to blame for is a remark. It is set before the
	// monitor is in use.
	OfHost bool
	// Source is what the daemon must have read before it does anything: etcd, unless it is set before the monitor is in use.
	Source string
	// Away says why it can't be read, as last found, and names it; nil = nobody knows.
	// It is set before the monitor is in use.
	Away func() string
	// Interrupted says since when no change in etcd arrives, and why; no error = they arrive.
	// It is set like Away.
	Interrupted func() (since time.Time, err error)
}

// New returns the monitor of a daemon that starts now.
func New(daemon string) *Monitor {
	starting := daemon + " is starting"
	m := &Monitor{Source: "etcd", starting: starting, main: starting, parts: map[string]string{}, etcd: map[string]string{}, degraded: map[string]string{}, remarks: map[string]string{}}
	m.Turn()
	return m
}

// Reads has the daemon read etcd by a client. It is called before the monitor is in use.
func (m *Monitor) Reads(etcd interface {
	Away() string
	WatchTrouble() (since time.Time, err error)
}) {
	m.Away, m.Interrupted = etcd.Away, etcd.WatchTrouble
}

// Turn is called by the main loop, at each turn.
func (m *Monitor) Turn() {
	now := time.Now()
	m.last.Store(&now)
}

// stuck says since when the main loop has not turned; "" = it lives.
func (m *Monitor) stuck() string {
	if since := time.Since(*m.last.Load()); since > stuckAfter {
		return fmt.Sprintf("the main loop has been stuck for %v", since.Round(time.Second))
	}
	return ""
}

// SetUnready says why the main loop doesn't serve; "" = it does.
func (m *Monitor) SetUnready(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.main = reason
}

// Set says why a part of the daemon doesn't serve; "" = it does.
func (m *Monitor) Set(part, reason string) { m.set(m.parts, part, reason) }

// SetEtcd says why a part of the daemon doesn't serve because etcd doesn't let it; "" = it does.
func (m *Monitor) SetEtcd(part, reason string) { m.set(m.etcd, part, reason) }

// SetDegraded says what is wrong with a part of the daemon that doesn't keep the rest from its work; "" = nothing. The
// readiness page shows it.
func (m *Monitor) SetDegraded(part, reason string) { m.set(m.degraded, part, reason) }

// Remark says what the readiness page shows of a part of the daemon that is ready all the same; "" = nothing.
func (m *Monitor) Remark(part, text string) { m.set(m.remarks, part, text) }

func (m *Monitor) set(in map[string]string, part, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in[part] = reason
}

// Unread says why nothing is known of what etcd holds; "" = something is.
func (m *Monitor) Unread() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.main != m.starting && m.main != m.Source+unread {
		return ""
	}
	return m.Source + unread + m.why()
}

// why says what keeps the daemon from reading etcd; "" = it has been read.
func (m *Monitor) why() string {
	if m.main != m.starting && m.main != m.Source+unread || m.Away == nil {
		return ""
	}
	return ": " + m.Away()
}

// Disconnected says why no change in etcd arrives, where that has been so for at least this long; "" = they arrive.
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

// Unready says why the daemon can't serve now; "" = it can.
func (m *Monitor) Unready() string {
	own, etcd := m.reasons()
	return strings.Join(append(own, etcd...), "; ")
}

// reasons says why the daemon can't serve now, by itself and because of etcd.
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
	if reason := m.Disconnected(disconnectedAfter); reason != "" && m.why() == "" { // which says so too
		etcd = append(etcd, reason)
	}
	return own, etcd
}

// readiness is what the readiness page says: why the daemon isn't ready, "" = it is, and what else there is.
func (m *Monitor) readiness() (unfit string, remarks []string) {
	reasons, etcd := m.reasons()
	if !m.OfHost {
		reasons, etcd = append(reasons, etcd...), nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(append(reasons, texts(m.degraded)...), "; "), append(etcd, texts(m.remarks)...)
}

// texts are those that say something, by the name of the part.
func texts(of map[string]string) (out []string) {
	for _, part := range slices.Sorted(maps.Keys(of)) {
		if of[part] != "" {
			out = append(out, of[part])
		}
	}
	return out
}

// Handler serves /liveness and /readiness, which Kubernetes' own programs call /healthz and /readyz: 200, or 503 and the
// reason; and what is wrong at /debug/invalid.
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

// WaitsFor says what the daemon must know of its source before it does anything; "" = nothing more. synced says whether a
// whole snapshot was read, ready whether it says that it is ready.
func WaitsFor(source string, synced, ready bool) string {
	switch {
	case !synced:
		return source + unread
	case !ready:
		return (model.ReadyKey{}).Path() + " is not true in etcd"
	}
	return ""
}
