// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// undoTimeout bounds all undoing of one call.
const undoTimeout = 10 * time.Second

// undoStack holds what takes back each thing that a call has done.
type undoStack struct {
	mu    sync.Mutex
	steps []undoStep
}

type undoStep struct {
	name string
	undo func(context.Context) error
}

// push adds a step; it runs before all that were pushed earlier.
func (u *undoStack) push(name string, undo func(context.Context) error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = append(u.steps, undoStep{name, undo})
}

// run takes everything back, last first. It goes on after an error: DEL and
// GC get what remains.
func (u *undoStack) run(log *slog.Logger) {
	u.mu.Lock()
	defer u.mu.Unlock()
	// The call's own context may have ended: that may be why we are here.
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	for i := len(u.steps) - 1; i >= 0; i-- {
		s := u.steps[i]
		step("before undo")
		if err := s.undo(ctx); err != nil {
			log.Error("undo failed; DEL will clean up", "what", s.name, "error", err)
			continue
		}
		log.Debug("undone", "what", s.name)
	}
	u.steps = nil
}
