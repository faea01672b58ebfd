// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
)

// recallAfter is how long an agent that starts waits for etcd before BGP says what it said last. A start that finds
// etcd in order takes less; neighbours keep the host's routes for its restart time.
const recallAfter = 2 * time.Second

// recall has BGP say what it said last where nothing may be decided yet, as etcd can't be read or isn't ready: neighbours
// would forget the host's routes. What the kernel holds stays. What etcd says comes in its place, without a new session.
func (r *Router) recall() {
	if r.acts || r.isNamesake() {
		return // who has the name says what there is to be said
	}
	waits := cmp.Or(r.inbox.Waits(), r.naming.Waits(), "the settings in etcd have not been read yet")
	d, err := r.spokenBefore()
	if err != nil {
		r.beSilent(waits, err)
		return
	}
	r.recalled = true
	r.log.Warn("BGP says what it said before the agent was started anew", "waiting", waits, "neighbours", len(d.Neighbours), "advertisements", len(d.Advertisements))
	r.talker.say(d, r.params.RefreshInterval)
}

// isNamesake says whether the name is known to be another host's.
func (r *Router) isNamesake() bool {
	reason := r.naming.Waits()
	return reason != "" && !status.Undecided(reason)
}

// takeBack has BGP silent again where what was recalled turns out to be another host's to say.
func (r *Router) takeBack() {
	if r.acts || !r.recalled || !r.isNamesake() {
		return
	}
	r.recalled = false
	r.log.Warn("BGP is silent: what it said before the agent was started anew is another host's to say", "reason", r.naming.Waits())
	r.talker.say(bgp.Desired{}, r.params.RefreshInterval)
}

func (r *Router) spokenBefore() (bgp.Desired, error) {
	id, err := r.network.readRouterID()
	if err != nil {
		return bgp.Desired{}, err
	}
	return r.network.readSpoken(id)
}

// beSilent says that BGP is silent, where a former run of the agent had routes by it. The talker takes that back when it speaks.
func (r *Router) beSilent(waits string, reason error) {
	if former, err := r.network.routes(); err == nil && len(former) == 0 {
		return
	}
	r.log.Error("BGP is silent: neighbours forget this host's routes when the restart time is over", "time", r.params.RestartTime, "waiting", waits, "reason", reason)
	r.health.SetDegraded("BGP", fmt.Sprintf("BGP is silent, as what it said last can't be used (%v): neighbours forget this host's routes when BGPRestartTimeSecs are over", reason))
}

const (
	// memoryPause gathers what changes at once.
	memoryPause = time.Second
	// memoryRetry is when a write that failed is tried again.
	memoryRetry = 10 * time.Second
)

// memory keeps on disk what BGP is told, in a goroutine of its own: a disk may be slow.
type memory struct {
	log   *slog.Logger
	write func(bgp.Desired) error
	wake  mailbox.Signal

	mu     sync.Mutex
	latest *bgp.Desired // nil = it is on disk
	last   *bgp.Desired // nil = nothing was said yet
}

func newMemory(log *slog.Logger, write func(bgp.Desired) error) *memory {
	return &memory{log: log, write: write, wake: mailbox.NewSignal()}
}

// note leaves what is to be kept. Its maps are not changed any more.
func (m *memory) note(d bgp.Desired) {
	m.mu.Lock()
	m.latest, m.last = &d, &d
	m.mu.Unlock()
	m.wake.Send()
}

// again has it written where it is gone from the disk.
func (m *memory) again(isThere bool) {
	if isThere {
		return
	}
	m.mu.Lock()
	m.latest = m.last
	m.mu.Unlock()
	m.wake.Send()
}

// run writes until the context ends, and the last once more then.
func (m *memory) run(ctx context.Context) {
	var failed error
	for ctx.Err() == nil {
		pause := memoryRetry
		if failed == nil {
			pause = memoryPause
			select {
			case <-ctx.Done():
			case <-m.wake:
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		err := m.keep()
		switch {
		case err != nil && failed == nil:
			m.log.Warn("what BGP says is not on disk: an agent that starts while etcd can't be read would say what was said before, or where nothing was be silent, and neighbours would forget this host's routes", "err", err)
		case err == nil && failed != nil:
			m.log.Info("what BGP says is on disk")
		}
		failed = err
	}
}

func (m *memory) keep() error {
	m.mu.Lock()
	d := m.latest
	m.latest = nil
	m.mu.Unlock()
	if d == nil {
		return nil
	}
	err := m.write(*d)
	if err != nil {
		m.mu.Lock()
		m.latest = cmp.Or(m.latest, d)
		m.mu.Unlock()
	}
	return err
}
