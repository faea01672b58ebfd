// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// inquiry is a list of tracked connections on which the loop is asked to judge.
type inquiry struct {
	connections []kernel.Connection
	condemned   chan map[kernel.Connection]bool // what policy says of each
}

// cut has the connections marked that policy allowed when they began and denies
// now, beside the loop: the kernel's whole table has to be looked through. It
// runs once at a time; what becomes suspect meanwhile is looked at after.
//
// What is marked passes nothing, in either direction, for as long as the tracker
// knows it. It is not deleted: the next packet of the side that answers would
// count as the first of a connection the other way round, which policy may
// allow, and what the side that is denied sends would pass as its answers. The
// mark goes when policy allows the connection again.
func (l *loop) cut() {
	w := l.wall
	if l.cutting || !w.applied || w.err != nil || !w.all && len(w.suspects) == 0 {
		return
	}
	l.cutting = true
	suspects, all := maps.Clone(w.suspects), w.all
	clear(w.suspects)
	w.all = false
	l.flushes.Go(func() {
		cut, resumed, err := l.cutSuspects(func(c kernel.Connection) bool {
			return all || has(suspects, c.Src) || has(suspects, c.Dst) || has(suspects, c.ReplySrc) || has(suspects, c.ReplyDst)
		})
		if err != nil {
			l.log.Warn("connections that policy denies now were not all cut", "err", err)
		}
		if cut > 0 {
			l.log.Info("cut connections that policy denies now", "connections", cut)
		}
		if resumed > 0 {
			l.log.Info("connections that were cut may go on: policy allows them again", "connections", resumed)
		}
		l.metrics.cut.Add(float64(cut))
		select {
		case l.cutDone <- err:
		case <-l.stopped:
		}
	})
}

func has(set map[netip.Addr]struct{}, a netip.Addr) bool {
	_, ok := set[a]
	return ok
}

// cutSuspects finds the suspects, has the loop judge, and marks.
func (l *loop) cutSuspects(isSuspect func(kernel.Connection) bool) (cut, resumed int, err error) {
	q := inquiry{condemned: make(chan map[kernel.Connection]bool, 1)}
	_, _, err = l.system.markConnections(func(c kernel.Connection) bool {
		if isSuspect(c) {
			q.connections = append(q.connections, c)
		}
		return isCut(c)
	})
	if err != nil || len(q.connections) == 0 {
		return 0, 0, err
	}
	select {
	case l.inquiries <- q:
	case <-l.stopped:
		return 0, 0, nil
	}
	condemned := <-q.condemned
	differs := false
	for c, shall := range condemned {
		differs = differs || shall != isCut(c)
	}
	if !differs {
		return 0, 0, nil
	}
	return l.system.markConnections(func(c kernel.Connection) bool {
		if shall, judged := condemned[c]; judged {
			return shall
		}
		return isCut(c)
	})
}

func isCut(c kernel.Connection) bool { return c.Mark&nft.CutMark != 0 }

// judge tells the connections that policy denies now from those that it allows.
// Those on which policy has no say are allowed.
func (l *loop) judge(q inquiry) {
	condemned := map[kernel.Connection]bool{}
	at := newPlaces(l.wall.state, l.system.interfaceTo)
	for _, c := range q.connections {
		p, ok := at.packet(c)
		condemned[c] = ok && policy.Evaluate(l.wall.settings, l.wall.state, p).Verdict == policy.Drop
	}
	q.condemned <- condemned
}
