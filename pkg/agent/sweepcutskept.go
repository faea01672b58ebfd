// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/nft"
)

const (
	// leastCut is how long a flow is kept at least: the tracker forgets what is
	// no TCP, or about to end, sooner than those who talk give it up.
	leastCut = 10 * time.Minute
	// leastAwaited is how long one that nobody answered yet is kept at least: the
	// tracker waits so long for an answer (nf_conntrack_udp_timeout).
	leastAwaited = 30 * time.Second
	// tcpCut is how long the tracker keeps an established connection of TCP unless
	// it is told otherwise (nf_conntrack_tcp_timeout_established).
	tcpCut = 5 * 24 * time.Hour
)

// cutLimits say how much is kept of what was cut. How many connections there are
// is up to those who are denied, so that none of the flows is forgotten for being
// one too many: a coarse one takes their place, that drops what they would and more.
type cutLimits struct {
	pair    int // from one address to another
	address int // from one address, and to one; of one port, and of all
	all     int
	known   int // flows that coarse ones stand for
}

var defaultCutLimits = cutLimits{pair: 256, address: 1 << 14, all: 1 << 16, known: 1 << 17}

// cuts are the flows of connections that were cut which could begin them anew.
type cuts struct {
	flows  map[nft.Flow]*cut // that are known
	kept   map[nft.Flow]*cut // as the firewall has them
	count  map[nft.Flow]int  // of those kept, by each coarser one
	told   map[nft.Flow]bool // what the firewall is still to have, or to lose
	merged int               // coarse flows since it was told
	limits cutLimits
	least  time.Duration
}

// cut is one of those kept.
type cut struct {
	flow    nft.Flow
	of      []nft.Flow // those that it stands for: itself, or many
	more    bool       // and others that are not known
	asked   int        // so many of them policy allows
	pending bool       // policy is to be asked about the rest
	until   time.Time
	lasts   time.Duration
	dropped uint64 // packets, as far as looked at
	// answered: so was one of the connections. Of others anybody can make as many as
	// he likes, by addresses of others.
	answered bool
	// stands: policy denies what was cut, so that the firewall has the flow. One
	// that policy allows again is kept as well: if it goes on, whoever sends
	// first begins it, and if policy denies it again, that counts as before.
	stands bool
}

func newCuts() cuts {
	return cuts{flows: map[nft.Flow]*cut{}, kept: map[nft.Flow]*cut{}, count: map[nft.Flow]int{}, told: map[nft.Flow]bool{},
		limits: defaultCutLimits, least: leastCut}
}

// former is a flow of a connection that was cut.
type former struct {
	flow     nft.Flow
	lasts    time.Duration // so long the tracker would have known it
	dropped  uint64        // packets, so far
	answered bool
}

// add keeps a flow for as long as the tracker would have known its connection, and
// longer where that was answered.
func (s *cuts) add(o former, now time.Time) {
	f := o.flow
	c := s.holder(f)
	if c == nil {
		c = &cut{flow: f, dropped: o.dropped}
		s.keep(c)
	}
	switch {
	case f.IsCoarse(): // of another agent, which knew of what
		c.more = true
	case s.flows[f] != nil:
	case c.flow != f && len(s.flows) >= s.limits.known:
		c.more = true
	default:
		s.flows[f], c.of = c, append(c.of, f)
	}
	if o.answered {
		o.lasts, c.answered = max(o.lasts, s.least), true
	}
	o.lasts = max(o.lasts, min(leastAwaited, s.least))
	c.live(now.Add(o.lasts), o.lasts)
	s.stand(c, true)
	for _, k := range f.Coarser() {
		limit := s.limits.address
		if k.Src.IsValid() && k.Dst.IsValid() {
			limit = s.limits.pair
		}
		if s.count[k] > limit {
			s.crowd(k)
		}
	}
	for len(s.kept) > s.limits.all && s.crowdMost() {
	}
}

// holder is what the firewall has a flow by, nil where it hasn't.
func (s *cuts) holder(f nft.Flow) *cut {
	if c := s.flows[f]; c != nil {
		return c
	}
	if c := s.kept[f]; c != nil {
		return c
	}
	for _, k := range f.Coarser() {
		if c := s.kept[k]; c != nil {
			return c
		}
	}
	return nil
}

func (s *cuts) keep(c *cut) {
	s.kept[c.flow] = c
	for _, k := range c.flow.Coarser() {
		s.count[k]++
	}
}

// leave has one no longer kept; the flows that it stands for are not looked at.
func (s *cuts) leave(c *cut) {
	s.stand(c, false)
	delete(s.kept, c.flow)
	for _, k := range c.flow.Coarser() {
		if s.count[k]--; s.count[k] == 0 {
			delete(s.count, k)
		}
	}
}

// forget has one no longer kept, with all that it stands for.
func (s *cuts) forget(c *cut) {
	s.leave(c)
	for _, f := range c.of {
		delete(s.flows, f)
	}
}

func (s *cuts) stand(c *cut, stands bool) {
	if c.stands != stands {
		c.stands, s.told[c.flow] = stands, stands
	}
}

// live has it last longer.
func (c *cut) live(until time.Time, lasts time.Duration) {
	if until.After(c.until) {
		c.until = until
	}
	c.lasts = max(c.lasts, lasts)
}

