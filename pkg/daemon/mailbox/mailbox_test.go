// SPDX-License-Identifier: Apache-2.0

package mailbox

import "testing"

func TestBox(t *testing.T) {
	b := New[int]()
	if v, ok := b.Take(); ok {
		t.Errorf("an empty box gives %d", v)
	}
	b.Put(1)
	b.Update(func(v int) int { return v + 1 })
	<-b.Ready()
	select {
	case <-b.Ready():
		t.Error("two changes woke the receiver twice")
	default:
	}
	if v, ok := b.Take(); v != 2 || !ok {
		t.Errorf("took %d, %t", v, ok)
	}
	b.Update(func(v int) int { return v + 1 })
	if v, ok := b.Take(); v != 1 || !ok {
		t.Errorf("after a take, an update began with %d", v-1)
	}
}

// TestValue: readers see the latest value, subscribers are signalled at each change, and waiters are woken.
func TestValue(t *testing.T) {
	v := NewValue("a")
	signal, calls := v.Subscribe(), 0
	v.Notify(func() { calls++ })
	got, changed := v.Watch()
	if got != "a" {
		t.Errorf("it holds %q", got)
	}
	v.Set("a")
	select {
	case <-changed:
		t.Error("the same value is a change")
	case <-signal:
		t.Error("the same value is told")
	default:
	}
	v.Set("b")
	<-changed
	<-signal
	if v.Get() != "b" || calls != 1 {
		t.Errorf("%q after %d calls", v.Get(), calls)
	}
	var none *Value[string]
	var zero Value[int]
	if zero.Set(1); none.Get() != "" || zero.Get() != 1 {
		t.Errorf("of none %q, of the zero value %d", none.Get(), zero.Get())
	}
}
