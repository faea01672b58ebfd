// SPDX-License-Identifier: Apache-2.0

package writer

import (
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
	since   time.Time // when that became known
	busy    bool      // somebody is at it
	again   bool      // it changed while somebody was at it
	waits   bool      // for its backoff to end
	alone   bool      // it failed together with others: which of them is bad isn't known
	spoiled bool      // it was as desired until somebody else wrote it
	backoff retry.Backoff
}

// queue has the keys that are to be looked at. A key is taken by one worker at a time.
type queue struct {
	wake  mailbox.Signal
	owner func(model.Key) string

	mu    sync.Mutex
	items map[model.Key]*item
	ready map[string][]model.Key // by owner: neither busy nor waiting; may name some that are gone
	next  []string               // owners of those, in turn
}

func newQueue(owner func(model.Key) string) *queue {
	return &queue{wake: mailbox.NewSignal(), owner: owner, items: map[model.Key]*item{}, ready: map[string][]model.Key{}}
}

// push has a key taken when it is its turn.
func (q *queue) push(k model.Key) {
	owner := q.owner(k)
	if q.ready[owner] = append(q.ready[owner], k); len(q.ready[owner]) == 1 {
		q.next = append(q.next, owner)
	}
	q.wake.Send()
}

// add has keys looked at, as fresh items where they aren't there. It takes them out of their backoff: something has changed. A key
// that is there isn't spoiled by it: it was not as desired, and what others did can't be told from that.
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

// drop forgets keys that are as desired.
func (q *queue) drop(keys ...model.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range keys {
		if i := q.items[k]; i == nil || !i.busy {
			delete(q.items, k)
		}
	}
}

// take takes up to n keys, one of each owner in turn and share of one at most, or one where it is to be alone.
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
		q.next = q.next[1:]
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

// done has a key forgotten that is as desired now, unless it has changed since. It returns how long that had to wait, and whether
// somebody else had written the key before.
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

// back puts keys back that could not be written, for a reason that is not theirs.
func (q *queue) back(keys []model.Key, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range keys {
		i := q.items[k]
		i.busy, i.again, i.alone = false, false, alone
		q.push(k)
	}
}

// retry puts a key back that could not be written, for later: after each failure for longer.
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

// size is how many keys aren't known to be as desired.
func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}
