// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math/rand/v2"
	"testing"
)

// TestBag: few or many, it is a set.
func TestBag(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	all := make([]*endpoint, 3*fewMax)
	for i := range all {
		all[i] = &endpoint{}
	}
	var b bag
	want := map[*endpoint]bool{}
	for step := range 5000 {
		ep := all[r.IntN(len(all))]
		if r.IntN(len(all)) > step%len(all) {
			b.add(ep)
			want[ep] = true
		} else {
			b.remove(ep)
			delete(want, ep)
		}
		if b.len() != len(want) {
			t.Fatalf("step %d: %d endpoints, want %d", step, b.len(), len(want))
		}
		n := 0
		b.each(func(ep *endpoint) {
			if n++; !want[ep] {
				t.Fatalf("step %d: an endpoint that was removed", step)
			}
		})
		if n != len(want) {
			t.Fatalf("step %d: %d visited, want %d", step, n, len(want))
		}
	}
}
