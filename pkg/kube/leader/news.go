// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"log/slog"
	"sync"
)

// newsHandler leaves out what was said last: while the API is away, client-go says so every two seconds.
type newsHandler struct {
	slog.Handler

	mu   sync.Mutex
	last string
}

// Handle implements slog.Handler.
func (h *newsHandler) Handle(ctx context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			text += a.Value.String()
		}
		return true
	})
	h.mu.Lock()
	again := h.last == text
	h.last = text
	h.mu.Unlock()
	if again {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
