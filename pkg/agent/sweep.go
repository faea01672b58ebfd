// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/kernel/conntrack"
)

// sweep is what one walk through the connection tracker's table is for.
type sweep struct {
	// lost are addresses that lead nowhere any more, or elsewhere: connections
	// with them are over.
	lost map[netip.Addr]struct{}
	// suspects are addresses whose connections policy may judge otherwise than
	// when they began; everybody's where all is set.
	suspects map[netip.Addr]struct{}
	all      bool
	// untranslated are connections that began before an address of theirs was to be translated.
	untranslated translations
}

func (s sweep) isLost(c conntrack.Connection) bool { return involves(c, s.lost) }

func (s sweep) isSuspect(c conntrack.Connection) bool { return s.all || involves(c, s.suspects) }

func involves(c conntrack.Connection, addrs map[netip.Addr]struct{}) bool {
	for _, a := range [...]netip.Addr{c.Src, c.Dst, c.ReplySrc, c.ReplyDst} {
		if _, ok := addrs[a]; ok {
			return true
		}
	}
	return false
}

// sweepReport is what one sweep did.
type sweepReport struct {
	lost, cut int
	err       error
}

// sweeps are what the loop knows of them.
type sweeps struct {
	busy      bool // one runs, or rests
	lost      map[netip.Addr]struct{}
	gathering bool // what is in no hurry waits
	due       bool // and has waited
}

// inquiry is a list of tracked connections on which the loop is asked to judge.
type inquiry struct {
	connections []conntrack.Tracked
	judged      chan judgement
}

// judgement says of each connection, in the same order, whether policy denies it.
// Those can be deleted: what could begin them anew, the firewall drops already.
type judgement struct {
	denied []bool
	err    error
}

// After each sweep comes a rest of so many times what it took: while pods come
// and go, or policy changes, all the time, the tracker's table isn't walked all
// the time.
const (
	sweepRest    = 9
	maxSweepRest = time.Second
	// gatherTime is how long what is in no hurry waits for more of its kind, and
	// leaves the processor to those who wait at the gate.
	gatherTime = 100 * time.Millisecond
)

// rejudgePauses are those after which all connections are judged once more when they were because the firewall had a
// hole, or stands for the first time. Without its table nothing is tracked: a connection that was
// silent since isn't found until it is heard again.
var rejudgePauses = [...]time.Duration{time.Second, 5 * time.Second, time.Minute}

// judgeAll has all connections judged, now and after the pauses.
func (l *loop) judgeAll() {
	l.wall.all, l.rejudged = true, 0
	l.rejudge.Reset(rejudgePauses[0])
}

func (l *loop) judgeOnceMore() {
	l.wall.all = true
	if l.rejudged++; l.rejudged < len(rejudgePauses) {
		l.rejudge.Reset(rejudgePauses[l.rejudged])
	}
	l.sweep()
}

// sweep has connections ended that are over, or that policy allowed when they
// began and denies now, beside the loop: the kernel's whole table has to be
// looked through. It runs once at a time; what comes meanwhile is looked at after.
func (l *loop) sweep() {
	if l.sweeps.busy {
		return
	}
	w := l.wall
	judges := w.applied && w.err == nil
	switch {
	case judges && (w.all || len(w.suspects) > 0), l.lostAreAwaited():
	case len(l.lost) == 0 && !(judges && (len(w.later) > 0 || w.translatesMore())):
		return
	case !l.sweeps.due:
		if !l.sweeps.gathering {
			l.sweeps.gathering = true
			l.gather.Reset(gatherTime)
		}
		return
	}
	s := sweep{lost: l.lost}
	if judges {
		s.suspects, s.all = w.suspects, w.all
		maps.Copy(s.suspects, w.later)
		s.untranslated = w.takeTranslations()
		w.suspects, w.later, w.all = map[netip.Addr]struct{}{}, map[netip.Addr]struct{}{}, false
	}
	l.lost = map[netip.Addr]struct{}{}
	l.sweeps = sweeps{busy: true, lost: s.lost}
	pause := max(l.pause, retryPause)
	l.flushes.Go(func() {
		begin := time.Now()
		r := l.walk(s)
		rest := min(sweepRest*time.Since(begin), maxSweepRest)
		if r.err != nil {
			rest = max(rest, pause)
		}
		rested := time.After(rest)
		l.sayCut(r)
		select {
		case l.swept <- r:
		case <-l.stopped:
			return
		}
		select {
		case <-rested:
		case <-l.stopped:
			return
		}
		select {
		case l.rested <- struct{}{}:
		case <-l.stopped:
		}
	})
}

// walk finds the connections, has the loop judge the suspects, and deletes.
func (l *loop) walk(s sweep) (r sweepReport) {
	found, err := l.system.connections(func(c conntrack.Connection) bool { return s.isLost(c) || s.isSuspect(c) || s.untranslated.may(c) })
	if err != nil {
		return sweepReport{err: err}
	}
	var over, suspects []conntrack.Tracked
	for _, t := range found {
		switch {
		case s.isLost(t.Connection), !s.isSuspect(t.Connection) && s.untranslated.has(t):
			over = append(over, t)
		case s.isSuspect(t.Connection):
			suspects = append(suspects, t)
		}
	}
	r.lost, r.err = l.system.deleteConnections(over)
	// Who floods has the most of them: first comes what runs, TCP's before what is soon forgotten.
	slices.SortStableFunc(suspects, func(a, b conntrack.Tracked) int {
		switch {
		case a.Replied && !b.Replied:
			return -1
		case b.Replied && !a.Replied:
			return 1
		}
		return cmp.Compare(b.Timeout, a.Timeout)
	})
	// Not all at once: the loop has more to do.
	for some := range slices.Chunk(suspects, maxReview) {
		q := inquiry{connections: some, judged: make(chan judgement, 1)}
		select {
		case l.inquiries <- q:
		case <-l.stopped:
			return r
		}
		j := <-q.judged
		var denied, over []conntrack.Tracked
		for i, is := range j.denied {
			switch {
			case is:
				denied = append(denied, some[i])
			case s.untranslated.has(some[i]):
				over = append(over, some[i])
			}
		}
		cut, err := l.system.deleteConnections(denied)
		lost, err2 := l.system.deleteConnections(over)
		r.cut, r.lost = r.cut+cut, r.lost+lost
		if r.err = errors.Join(r.err, j.err, err, err2); j.err != nil {
			break // it is asked again
		}
	}
	return r
}

func (l *loop) sayCut(r sweepReport) {
	if r.err != nil {
		l.log.Warn("connections that are over, or that policy denies now, were not all cut", "err", r.err)
	}
	if r.cut > 0 {
		l.log.Info("cut connections that policy denies now", "connections", r.cut)
	}
	l.metrics.connections.Add(float64(r.lost))
	l.metrics.cut.Add(float64(r.cut))
}

// noteSwept takes in what a sweep did.
func (l *loop) noteSwept(r sweepReport) {
	if r.err != nil {
		maps.Copy(l.lost, l.sweeps.lost)
		l.unswept = true
		l.again()
	}
	l.sweeps.lost = nil
	l.forget()
}

// lostAreAwaited says that somebody waits at the gate for a lost address.
func (l *loop) lostAreAwaited() bool {
	if len(l.lost) == 0 {
		return false
	}
	for w := range l.waiting {
		if l.waitsForTracker(w.request) {
			return true
		}
	}
	return false
}

// isFlushing says that connections of an address with a former holder are still
// to be deleted.
func (l *loop) isFlushing(a netip.Addr) bool {
	_, next := l.lost[a]
	_, now := l.sweeps.lost[a]
	return next || now
}
