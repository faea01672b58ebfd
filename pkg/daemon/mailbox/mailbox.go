// SPDX-License-Identifier: Apache-2.0

// Package mailbox passes values between goroutines that work at their own pace: the sender never waits, and the
// receiver takes the latest value when it is ready.
package mailbox

import "sync"

// Signal wakes the one goroutine that receives from it. Signals sent before it wakes are one.
type Signal chan struct{}

// NewSignal returns a signal that has not been sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the receiver. It never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// A Box holds at most one value. Any goroutine may put one in; one goroutine takes it out.
type Box[T any] struct {
	signal Signal

	mu    sync.Mutex
	value T
	full  bool
}

// New returns an empty box.
func New[T any]() *Box[T] { return &Box[T]{signal: NewSignal()} }

// Put replaces what is in the box and wakes the receiver.
func (b *Box[T]) Put(value T) {
	b.Update(func(T) T { return value })
}

// Update replaces what is in the box, the zero value where it is empty, by what change makes of it, and wakes the
// receiver.
func (b *Box[T]) Update(change func(T) T) {
	b.mu.Lock()
	b.value, b.full = change(b.value), true
	b.mu.Unlock()
	b.signal.Send()
}

// Ready receives when there may be a value to take.
func (b *Box[T]) Ready() <-chan struct{} { return b.signal }

// Take empties the box. It reports whether there was a value.
func (b *Box[T]) Take() (value T, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var none T
	value, ok = b.value, b.full
	b.value, b.full = none, false
	return value, ok
}
