// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// audit makes the turn read back all that the agent keeps right. Of the host's own links the kernel's notices tell, while
// there are any.
func (l *loop) audit() {
	l.leaveName()
	l.readNeeded()
	l.mtu()
	l.route.due = l.route.due || l.route.fresh && time.Now().Before(l.route.until)
	l.route.fresh = false
	if l.events == nil {
		l.readInterfaces()
	}
	l.whole = true
}
