// SPDX-License-Identifier: Apache-2.0

package doubles

import (
	"context"
	"sync"
)

// A signal waits until the one who has subscribed takes it; those that come meanwhile are the same one.
type signal[T any] struct {
	mu  sync.Mutex
	out chan T
}

// subscribe returns what is closed when the context ends.
func (s *signal[T]) subscribe(ctx context.Context) <-chan T {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(chan T, 1)
	s.out = out
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.out = nil
		close(out)
	})
	return out
}

func (s *signal[T]) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.out <- *new(T):
	default: // one waits, or nobody has subscribed
	}
}
