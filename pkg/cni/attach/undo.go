// SPDX-License-Identifier: Apache-2.0

// Package attach wires a container to this host: it makes the veth, sets its addresses and routes, and waits until the
// agent has programmed the endpoint.
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

// Undo is a stack of steps, each taking back one thing that a call has done.
type Undo struct {
	mu    sync.Mutex
	steps []undoStep
}

type undoStep struct {
	name string
	undo func(context.Context) error
}

// Push adds a step, which runs before all steps pushed earlier.
func (u *Undo) Push(name string, undo func(context.Context) error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = append(u.steps, undoStep{name, undo})
}

// Run runs the steps, last first. It goes on after an error: a later DEL or GC removes what remains.
func (u *Undo) Run(log *slog.Logger) {
	u.mu.Lock()
	defer u.mu.Unlock()
	// Don't use the call's own context: that it ended may be the reason for the undo.
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

// Future is work running in another goroutine.
type Future struct {
	done chan struct{}
	err  error
}

// Async starts work. A panic in it becomes its error; otherwise it would end the process without undo and without an
// error object.
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

// Wait waits for the work to end and returns its error.
func (f *Future) Wait() error {
	<-f.done
	return f.err
}
