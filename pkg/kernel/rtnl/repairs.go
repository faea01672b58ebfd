// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"maps"
	"time"
)

// sayAgain is after what time the log is told again of one thing that others change and
// that is repaired: a fight with another program is one of dozens a second.
const sayAgain = time.Minute

// Repairs are what the log is told of what others changed. The zero value is ready to use.
type Repairs struct {
	of    map[string]repaired
	swept time.Time
}

// repaired is of one thing.
type repaired struct {
	said    time.Time
	changes int // since
}

// old says that no fight goes on over it: what was counted is no news any more.
func (r repaired) old(now time.Time) bool { return now.Sub(r.said) >= 2*sayAgain }

// Say takes in the changes that a repair of something took, and returns how many the log is to be
// told of now, 0 = none.
func (r *Repairs) Say(what string, changes int, now time.Time) int {
	if now.Sub(r.swept) >= sayAgain {
		r.swept = now
		maps.DeleteFunc(r.of, func(_ string, one repaired) bool { return one.old(now) })
	}
	if r.of == nil {
		r.of = make(map[string]repaired)
	}
	one := r.of[what]
	if one.old(now) {
		one.changes = 0
	}
	one.changes += changes
	if now.Sub(one.said) < sayAgain {
		r.of[what] = one
		return 0
	}
	r.of[what] = repaired{said: now}
	return one.changes
}
