// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"strconv"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// TestPrune: a process that doesn't lead queues what changes and drops what the leader has written, for as long as it stands by. Its queue
// doesn't grow by that, and what is left in it is taken.
func TestPrune(t *testing.T) {
	q := newQueue(func(k model.Key) string {
		owner, _, _ := strings.Cut(k.(model.PolicyKey).Policy, ".")
		return owner
	})
	key := func(owner, n int) model.Key {
		return model.PolicyKey{Tier: "default", Policy: strconv.Itoa(owner) + "." + strconv.Itoa(n)}
	}
	for n := range 10_000 {
		for owner := range 3 {
			q.add(item{}, key(owner, n%7), key(owner, 1000+n))
			if n%7 > 0 {
				q.drop(key(owner, n%7))
			}
			q.drop(key(owner, 1000+n))
		}
	}
	all := 0
	for _, list := range q.ready {
		all += len(list)
	}
	if all != q.named || all > 500 || len(q.next) > 3 {
		t.Errorf("%d keys are named, %d counted, %d owners", all, q.named, len(q.next))
	}
	if got := q.take(100, 5); len(got) != 3 || q.named != 0 {
		t.Errorf("%v are taken, and %d are named then", got, q.named)
	}
}
