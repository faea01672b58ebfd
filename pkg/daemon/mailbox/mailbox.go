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
func New[T any]() *Box[T] { return NewFor[T](NewSignal()) }

// NewFor returns an empty box of a receiver that has a signal for all that wakes it.
func NewFor[T any](signal Signal) *Box[T] { return &Box[T]{signal: signal} }

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

// A Value is what many goroutines read, and may be told of when it changes. The zero value holds T's; that of a nil Value is read as such.
type Value[T comparable] struct {
	mu      sync.Mutex
	value   T
	told    []func()
	changed chan struct{} // closed when it changes
}

// NewValue returns one that holds a value.
func NewValue[T comparable](value T) *Value[T] { return &Value[T]{value: value} }

// Get returns what it holds.
func (v *Value[T]) Get() T {
	value, _ := v.Watch()
	return value
}

// Watch is Get with a channel that is closed when it holds something else.
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

// Set has it hold a value, and tells who wants to know where that is another one.
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

// Notify has a function called when it changes. It must not wait.
func (v *Value[T]) Notify(changed func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told = append(v.told, changed)
}

// Subscribe returns a signal that is sent when it changes.
func (v *Value[T]) Subscribe() Signal {
	s := NewSignal()
	v.Notify(s.Send)
	return s
}
