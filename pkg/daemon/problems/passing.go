// SPDX-License-Identifier: Apache-2.0

package problems

import (
	"errors"
	"syscall"
	"time"
)

// passingPatience is how long Passing hides that the kernel's state changed while it was read.
const passingPatience = 30 * time.Second

// Passing tracks since when every reading of the kernel's state has been interrupted by changes. While links are created by the hundred
// that is normal: the reading is repeated, and nothing is wrong. The zero value has seen no interruption.
type Passing struct{ since time.Time }

// Hide records how a reading ended, and reports whether its error should not be reported yet.
func (p *Passing) Hide(err error, now time.Time) bool {
	if !errors.Is(err, syscall.EINTR) { // netlink's NLM_F_DUMP_INTR
		p.since = time.Time{}
		return false
	}
	if p.since.IsZero() {
		p.since = now
	}
	return now.Sub(p.since) < passingPatience
}