// crowd has fewer take the place of the flows that a coarse one has. A wide one shuts
// what has nothing to do with them, so it is the last that is tried: first come its
// ports, those with the most flows before others, and then what nobody answered is forgotten.
func (s *cuts) crowd(k nft.Flow) {
	if !k.IsWide() {
		s.merge(k)
		return
	}
	enough := s.count[k] / 2 // that it isn't done for each that is added
	var ports []nft.Flow
	for p, n := range s.count {
		if n > 1 && !p.IsWide() && !p.AnyPorts && slices.Contains(p.Coarser(), k) {
			ports = append(ports, p)
		}
	}
	slices.SortFunc(ports, func(a, b nft.Flow) int { return s.count[b] - s.count[a] })
	left := s.count[k]
	for i, p := range ports {
		if left <= enough {
			ports = ports[:i]
			break
		}
		left -= s.count[p] - 1
	}
	if len(ports) > 0 {
		s.merge(ports...)
	}
	if s.count[k] > enough {
		for f, c := range s.kept {
			if !c.answered && slices.Contains(f.Coarser(), k) {
				s.forget(c)
			}
		}
	}
	if s.count[k] > enough {
		s.merge(k)
	}
}

// merge has coarse flows take the place of all that they have.
func (s *cuts) merge(coarse ...nft.Flow) {
	into := make(map[nft.Flow]*cut, len(coarse))
	for _, k := range coarse {
		m := s.kept[k]
		if m == nil {
			m = &cut{flow: k}
			s.keep(m)
		}
		into[k] = m
	}
	for f, c := range s.kept {
		for _, k := range f.Coarser() {
			if m := into[k]; m != nil {
				s.absorb(m, c)
				break
			}
		}
	}
	for _, m := range into {
		if over := len(s.flows) - s.limits.known; over > 0 {
			n := max(len(m.of)-over, 0)
			for _, f := range m.of[n:] {
				delete(s.flows, f)
			}
			m.of, m.asked, m.more = m.of[:n:n], 0, true
		}
	}
	s.merged += len(coarse)
}

// absorb has one stand for all that another does.
func (s *cuts) absorb(m, c *cut) {
	s.stand(m, m.stands || c.stands)
	s.leave(c)
	for _, f := range c.of {
		s.flows[f] = m
	}
	m.of = append(m.of, c.of...)
	m.more = m.more || c.more
	m.pending = m.pending || c.pending
	m.answered = m.answered || c.answered
	m.live(c.until, c.lasts)
}

// crowdMost does so where there is the most to gain, if anywhere.
func (s *cuts) crowdMost() bool {
	var most nft.Flow
	n := 1
	for k, count := range s.count {
		if count > n {
			most, n = k, count
		}
	}
	if n > 1 {
		s.crowd(most)
	}
	return n > 1
}

// expire forgets one that has had its time, unless it is still met: then it has as
// long again. That goes for what is known of alone, and for nothing that would shut
// whatever the ports because of what nobody ever answered.
func (s *cuts) expire(c *cut, dropped uint64, now time.Time) {
	switch {
	case now.Before(c.until):
	case c.stands && dropped != c.dropped && len(c.of) > 0 && (c.answered || c.flow.Ported()):
		c.dropped, c.until = dropped, now.Add(c.lasts)
		c.more, c.pending = false, c.pending || c.more
	default:
		s.forget(c)
	}
}

// take returns what to tell the firewall.
func (s *cuts) take() (added, removed []nft.Flow, merged int) {
	for f, stands := range s.told {
		if stands {
			added = append(added, f)
		} else {
			removed = append(removed, f)
		}
	}
	clear(s.told)
	merged, s.merged = s.merged, 0
	return added, removed, merged
}

// review asks policy of the flows whether it denies what began them, of a coarse
// one only as many as the budget allows. Until all were asked, and where not all are
// known, it counts as denied.
func (s *cuts) review(c *cut, denies func(nft.Flow) bool, budget *int) {
	for ; c.asked < len(c.of); c.asked++ {
		if len(c.of) > 1 {
			if *budget--; *budget < 0 {
				c.pending = true
				s.stand(c, true)
				return
			}
		}
		if f := c.of[c.asked]; denies(answers(f)) {
			// The next time it is the first to be asked.
			c.of[0], c.of[c.asked] = f, c.of[0]
			c.asked, c.pending = 0, false
			s.stand(c, true)
			return
		}
	}
	c.asked, c.pending = 0, false
	s.stand(c, c.more)
}

// forgetAddrs forgets the flows with one of the addresses.
func (s *cuts) forgetAddrs(addrs []netip.Addr) {
	gone := func(f nft.Flow) bool { return slices.Contains(addrs, f.Src) || slices.Contains(addrs, f.Dst) }
	for _, c := range s.kept {
		if gone(c.flow) {
			s.forget(c)
			continue
		}
		if !c.flow.IsCoarse() {
			continue
		}
		c.of = slices.DeleteFunc(c.of, func(f nft.Flow) bool {
			if gone(f) {
				delete(s.flows, f)
				return true
			}
			return false
		})
		c.asked = 0
		if len(c.of) == 0 && !c.more {
			s.forget(c)
		}
	}
}

// next is when the first of them has had its time, zero where there is none.
func (s *cuts) next() time.Time {
	var first time.Time
	for _, c := range s.kept {
		if first.IsZero() || c.until.Before(first) {
			first = c.until
		}
	}
	return first
}

// isPending says that policy is still to be asked about some.
func (s *cuts) isPending() bool {
	for _, c := range s.kept {
		if c.pending {
			return true
		}
	}
	return false
}
