// SPDX-License-Identifier: Apache-2.0

// Package health knows whether the agent lives and whether it serves, and has the HTTP servers that tell.
package health

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calico-go/calico/pkg/agent/problems"
	"github.com/calico-go/calico/pkg/model"
)

// stuckAfter is how long one turn of the loop may take. A turn is
// milliseconds, and one comes every 10 s at least.
const stuckAfter = 30 * time.Second

// Monitor knows whether the agent lives and whether it serves.
type Monitor struct {
	last atomic.Pointer[time.Time] // the loop's last turn

	mu     sync.Mutex
	reason string // why it doesn't serve
	etcd   string // why etcd doesn't, as last heard
	routes string // why the way to other hosts isn't programmed
	other  string // why this host can't be who it says it is
	bgp    string // why other hosts hear of no routes to this one's pods
	// Away says why etcd can't be read, as last found, and names it; nil = nobody knows.
	// It is set before the monitor is in use.
	Away func() string
	// Interrupted says since when changes in etcd are not heard of, and why; no error = they are.
	// It is set like Away.
	Interrupted func() (since time.Time, err error)
}

// deafAfter is how long changes in etcd may not be heard of before the agent doesn't serve: a leader is
// elected, and a member left that hangs, in less.
const deafAfter = 20 * time.Second

// starting is said until the loop knows better.
const starting = "the agent is starting"

// New is of an agent that starts, and turned just now.
func New() *Monitor {
	h := &Monitor{reason: starting}
	h.Turn()
	return h
}

// Turn is called by the loop, at each turn.
func (h *Monitor) Turn() {
	now := time.Now()
	h.last.Store(&now)
}

// stuck says since when the loop has not turned; "" = it lives.
func (h *Monitor) stuck() string {
	if since := time.Since(*h.last.Load()); since > stuckAfter {
		return fmt.Sprintf("the main loop has been stuck for %v", since.Round(time.Second))
	}
	return ""
}

// SetUnready says why the loop doesn't serve; "" = it does.
func (h *Monitor) SetUnready(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reason = reason
}

// SetEtcd notes how it stands with etcd; nil is well.
func (h *Monitor) SetEtcd(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.etcd = problems.Reason(err)
}

// SetIdentity says why the host can't be who it says it is; "" = it can.
func (h *Monitor) SetIdentity(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.other = reason
}

// SetRoutes notes why the way to other hosts isn't programmed; "" = it is.
func (h *Monitor) SetRoutes(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.routes = reason
}

// Unread says why nothing is known of what etcd holds; "" = something is.
func (h *Monitor) Unread() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reason != starting && h.reason != etcdUnread {
		return ""
	}
	return etcdUnread + h.why()
}

// why is what is to be said besides of an etcd that has not been read.
func (h *Monitor) why() string {
	if h.reason != starting && h.reason != etcdUnread || h.Away == nil {
		return ""
	}
	return ": " + h.Away()
}

// SetBGP notes why BGP doesn't run where pods need it; "" = it does.
func (h *Monitor) SetBGP(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bgp = reason
}

// unfit is unready, and what is no reason to start no pods here: those of one host need no BGP.
func (h *Monitor) unfit() string {
	reason := h.Unready()
	h.mu.Lock()
	defer h.mu.Unlock()
	if reason != "" && h.bgp != "" {
		return reason + "; " + h.bgp
	}
	return reason + h.bgp
}

// Deaf says why changes in etcd are not heard of, where that has been so for at least this long; "" = they are.
func (h *Monitor) Deaf(least time.Duration) string {
	if h.Interrupted == nil {
		return ""
	}
	since, err := h.Interrupted()
	if err == nil || time.Since(since) < least {
		return ""
	}
	return fmt.Sprintf("no change in etcd is heard of since %s: %v", since.UTC().Format(time.RFC3339), err)
}

// Unready says why the agent can't serve now; "" = it can.
func (h *Monitor) Unready() string {
	if s := h.stuck(); s != "" {
		return s
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	reasons := make([]string, 0, 4)
	if h.reason != "" {
		reasons = append(reasons, h.reason+h.why())
	}
	if h.other != "" && h.other != h.reason {
		reasons = append(reasons, h.other)
	}
	if h.routes != "" {
		reasons = append(reasons, h.routes)
	}
	if deaf := h.Deaf(deafAfter); deaf != "" && h.why() == "" { // which says so too
		reasons = append(reasons, deaf)
	}
	if h.etcd != "" {
		reasons = append(reasons, "reports to etcd fail: "+h.etcd)
	}
	return strings.Join(reasons, "; ")
}

// Handler serves /liveness and /readiness: 200, or 503 and the reason; and what
// is wrong at /debug/invalid.
func (h *Monitor) Handler(invalid http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /liveness", func(w http.ResponseWriter, _ *http.Request) { replyHealth(w, h.stuck()) })
	mux.HandleFunc("GET /readiness", func(w http.ResponseWriter, _ *http.Request) { replyHealth(w, h.unfit()) })
	mux.Handle("GET /debug/invalid", invalid)
	return mux
}

func replyHealth(w http.ResponseWriter, reason string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if reason == "" {
		reason = "ok"
	} else {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, reason) // a client that left needs no answer
}

// etcdUnread is said until a whole snapshot was folded.
const etcdUnread = "etcd has not been read yet"

// WaitsFor says what etcd must be known to hold before anything is done; "" = nothing more. synced says whether a whole
// snapshot of it was read, ready whether it says that it is.
func WaitsFor(synced, ready bool) string {
	switch {
	case !synced:
		return etcdUnread
	case !ready:
		return (model.ReadyKey{}).Path() + " is not true in etcd"
	}
	return ""
}
