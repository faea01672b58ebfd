// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"
)

// audit has all read that the agent keeps right. Adding it up tells whether
// anything changed; only where something did is it taken apart.
func (l *loop) audit(ctx context.Context) {
	l.leaveName()
	l.mtu()
	l.route.due = l.route.due || l.route.fresh && time.Now().Before(l.route.until)
	l.route.fresh = false
	if same, err := l.path.Unchanged(ctx); same && err == nil && !l.whole {
		return
	}
	l.whole = true // where an error lasts, taking all apart tells of it
	l.readInterfaces()
}
