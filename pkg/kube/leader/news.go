// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/calico-go/calico/pkg/retry"
)

// newsHandler drops records that repeat the last one: while the API is away, client-go logs every two seconds.
type newsHandler struct {
	slog.Handler

	mu   sync.Mutex
	last retry.News
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
	news := h.last.Is(errors.New(text))
	h.mu.Unlock()
	if !news {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
