// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
)

// A connection is cut by deleting it from the tracker. Where policy would let the
// side that answers begin one, its next packet would be the first of a connection
// the other way round, and what the side that is denied sends would pass as its
// answers. So the firewall has such flows in a set, and drops what would begin them.

// maxReview is of how many connections policy is asked at once: of those that
// were cut and are many, and of those that run.
const maxReview = 1 << 12

// changeCuts tells the firewall, and sets the timer.
func (l *loop) changeCuts() {
	added, removed, merged := l.cuts.take()
	if merged > 0 {
		l.log.Warn("too many connections were cut to keep each out by its ports: what would begin others there is dropped as well, if it is no SYN of TCP", "merged", merged, "kept", len(l.cuts.kept))
	}
	if len(added)+len(removed) > 0 {
		l.firewall.Cut(added, removed)
	}
	switch next := l.cuts.next(); {
	case next.IsZero():
		l.expiry.Stop()
	case l.cuts.isPending():
		l.expiry.Reset(gatherTime)
	default:
		l.expiry.Reset(time.Until(next))
	}
}

// adoptCuts keeps what another agent has left in the kernel.
func (l *loop) adoptCuts() error {
	found, err := l.firewall.ReadCut()
	if err != nil {
		return err
	}
	now := time.Now()
	for f, dropped := range found {
		lasts := time.Duration(0)
		if f.Protocol == model.ProtocolTCP {
			lasts = tcpCut
		}
		l.cuts.add(former{flow: f, lasts: lasts, dropped: dropped, answered: true}, now)
	}
	l.changeCuts()
	return nil
}

// reviewCuts follows what policy says now of connections that were cut. It goes
// with the change of policy into the kernel.
func (l *loop) reviewCuts() {
	w := l.wall
	if !w.all && w.applied && len(w.suspects)+len(w.later) == 0 {
		return
	}
	suspect := func(a netip.Addr) bool {
		_, now := w.suspects[a]
		_, later := w.later[a]
		return now || later || w.all || !w.applied || !a.IsValid()
	}
	l.review(func(c *cut) bool {
		is := suspect(c.flow.Src) || suspect(c.flow.Dst)
		if is {
			c.asked = 0
		}
		return is || c.pending
	})
}

// review asks policy about some of them.
func (l *loop) review(some func(*cut) bool) {
	var at *places
	budget := maxReview
	for _, c := range l.cuts.kept {
		if !some(c) {
			continue
		}
		if at == nil {
			at = newPlaces(l.wall.state, l.wall.settings.Prefixes, l.interfaces, l.system.ways())
			defer at.ways.Close()
		}
		l.cuts.review(c, func(f nft.Flow) bool {
			return at.denies(l.wall.settings, f, query{}) && !at.failsafe(l.wall.settings, answers(f))
		}, &budget)
	}
	if at != nil {
		l.changeCuts()
	}
}

// forgetCuts forgets the flows of addresses that are no longer the endpoint's that had them.
func (l *loop) forgetCuts(addrs []netip.Addr) {
	if len(addrs) > 0 && len(l.cuts.kept) > 0 {
		l.cuts.forgetAddrs(addrs)
		l.changeCuts()
	}
}

// expireCuts goes on with what is to be asked, and forgets the flows that have
// had their time and are sent no more.
func (l *loop) expireCuts() {
	l.review(func(c *cut) bool { return c.pending })
	if now := time.Now(); l.cuts.next().After(now) {
		l.changeCuts()
		return
	}
	dropped, err := l.firewall.ReadCut()
	if err != nil {
		l.log.Warn("what the firewall dropped of cut connections could not be read, trying again", "err", err)
		l.expiry.Reset(l.cuts.least)
		return
	}
	now := time.Now()
	for f, c := range l.cuts.kept {
		l.cuts.expire(c, dropped[f], now)
	}
	l.changeCuts()
}

// judge tells the connections that policy denies now from those that it allows,
// and has the firewall drop what could begin the former anew. Those on which
// policy has no say are allowed. So are those that ran before the tracker did and
// whose answers, so it seems, are for a fail-safe port: on a host that has had no
// firewall these are the agent's own to etcd and the operator's by SSH. Of others, whose
// ports say that they were begun by who was heard second, both directions must be allowed.
func (l *loop) judge(ctx context.Context, q inquiry) {
	at := newPlaces(l.wall.state, l.wall.settings.Prefixes, l.interfaces, l.system.ways())
	defer at.ways.Close()
	now := time.Now()
	j := judgement{denied: make([]bool, len(q.connections))}
	cut := false
	for i, t := range q.connections {
		f := began(t.Connection)
		known := !t.PickedUp || l.cuts.flows[answers(f)] != nil
		if l.cuts.flows[f] != nil {
			f, known = answers(f), true // it was begun by this side, and has gone on
		}
		j.denied[i] = at.denies(l.wall.settings, f, queryOf(t.Connection))
		if back := answers(f); !j.denied[i] && !known && isFromClient(back) {
			f, j.denied[i] = back, at.denies(l.wall.settings, back, query{})
		}
		if !j.denied[i] {
			continue
		}
		if !known && at.failsafe(l.wall.settings, answers(f)) {
			j.denied[i] = false // it may have been begun by the other side
			continue
		}
		if back := answers(f); mayBegin(back) && !at.denies(l.wall.settings, back, query{}) {
			// Of TCP nothing new meets them, answered or not.
			l.cuts.add(former{flow: back, lasts: t.Timeout, answered: t.Replied || t.Protocol == model.ProtocolTCP}, now)
			if c := l.cuts.flows[back]; c != nil && c.flow == back && at.failsafe(l.wall.settings, back) {
				l.cuts.stand(c, false) // the port stays open, also to who was denied
			}
			cut = true
		}
	}
	if cut {
		l.changeCuts()
		if !l.fence(ctx, now) || l.wall.err != nil {
			j = judgement{err: errors.New("the firewall does not take what could begin them anew")}
		}
	}
	q.judged <- j
}

// ephemeral is the first of the ports that Linux gives to who begins a connection
// (net.ipv4.ip_local_port_range in kernel documentation, networking/ip-sysctl).
const ephemeral = 32768

// isFromClient says whether a flow's ports are such as those of who begins a connection.
func isFromClient(f nft.Flow) bool { return f.SrcPort >= ephemeral && f.DstPort < ephemeral }

// mayBegin says whether the tracker takes any packet for the first of a
// connection. An answer of ICMP that nobody asked for is invalid.
func mayBegin(f nft.Flow) bool {
	return f.Protocol != model.ProtocolICMP && f.Protocol != model.ProtocolICMPv6
}
