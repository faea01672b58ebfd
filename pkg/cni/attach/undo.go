// SPDX-License-Identifier: Apache-2.0

// Package attach wires a container to this host: the veth, its addresses and
// routes, and the wait until the agent has programmed what belongs to it.
package attach

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
)

// undoTimeout bounds all undoing of one call.
const undoTimeout = 10 * time.Second

// Undo is a stack of what takes back each thing that a call has done.
type Undo struct {
	mu    sync.Mutex
	steps []undoStep
}

type undoStep struct {
	name string
	undo func(context.Context) error
}

// Push adds a step; it runs before all that were pushed earlier.
func (u *Undo) Push(name string, undo func(context.Context) error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = append(u.steps, undoStep{name, undo})
}

// Run takes everything back, last first. It goes on after an error: DEL and
// GC get what remains.
func (u *Undo) Run(log *slog.Logger) {
	u.mu.Lock()
	defer u.mu.Unlock()
	// The call's own context may have ended: that may be why we are here.
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	for i := len(u.steps) - 1; i >= 0; i-- {
		s := u.steps[i]
		killpoint.Step("before undo")
		if err := s.undo(ctx); err != nil {
			log.Error("undo failed; DEL will clean up", "what", s.name, "error", err)
			continue
		}
		log.Debug("undone", "what", s.name)
	}
	u.steps = nil
}

// Future is work under way in another goroutine.
type Future struct {
	done chan struct{}
	err  error
}

// Async starts work. A panic in it is its error: it would otherwise end the
// process without undo, and without an error object.
func Async(log *slog.Logger, work func() error) *Future {
	f := &Future{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer func() {
			if r := recover(); r != nil {
				log.Error("panic", "value", r, "stack", string(debug.Stack()))
				f.err = protocol.Bug(r)
			}
		}()
		f.err = work()
	}()
	return f
}

// Wait returns the work's error when it has ended.
func (f *Future) Wait() error {
	<-f.done
	return f.err
}
