// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/policy"
)

// inquiry is a list of tracked connections on which the loop is asked to judge.
type inquiry struct {
	connections []kernel.Connection
	condemned   chan map[kernel.Connection]bool
}

// cut has the connections deleted that policy allowed when they began and denies
// now, beside the loop: the kernel's whole table has to be looked through. It
// runs once at a time; what becomes suspect meanwhile is looked at after.
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
		n, err := l.cutSuspects(func(c kernel.Connection) bool {
			return all || has(suspects, c.Src) || has(suspects, c.Dst) || has(suspects, c.ReplySrc) || has(suspects, c.ReplyDst)
		})
		if err != nil {
			l.log.Warn("connections that policy denies now were not all cut", "err", err)
		}
		if n > 0 {
			l.log.Info("cut connections that policy denies now", "connections", n)
		}
		l.metrics.cut.Add(float64(n))
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

// cutSuspects finds the suspects, has the loop judge, and deletes.
func (l *loop) cutSuspects(isSuspect func(kernel.Connection) bool) (int, error) {
	q := inquiry{condemned: make(chan map[kernel.Connection]bool, 1)}
	_, err := l.system.deleteConnections(func(c kernel.Connection) bool {
		if isSuspect(c) {
			q.connections = append(q.connections, c)
		}
		return false
	})
	if err != nil || len(q.connections) == 0 {
		return 0, err
	}
	select {
	case l.inquiries <- q:
	case <-l.stopped:
		return 0, nil
	}
	condemned := <-q.condemned
	if len(condemned) == 0 {
		return 0, nil
	}
	return l.system.deleteConnections(func(c kernel.Connection) bool { return condemned[c] })
}

// judge finds the connections that policy denies now.
func (l *loop) judge(q inquiry) {
	condemned := map[kernel.Connection]bool{}
	at := newPlaces(l.wall.state, l.system.interfaceTo)
	for _, c := range q.connections {
		p, ok := at.packet(c)
		if ok && policy.Evaluate(l.wall.settings, l.wall.state, p).Verdict == policy.Drop {
			condemned[c] = true
		}
	}
	q.condemned <- condemned
}
