// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"maps"
	"time"
)

// sayAgain is after what time the log is told again of a repair of one thing: a fight with another program is one of
// dozens a second.
const sayAgain = time.Minute

// Repairs remembers of what repairs the log was told. The zero value is ready to use.
type Repairs struct{ said map[string]time.Time }

// Say reports whether the log is to be told of a repair of something.
func (r *Repairs) Say(what string, now time.Time) bool {
	maps.DeleteFunc(r.said, func(_ string, at time.Time) bool { return now.Sub(at) >= sayAgain })
	if _, lately := r.said[what]; lately {
		return false
	}
	if r.said == nil {
		r.said = make(map[string]time.Time)
	}
	r.said[what] = now
	return true
}
