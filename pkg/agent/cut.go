// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// inquiry is a list of tracked connections on which the loop is asked to judge.
type inquiry struct {
	connections []kernel.Connection
	judged      chan map[kernel.Connection]judgement // by the connection without its mark
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

// After each cut comes a rest of so many times what it took: while policy changes
// all the time, the tracker's table isn't walked all the time.
const (
	cutRest    = 2
	maxCutRest = 100 * time.Millisecond
)

// cut has the connections ended that policy allowed when they began and denies
// now, beside the loop: the kernel's whole table has to be looked through. It
// runs once at a time; what becomes suspect meanwhile is looked at after.
func (l *loop) cut() {
	w := l.wall
	if l.cutting || !w.applied || w.err != nil || !w.all && len(w.suspects) == 0 {
		return
	}
	l.cutting = true
	l.cuts.begun++
	suspects, all := maps.Clone(w.suspects), w.all
	clear(w.suspects)
	w.all = false
	begin := time.Now()
	l.flushes.Go(func() {
		r, err := l.cutSuspects(func(c kernel.Connection) bool {
			return all || has(suspects, c.Src) || has(suspects, c.Dst) || has(suspects, c.ReplySrc) || has(suspects, c.ReplyDst)
		})
		if err != nil {
			l.log.Warn("connections that policy denies now were not all cut", "err", err)
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
		l.metrics.cut.Add(float64(r.cut))
		r.err = err
		select {
		case <-time.After(min(cutRest*time.Since(begin), maxCutRest)):
		case <-l.stopped:
		}
		select {
		case l.cutDone <- r:
		case <-l.stopped:
		}
	})
}

func has(set map[netip.Addr]struct{}, a netip.Addr) bool {
	_, ok := set[a]
	return ok
}

// cutReport is what one cut did.
type cutReport struct {
	cut, deleted, resumed int
	marked                bool // there are marked connections
	err                   error
}

// cuts counts the rounds of cutting, so that the gate can wait for one.
type cuts struct {
	begun, ended int
	marked       bool // connections were marked after the last
}

// isResuming says that connections may still be marked that policy has come to
// allow again, by what somebody waits for at the gate. Who waits does so for the
// one round that will have seen it, however many are to follow.
func (l *loop) isResuming(w *wait) bool {
	if w.round == 0 {
		if !l.cuts.marked {
			return false
		}
		w.round = l.cuts.begun
		if l.wall.all || len(l.wall.suspects) > 0 {
			w.round++ // these are for the next
		}
	}
	return l.cuts.ended < w.round
}

// cutSuspects finds the suspects, has the loop judge, and marks and deletes.
func (l *loop) cutSuspects(isSuspect func(kernel.Connection) bool) (r cutReport, err error) {
	q := inquiry{judged: make(chan map[kernel.Connection]judgement, 1)}
	_, _, err = l.system.markConnections(func(c kernel.Connection) bool {
		if isSuspect(c) {
			q.connections = append(q.connections, c)
		}
		r.marked = r.marked || isCut(c)
		return isCut(c)
	})
	if err != nil || len(q.connections) == 0 {
		return r, err
	}
	select {
	case l.inquiries <- q:
	case <-l.stopped:
		return r, nil
	}
	judged := <-q.judged
	marks, deletes := false, false
	for _, c := range q.connections {
		j := judged[unmarked(c)]
		marks = marks || isCut(c) != (j != goesOn)
		deletes = deletes || j == isDeleted
	}
	if marks {
		r.marked = false
		// Also what is deleted next: that may fail, or take a while.
		r.cut, r.resumed, err = l.system.markConnections(func(c kernel.Connection) bool {
			shall := isCut(c)
			if j, known := judged[unmarked(c)]; known {
				shall = j != goesOn
			}
			r.marked = r.marked || shall
			return shall
		})
	}
	if deletes && err == nil {
		r.deleted, err = l.system.deleteConnections(func(c kernel.Connection) bool {
			return isCut(c) && judged[unmarked(c)] == isDeleted
		})
	}
	return r, err
}

func isCut(c kernel.Connection) bool { return c.Mark&nft.CutMark != 0 }

// unmarked is the connection whatever its mark.
func unmarked(c kernel.Connection) kernel.Connection {
	c.Mark = 0
	return c
}

// judge tells the connections that policy denies now from those that it allows.
// Those on which policy has no say are allowed.
func (l *loop) judge(q inquiry) {
	judged := make(map[kernel.Connection]judgement, len(q.connections))
	at := newPlaces(l.wall.state, l.system.interfaceTo)
	denied := func(p policy.Packet) bool {
		return policy.Evaluate(l.wall.settings, l.wall.state, p).Verdict == policy.Drop
	}
	for _, c := range q.connections {
		j := goesOn
		if p, ok := at.packet(c); ok && denied(p) {
			j = isMarked
			if answer, begins := at.answer(c); !begins || denied(answer) {
				j = isDeleted
			}
		}
		judged[unmarked(c)] = j
	}
	q.judged <- judged
}
