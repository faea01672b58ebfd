// SPDX-License-Identifier: Apache-2.0

// Package doubles has what stands for the kernel in tests of those who program it: in memory, under a virtual clock, and failing when
// told to. Its own tests ask the same of each double and of the real one.
package doubles

import (
	"context"
	"sync"
)

// kernel is what each double has: fields of many goroutines, and others that change things, of which it tells by a T. One that waits
// to be taken stands for those that come meanwhile.
type kernel[T any] struct {
	mu    sync.Mutex
	drift int // changes of others
	out   chan T
}

// Do has the fields of the double for itself.
func (k *kernel[T]) Do(look func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	look()
}

// Tamper is a change that another program makes, of what is held.
func (k *kernel[T]) Tamper() {
	k.Do(func() {
		k.drift++
		select {
		case k.out <- *new(T):
		default: // one waits, or nobody has subscribed
		}
	})
}

// Subscribe tells of changes that others make. The channel is closed when the context ends.
func (k *kernel[T]) Subscribe(ctx context.Context) (<-chan T, error) {
	out := make(chan T, 1)
	k.Do(func() { k.out = out })
	context.AfterFunc(ctx, func() {
		k.Do(func() {
			if k.out == out {
				k.out = nil
			}
			close(out)
		})
	})
	return out, nil
}
