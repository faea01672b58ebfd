// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"slices"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
)

const (
	firstBackoff   = 250 * time.Millisecond
	longestBackoff = time.Minute
)

// item is a key that isn't known to be as desired.
type item struct {
	since   time.Time // when it was first queued
	busy    bool      // a worker has it
	again   bool      // it changed while busy
	waits   bool      // until its backoff ends
	alone   bool      // it failed together with others: which of them is bad isn't known
	spoiled bool      // it was as desired until another process wrote it
	backoff retry.Backoff
}

// queue holds the keys to look at. One worker at a time takes a key.
type queue struct {
	wake  mailbox.Signal
	owner func(model.Key) string

	mu    sync.Mutex
	items map[model.Key]*item
	ready map[string][]model.Key // by owner: neither busy nor waiting; may include keys already dropped
	next  []string               // owners of the ready keys, in turn
	named int                    // how many keys ready has, dropped ones included
}

func newQueue(owner func(model.Key) string) *queue {
	return &queue{wake: mailbox.NewSignal(), owner: owner, items: map[model.Key]*item{}, ready: map[string][]model.Key{}}
}

// push makes a key ready to be taken in its turn.
func (q *queue) push(k model.Key) {
	owner := q.owner(k)
	if q.ready[owner] = append(q.ready[owner], k); len(q.ready[owner]) == 1 {
		q.next = append(q.next, owner)
	}
	if q.named++; q.named > 2*len(q.items)+100 { // a process that doesn't lead takes none, and drops what the leader has written
		q.prune()
	}
	q.wake.Send()
}

// prune takes the keys out of ready that have been dropped, or named twice.
func (q *queue) prune() {
	next, seen := q.next[:0], map[model.Key]bool{}
	q.named = 0
	for _, owner := range q.next {
		list := slices.DeleteFunc(q.ready[owner], func(k model.Key) bool {
			i, twice := q.items[k], seen[k]
			seen[k] = true
			return twice || i == nil || i.busy || i.waits
		})
		q.named += len(list)
		if q.ready[owner] = list; len(list) > 0 {
			next = append(next, owner)
		} else {
			delete(q.ready, owner)
		}
	}
	q.next = next
}

// add queues keys, as copies of fresh unless they are queued already. It ends their backoff, as something has changed. A key
// already queued does not become spoiled: it was not as desired anyway, so a change by another process can't be told.
func (q *queue) add(fresh item, keys ...model.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range keys {
		i := q.items[k]
		switch {
		case i == nil:
			i := fresh
			q.items[k] = &i
			q.push(k)
		case i.busy:
			i.again = true
		case i.waits:
			i.waits = false
			q.push(k)
		}
	}
}

// drop forgets keys that are as desired, unless a worker has them.
func (q *queue) drop(keys ...model.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range keys {
		if i := q.items[k]; i == nil || !i.busy {
			delete(q.items, k)
		}
	}
}

// take takes up to n keys, from each owner in turn, at most share from one, or a single key that must be alone.
func (q *queue) take(n, share int) []model.Key {
	q.mu.Lock()
	defer q.mu.Unlock()
	var taken []model.Key
	of := map[string]int{}
	for len(q.next) > 0 && len(taken) < n {
		owner := q.next[0]
		k := q.ready[owner][0]
		i := q.items[k]
		if of[owner] == share || i != nil && i.alone && len(taken) > 0 {
			break
		}
		q.next, q.named = q.next[1:], q.named-1
		if q.ready[owner] = q.ready[owner][1:]; len(q.ready[owner]) > 0 {
			q.next = append(q.next, owner)
		} else {
			delete(q.ready, owner)
		}
		if i == nil || i.busy || i.waits {
			continue
		}
		i.busy = true
		of[owner]++
		taken = append(taken, k)
		if i.alone {
			break
		}
	}
	if len(q.next) > 0 {
		q.wake.Send() // for another worker
	}
	return taken
}

// done forgets a key that is now as desired, unless it has changed since. It returns how long the key waited, and whether another
// process had written it before.
func (q *queue) done(now time.Time, k model.Key) (waited time.Duration, spoiled bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.items[k]
	if delete(q.items, k); i.again {
		q.items[k] = &item{since: now}
		q.push(k)
	}
	return now.Sub(i.since), i.spoiled
}

// back puts back keys that could not be written for a reason other than themselves.
func (q *queue) back(keys []model.Key, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range keys {
		i := q.items[k]
		i.busy, i.again, i.alone = false, false, alone
		q.push(k)
	}
}

// retry puts back a key that could not be written; the backoff grows with each failure.
func (q *queue) retry(k model.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.items[k]
	i.busy, i.alone, i.waits, i.again = false, true, !i.again, false
	if !i.waits {
		q.push(k)
		return
	}
	i.backoff.First, i.backoff.Longest = firstBackoff, longestBackoff
	time.AfterFunc(i.backoff.Next(), func() {
		q.mu.Lock()
		waits := q.items[k] == i && i.waits
		q.mu.Unlock()
		if waits {
			q.add(item{since: time.Now()}, k)
		}
	})
}

// size returns how many keys aren't known to be as desired.
func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}
