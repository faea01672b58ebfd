// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"maps"
	"time"
)

// sayAgain is the pause before another repair of the same thing is logged: a fight with another program means dozens a second.
const sayAgain = time.Minute

// Repairs remembers which repairs were logged. The zero value is ready to use.
type Repairs struct{ said map[string]time.Time }

// Say reports whether to log a repair of something.
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
