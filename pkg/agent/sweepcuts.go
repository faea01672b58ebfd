// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
)

// A connection is cut by deleting it from the tracker. Where policy would let the
// side that answers begin one, its next packet would be the first of a connection
// the other way round, and what the side that is denied sends would pass as its
// answers. So the firewall has such flows in a set, and drops what would begin them.

const (
	// maxCuts is how many flows are kept; the oldest go first.
	maxCuts = 1 << 16
	// leastCut is how long a flow is kept at least: the tracker forgets what is
	// no TCP, or about to end, sooner than those who talk give it up.
	leastCut = 10 * time.Minute
	// tcpCut is how long the tracker keeps an established connection of TCP unless
	// it is told otherwise (nf_conntrack_tcp_timeout_established).
	tcpCut = 5 * 24 * time.Hour
)

// cuts are the flows of connections that were cut which could begin them anew.
type cuts struct {
	flows map[nft.Flow]*cut
	most  int
	least time.Duration
	last  uint64
}

// cut is one of them.
type cut struct {
	number  uint64 // the older the lower
	until   time.Time
	lasts   time.Duration
	dropped uint64 // packets, as far as looked at
	// stands: policy denies what was cut, so that the firewall has the flow. One
	// that policy allows again is kept as well: if it goes on, whoever sends
	// first begins it, and if policy denies it again, that counts as before.
	stands bool
}

func newCuts() cuts {
	return cuts{flows: map[nft.Flow]*cut{}, most: maxCuts, least: leastCut}
}

// add keeps a flow for as long as the tracker would have known its connection.
func (c *cuts) add(f nft.Flow, lasts time.Duration, dropped uint64, now time.Time) {
	c.last++
	lasts = max(lasts, c.least)
	c.flows[f] = &cut{number: c.last, until: now.Add(lasts), lasts: lasts, dropped: dropped, stands: true}
}

// trim forgets the oldest of too many, and returns them.
func (c *cuts) trim() []nft.Flow {
	over := len(c.flows) - c.most
	if over <= 0 {
		return nil
	}
	oldest := slices.SortedFunc(maps.Keys(c.flows), func(a, b nft.Flow) int {
		return cmp.Compare(c.flows[a].number, c.flows[b].number)
	})[:over]
	for _, f := range oldest {
		delete(c.flows, f)
	}
	return oldest
}

// next is when the first of them has had its time, zero where there is none.
func (c *cuts) next() time.Time {
	var first time.Time
	for _, cut := range c.flows {
		if first.IsZero() || cut.until.Before(first) {
			first = cut.until
		}
	}
	return first
}

// changeCuts tells the firewall, and sets the timer.
func (l *loop) changeCuts(added, removed []nft.Flow) {
	trimmed := l.cuts.trim()
	if len(trimmed) > 0 {
		l.log.Warn("too many connections were cut to keep all in mind: the oldest may go on if the side that answered sends", "forgotten", len(trimmed), "kept", l.cuts.most)
	}
	l.firewall.Cut(added, append(removed, trimmed...))
	if next := l.cuts.next(); next.IsZero() {
		l.expiry.Stop()
	} else {
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
		l.cuts.add(f, lasts, dropped, now)
	}
	l.changeCuts(slices.Collect(maps.Keys(found)), nil)
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
		return now || later || w.all || !w.applied
	}
	var at *places
	var added, removed []nft.Flow
	for f, cut := range l.cuts.flows {
		if !suspect(f.Src) && !suspect(f.Dst) {
			continue
		}
		if at == nil {
			at = newPlaces(w.state, l.system.interfaceTo)
		}
		denied := at.denies(w.settings, answers(f))
		switch {
		case denied && !cut.stands:
			added = append(added, f)
		case !denied && cut.stands:
			removed = append(removed, f)
		}
		cut.stands = denied
	}
	if len(added)+len(removed) > 0 {
		l.changeCuts(added, removed)
	}
}

// forgetCuts forgets the flows of addresses that are no longer the endpoint's that had them.
func (l *loop) forgetCuts(addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	var removed []nft.Flow
	for f := range l.cuts.flows {
		if slices.Contains(addrs, f.Src) || slices.Contains(addrs, f.Dst) {
			delete(l.cuts.flows, f)
			removed = append(removed, f)
		}
	}
	if len(removed) > 0 {
		l.changeCuts(nil, removed)
	}
}

// expireCuts forgets the flows that have had their time and are sent no more.
func (l *loop) expireCuts() {
	dropped, err := l.firewall.ReadCut()
	if err != nil {
		l.log.Warn("what the firewall dropped of cut connections could not be read, trying again", "err", err)
		l.expiry.Reset(l.cuts.least)
		return
	}
	now := time.Now()
	var removed []nft.Flow
	for f, cut := range l.cuts.flows {
		switch n := dropped[f]; {
		case now.Before(cut.until):
		case cut.stands && n != cut.dropped:
			cut.dropped, cut.until = n, now.Add(cut.lasts)
		default:
			delete(l.cuts.flows, f)
			removed = append(removed, f)
		}
	}
	l.changeCuts(nil, removed)
}

// judge tells the connections that policy denies now from those that it allows,
// and has the firewall drop what could begin the former anew. Those on which
// policy has no say are allowed. So are those that ran before the tracker did and
// whose answers, so it seems, are for a fail-safe port: on a host that has had no
// firewall these are the agent's own to etcd and the operator's by SSH.
func (l *loop) judge(ctx context.Context, q inquiry) {
	at := newPlaces(l.wall.state, l.system.interfaceTo)
	now := time.Now()
	j := judgement{denied: make([]bool, len(q.connections))}
	var added []nft.Flow
	for i, t := range q.connections {
		f := began(t.Connection)
		known := !t.PickedUp || l.cuts.flows[answers(f)] != nil
		if l.cuts.flows[f] != nil {
			f, known = answers(f), true // it was begun by this side, and has gone on
		}
		if j.denied[i] = at.denies(l.wall.settings, f); !j.denied[i] {
			continue
		}
		if !known && at.failsafe(l.wall.settings, answers(f)) {
			j.denied[i] = false // it may have been begun by the other side
			continue
		}
		if back := answers(f); mayBegin(back) && !at.denies(l.wall.settings, back) {
			l.cuts.add(back, t.Timeout, 0, now)
			added = append(added, back)
		}
	}
	if len(added) > 0 {
		l.changeCuts(added, nil)
		if !l.fence(ctx, now) || l.wall.err != nil {
			j = judgement{err: errors.New("the firewall does not take what could begin them anew")}
		}
	}
	q.judged <- j
}

// mayBegin says whether the tracker takes any packet for the first of a
// connection. An answer of ICMP that nobody asked for is invalid.
func mayBegin(f nft.Flow) bool {
	return f.Protocol != model.ProtocolICMP && f.Protocol != model.ProtocolICMPv6
}
