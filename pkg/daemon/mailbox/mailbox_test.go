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
