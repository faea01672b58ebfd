// SPDX-License-Identifier: Apache-2.0

// Package mailbox passes values between goroutines that work at their own pace: the sender never waits, and the
// receiver takes the latest value when it is ready.
package mailbox

import "sync"

// Signal wakes the one goroutine that receives from it. Signals sent before it wakes count as one.
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
func New[T any]() *Box[T] { return NewFor[T](NewSignal()) }

// NewFor returns an empty box whose receiver is woken by the given signal, which it may share with other boxes.
func NewFor[T any](signal Signal) *Box[T] { return &Box[T]{signal: signal} }

// Put replaces what is in the box and wakes the receiver.
func (b *Box[T]) Put(value T) {
	b.Update(func(T) T { return value })
}

// Update replaces the value in the box by change of it, or of the zero value if the box is empty, and wakes the receiver.
func (b *Box[T]) Update(change func(T) T) {
	b.mu.Lock()
	b.value, b.full = change(b.value), true
	b.mu.Unlock()
	b.signal.Send()
}

// Ready returns a channel that receives when there may be a value to take.
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

// A Value is a variable that many goroutines may read and watch for changes. The zero Value holds T's zero value, and so does a nil Value.
type Value[T comparable] struct {
	mu      sync.Mutex
	value   T
	told    []func()
	changed chan struct{} // closed when the value changes; nil = unwatched
}

// NewValue returns a Value that holds value.
func NewValue[T comparable](value T) *Value[T] { return &Value[T]{value: value} }

// Get returns the current value.
func (v *Value[T]) Get() T {
	value, _ := v.Watch()
	return value
}

// Watch returns the current value and a channel that is closed when it changes.
func (v *Value[T]) Watch() (value T, changed <-chan struct{}) {
	if v == nil {
		return value, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.value, v.changed
}

// Set stores a value and, if it differs from the current one, wakes the watchers.
func (v *Value[T]) Set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.value == value {
		return
	}
	v.value = value
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
	for _, told := range v.told {
		told()
	}
}

// Notify registers a function to call when the value changes. The function must not block.
func (v *Value[T]) Notify(changed func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told = append(v.told, changed)
}

// Subscribe returns a signal that is sent when the value changes.
func (v *Value[T]) Subscribe() Signal {
	s := NewSignal()
	v.Notify(s.Send)
	return s
}
