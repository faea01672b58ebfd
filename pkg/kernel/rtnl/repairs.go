// SPDX-License-Identifier: Apache-2.0

package rtnl

import "time"

// sayAgain is after what time the log is told again of one thing that others change and
// that is repaired: a fight with another program is one of dozens a second.
const sayAgain = time.Minute

// Repairs are what the log is told of what others changed. The zero value is ready to use.
type Repairs struct{ of map[string]repaired }

// repaired is of one thing.
type repaired struct {
	said    time.Time
	changes int // since
}

// Say takes in the changes that a repair of something took, and returns how many the log is to be
// told of now, 0 = none.
func (r *Repairs) Say(what string, changes int, now time.Time) int {
	one := r.of[what]
	one.changes += changes
	for other, o := range r.of {
		if now.Sub(o.said) >= sayAgain {
			delete(r.of, other)
		}
	}
	if r.of == nil {
		r.of = make(map[string]repaired)
	}
	if now.Sub(one.said) < sayAgain {
		r.of[what] = one
		return 0
	}
	r.of[what] = repaired{said: now}
	return one.changes
}
