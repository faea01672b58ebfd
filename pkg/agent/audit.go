// SPDX-License-Identifier: Apache-2.0

package agent

import "context"

// wholeAudit is how many interfaces an audit reads in full.
const wholeAudit = 64

// audit has the kernel looked at. With few interfaces all is read each time;
// with more, a short look that shows nearly everything is enough several times
// over, and all is read at once where it shows a change.
func (l *loop) audit(ctx context.Context) {
	l.glances++
	due := l.whole || l.glances*wholeAudit >= len(l.desired.interfaces)
	if !due {
		same, err := l.path.Unchanged(ctx)
		due = !same || err != nil // where an error lasts, reading everything tells of it
	}
	if due {
		l.whole, l.glances = true, 0
		l.mtu()
		l.leaveName()
		l.readInterfaces()
	}
}
