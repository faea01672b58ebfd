// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"maps"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
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
}

func (s sweep) isLost(c kernel.Connection) bool { return involves(c, s.lost) }

func (s sweep) isSuspect(c kernel.Connection) bool { return s.all || involves(c, s.suspects) }

func involves(c kernel.Connection, addrs map[netip.Addr]struct{}) bool {
	for _, a := range [...]netip.Addr{c.Src, c.Dst, c.ReplySrc, c.ReplyDst} {
		if _, ok := addrs[a]; ok {
			return true
		}
	}
	return false
}

// sweepReport is what one sweep did.
type sweepReport struct {
	lost, cut, deleted, resumed int
	marked                      bool // there are marked connections
	err                         error
}

// sweeps counts the sweeps, so that the gate can wait for one.
type sweeps struct {
	begun, ended int
	marked       bool // connections were marked after the last
	busy         bool // one runs, or rests
	lost         map[netip.Addr]struct{}
	gathering    bool // what is in no hurry waits
	due          bool // and has waited
}

// inquiry is a list of tracked connections on which the loop is asked to judge.
type inquiry struct {
	connections []kernel.Tracked
	judged      chan []judgement // in the same order
}

// judgement is what becomes of a connection.
type judgement int

const (
	goesOn judgement = iota
	// isMarked: none of its packets pass, in either direction, for as long as
	// the tracker knows it, or until policy allows it again. Were it deleted, the
	// next packet of the side that answers would count as the first of a
	// connection the other way round, which policy allows, and what the side
	// that is denied sends would pass as its answers.
	isMarked
	// isDeleted: whichever side sends next, policy denies that.
	isDeleted
)

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
	case len(l.lost) == 0 && !(judges && len(w.later) > 0):
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
		w.suspects, w.later, w.all = map[netip.Addr]struct{}{}, map[netip.Addr]struct{}{}, false
	}
	l.lost = map[netip.Addr]struct{}{}
	l.sweeps.begun++
	l.sweeps.busy, l.sweeps.gathering, l.sweeps.due, l.sweeps.lost = true, false, false, s.lost
	l.flushes.Go(func() {
		begin := time.Now()
		r := l.walk(s)
		rest := time.After(min(sweepRest*time.Since(begin), maxSweepRest))
		l.sayCut(r)
		select {
		case l.swept <- r:
		case <-l.stopped:
			return
		}
		select {
		case <-rest:
		case <-l.stopped:
			return
		}
		select {
		case l.rested <- struct{}{}:
		case <-l.stopped:
		}
	})
}

// walk finds the connections, has the loop judge the suspects, and marks and deletes.
func (l *loop) walk(s sweep) (r sweepReport) {
	found, err := l.system.connections(func(c kernel.Connection) bool {
		if s.isLost(c) || s.isSuspect(c) {
			return true
		}
		r.marked = r.marked || isCut(c)
		return false
	})
	if err != nil {
		return sweepReport{marked: true, err: err}
	}
	var over, suspects []kernel.Tracked
	for _, t := range found {
		if s.isLost(t.Connection) {
			over = append(over, t)
		} else {
			suspects = append(suspects, t)
		}
	}
	var errs [4]error
	r.lost, errs[0] = l.system.deleteConnections(over)
	q := inquiry{connections: suspects, judged: make(chan []judgement, 1)}
	if len(suspects) > 0 {
		select {
		case l.inquiries <- q:
		case <-l.stopped:
			return r
		}
		var mark, clear, forget []kernel.Tracked
		for i, j := range <-q.judged {
			t := suspects[i]
			switch {
			case j != goesOn && !isCut(t.Connection):
				mark = append(mark, t) // also what is deleted next: that may fail, or take a while
			case j == goesOn && isCut(t.Connection):
				clear = append(clear, t)
			}
			if j == isDeleted {
				forget = append(forget, t)
			}
			r.marked = r.marked || j == isMarked
		}
		r.cut, errs[1] = l.system.markConnections(mark, true)
		r.resumed, errs[2] = l.system.markConnections(clear, false)
		r.deleted, errs[3] = l.system.deleteConnections(forget)
	}
	r.err = errors.Join(errs[:]...)
	r.marked = r.marked || r.err != nil
	return r
}

func (l *loop) sayCut(r sweepReport) {
	if r.err != nil {
		l.log.Warn("connections that are over, or that policy denies now, were not all cut", "err", r.err)
	}
	if r.cut > 0 {
		l.log.Info("cut connections that policy denies now", "connections", r.cut)
	}
	if r.deleted > 0 {
		l.log.Info("deleted connections that policy denies in both directions", "connections", r.deleted)
	}
	if r.resumed > 0 {
		l.log.Info("connections that were cut may go on: policy allows them again", "connections", r.resumed)
	}
	l.metrics.connections.Add(float64(r.lost))
	l.metrics.cut.Add(float64(r.cut))
}

// noteSwept takes in what a sweep did.
func (l *loop) noteSwept(r sweepReport) {
	l.sweeps.ended, l.sweeps.marked, l.sweeps.lost = l.sweeps.begun, r.marked, nil
	if r.err != nil {
		l.unswept = true
		l.again()
	}
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

// isResuming says that connections may still be marked that policy has come to
// allow again, by what somebody waits for at the gate. Who waits does so for the
// one round that will have seen it, however many are to follow.
func (l *loop) isResuming(w *wait) bool {
	if w.round == 0 {
		if !l.sweeps.marked {
			return false
		}
		w.round = l.sweeps.begun
		if l.wall.all || len(l.wall.suspects) > 0 {
			w.round++ // these are for the next
		}
	}
	return l.sweeps.ended < w.round
}

func isCut(c kernel.Connection) bool { return c.Mark&nft.CutMark != 0 }

// judge tells the connections that policy denies now from those that it allows.
// Those on which policy has no say are allowed.
func (l *loop) judge(q inquiry) {
	judged := make([]judgement, len(q.connections))
	at := newPlaces(l.wall.state, l.system.interfaceTo)
	denied := func(p policy.Packet) bool {
		return policy.Evaluate(l.wall.settings, l.wall.state, p).Verdict == policy.Drop
	}
	for i, t := range q.connections {
		if p, ok := at.packet(t.Connection); ok && denied(p) {
			judged[i] = isMarked
			if answer, begins := at.answer(t.Connection); !begins || denied(answer) {
				judged[i] = isDeleted
			}
		}
	}
	q.judged <- judged
}
