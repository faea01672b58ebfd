// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/policy"
)

const (
	// routesPatience is how long a firewall that has not stood yet waits to hear
	// from which hosts tunnels take packets. What a former run left stands meanwhile.
	routesPatience = 2 * time.Second
	// shrinkGrace is how long after the MTU went down workloads may still be made
	// by the former one.
	shrinkGrace = time.Minute
	// shrinkPatience is how long a smaller MTU stands before workloads that run get it:
	// they never get the greater one back. Until then the host answers what is too large
	// with ICMP.
	shrinkPatience = 10 * time.Second
)

// route is what the loop knows of the way to other hosts, and does with it.
type route struct {
	attached   bool         // there is a router
	configured bool         // it has the parameters
	news       *router.News // the latest, nil = none yet
	deadline   time.Time    // when the firewall goes up without
	closed     bool         // it did
	// unsaid are closed when the firewall stands with the news.
	unsaid []chan struct{}

	mtu int // to which workloads were last shrunk, 0 = not yet
	// lower receives when a smaller one has stood for long enough; nil = there is none.
	lower     <-chan time.Time
	until     time.Time // until when that is done again
	fresh     bool      // workloads' interfaces came or changed since
	due       bool      // it is to be done now
	shrinking bool
	done      chan shrunk
	problem   string // what was logged last
}

// shrunk is how it went to give workloads a smaller MTU.
type shrunk struct {
	mtu, changed int
	err          error
}

// noteRoutes takes in what the router has left.
func (l *loop) noteRoutes() {
	n, ok := l.handover.News.Take()
	if !ok {
		return
	}
	before := l.route.news
	l.route.news = &n
	maps.Copy(l.dirty, l.state.setHosts(n.Hosts).endpoints)
	l.readNeeded()
	l.setTunnels(n.Tunnels)
	l.route.unsaid = append(l.route.unsaid, n.Stands)
	if before != nil && before.MTU == n.MTU {
		return
	}
	l.mtu()
	l.route.lower = nil
	switch {
	case n.MTU == 0: // there is no uplink, or none yet
	case l.route.mtu == 0, n.MTU < l.route.mtu: // at the start, it may have gone down while no agent ran
		l.route.lower = time.After(shrinkPatience)
	default:
		l.route.mtu = n.MTU
	}
}

// lowered takes in that a smaller MTU has stood for long enough.
func (l *loop) lowered() {
	l.route.lower, l.route.mtu = nil, l.route.news.MTU
	l.measure()
}

// setTunnels tells both of the firewall and of what judges connections. One that a
// workload began before there was a tunnel may be what only tunnels may send now.
func (l *loop) setTunnels(t policy.Tunnels) {
	before := l.wall.state.Tunnels
	l.wall.work.All = l.wall.work.All || t.VXLANPort != before.VXLANPort || t.IPIP != before.IPIP
	l.wall.mu.Lock()
	l.wall.state.Tunnels = t
	l.wall.mu.Unlock()
	l.firewall.Tunnels(t)
}

// measure has running workloads looked at for what exceeds the MTU, now and once more.
func (l *loop) measure() {
	l.route.until, l.route.due, l.route.fresh = time.Now().Add(shrinkGrace), true, true
}

// tellRouter hands the router the parameters, those that stand in etcd included.
func (l *loop) tellRouter() {
	if !l.route.configured {
		l.route.configured = true
		l.handover.Configure(l.params)
	}
}

// awaitsRoutes says whether a firewall that has not stood yet must wait to hear
// of tunnels: without, it would take packets out of them from anybody, and
// with none allowed, those of hosts that talk with this one would be lost. That is
// what it does in the end: nothing fails open.
func (l *loop) awaitsRoutes(now time.Time) bool {
	r := &l.route
	if !r.attached || r.news != nil || l.wall.applied {
		return false
	}
	if r.deadline.IsZero() {
		r.deadline = now.Add(routesPatience)
	}
	if left := r.deadline.Sub(now); left > 0 {
		l.retry.Reset(left)
		return true
	}
	if !r.closed {
		r.closed = true
		l.log.Warn("it isn't known yet which hosts tunnels take packets from: they take none")
		l.setTunnels(policy.Tunnels{VXLANPort: l.params.VXLANPort, IPIP: true})
	}
	return false
}

// tellStands tells the router that the firewall stands with the tunnels that it told of.
func (l *loop) tellStands() {
	if l.wall.err != nil {
		return
	}
	for _, stands := range l.route.unsaid {
		close(stands)
	}
	l.route.unsaid = nil
}

// mtu keeps the file in which the plugin finds the MTU. Until the router has said
// what that is the file stays as a former run left it.
func (l *loop) mtu() {
	if l.route.news == nil {
		return
	}
	err, mtu := errNoUplink, l.route.news.MTU
	if mtu != 0 {
		err = l.system.writeMTU(mtu)
	}
	text := problems.Reason(err)
	switch {
	case text == "", text == l.mtuProblem:
	case mtu != 0:
		l.log.Warn("the MTU of workloads is not left for the plugin, which takes what is in the file, or 1500", "mtu", mtu, "reason", text)
	default:
		l.log.Warn("the MTU of workloads is not known; the plugin takes what is in the file, or 1500", "reason", text)
	}
	l.mtuProblem = text
}

var errNoUplink = errors.New("no network interface but the loopback is up")

// shrink gives running workloads the MTU of new ones, where that is less. It is
// done beside the loop: each workload's namespace has to be found and opened.
func (l *loop) shrink(ctx context.Context) {
	r := &l.route
	if !r.due || r.shrinking || l.path == nil {
		return
	}
	r.due = false
	if !l.params.MTULiveUpdate || r.mtu == 0 {
		return
	}
	r.shrinking = true
	path, mtu := l.path, r.mtu
	l.flushes.Go(func() {
		changed, err := path.ShrinkMTU(ctx, mtu)
		select {
		case r.done <- shrunk{mtu, changed, err}:
		case <-l.stopped:
		}
	})
}

// noteShrunk takes in how that went.
func (l *loop) noteShrunk(s shrunk) {
	r := &l.route
	r.shrinking = false
	if s.changed > 0 {
		l.log.Info("workloads have a smaller MTU now", "mtu", s.mtu, "workloads", s.changed)
	}
	text := problems.Reason(s.err)
	if text != "" && text != r.problem {
		l.log.Warn("not all workloads have the smaller MTU: some of what they send may be lost", "mtu", s.mtu, "reason", text)
	}
	r.problem = text
	r.fresh = r.fresh || s.err != nil
}
