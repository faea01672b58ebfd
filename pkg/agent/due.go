// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// The loop's periods.
const (
	ofWorkloads = iota
	ofFirewall
	ofBeat
)

// periodic is a task done once per interval.
type periodic struct {
	interval time.Duration
	last     time.Time
}

func (p *periodic) next() time.Time { return p.last.Add(p.interval) }

// set changes the interval, which starts now.
func (p *periodic) set(interval time.Duration) {
	if p.interval != interval {
		*p = periodic{interval, time.Now()}
	}
}

// isDue reports whether the interval is over, and starts the next.
func (p *periodic) isDue(now time.Time) bool {
	if now.Before(p.next()) {
		return false
	}
	if p.last = p.next(); p.next().Before(now) {
		p.last = now // some were missed
	}
	return true
}

// next returns when due must be called.
func (l *loop) next() time.Time {
	next := l.audits[ofBeat].next()
	for _, t := range []time.Time{
		l.audits[ofWorkloads].next(), l.audits[ofFirewall].next(), l.workload.Due(), l.firewall.Due(), l.links.again, l.mtu.Due(), l.router.again,
	} {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	return next
}

// due does what is due at now, and reports whether a turn must follow.
func (l *loop) due(now time.Time) (turn bool) {
	is := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	l.audits[ofBeat].isDue(now)
	if is(l.router.again) {
		l.router.again, turn = time.Time{}, true
	}
	if is(l.firewall.Due()) {
		l.firewall.Retry()
		turn = true
	}
	if is(l.workload.Due()) {
		l.workload.Retry()
		turn = true
	}
	if is(l.links.again) {
		l.look()
		turn = true
	}
	if is(l.mtu.Due()) {
		l.mtu.Lower()
		turn = true
	}
	if l.audits[ofFirewall].isDue(now) {
		l.firewall.Audit()
		l.tellReached()
		turn = true
	}
	if l.audits[ofWorkloads].isDue(now) {
		l.audit()
		turn = true
	}
	return turn
}
