// SPDX-License-Identifier: Apache-2.0

package problems

import (
	"errors"
	"syscall"
	"time"
)

// passingPatience is for how long it is no news that the kernel's state changed while it was read.
const passingPatience = 30 * time.Second

// Passing knows since when a reading of the kernel's state has been overtaken by changes, each time that it was tried.
// Where links are made by the hundred that is so for as long as they are, and nothing is wrong: it is tried
// again. Its zero value has seen none.
type Passing struct{ since time.Time }

// Hide takes in how a reading ended, and says whether that is not worth a word yet.
func (p *Passing) Hide(err error, now time.Time) bool {
	if !errors.Is(err, syscall.EINTR) { // of netlink: NLM_F_DUMP_INTR
		p.since = time.Time{}
		return false
	}
	if p.since.IsZero() {
		p.since = now
	}
	return now.Sub(p.since) < passingPatience
}
