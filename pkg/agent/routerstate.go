// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/agent/forward"
	"github.com/calico-go/calico/pkg/agent/probe"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/nft/beside"
	"github.com/calico-go/calico/pkg/policy"
)

// tunnelsPatience is how long a firewall that has not stood yet waits to hear
// from which hosts tunnels take packets. What a former run left stands meanwhile.
const tunnelsPatience = 2 * time.Second

// routerState is what the loop knows of the router, which runs beside it.
type routerState struct {
	configured bool            // it has the parameters
	news       *router.News    // the latest, nil = none yet
	deadline   time.Time       // when the firewall goes up without
	again      time.Time       // when that is to be seen to; zero = not
	closed     bool            // it did
	unsaid     []chan struct{} // closed when the firewall stands with the news
}

// noteNews takes in what the router has left.
func (l *loop) noteNews() {
	n, ok := l.handover.News.Take()
	if !ok {
		return
	}
	before := l.router.news
	l.router.news = &n
	l.reserve()
	l.firewall.SetTunnels(n.Tunnels)
	l.router.unsaid = append(l.router.unsaid, n.Stands)
	if before == nil || before.MTU != n.MTU {
		l.writeMTU()
		l.mtu.Set(n.MTU)
	}
}

// configureRouter hands the router the parameters, those that stand in etcd included.
func (l *loop) configureRouter() {
	if !l.router.configured {
		l.router.configured = true
		l.handover.Configure(routerSettings(l.params))
	}
}

// awaitsTunnels says whether a firewall that has not stood yet must wait to hear
// of tunnels: without, it would take packets out of them from anybody, and
// with none allowed, those of hosts that talk with this one would be lost. That is
// what it does in the end: nothing fails open.
func (l *loop) awaitsTunnels() bool {
	r := &l.router
	if !l.routed || r.news != nil || l.firewall.Applied() {
		return false
	}
	now := time.Now()
	if r.deadline.IsZero() {
		r.deadline = now.Add(tunnelsPatience)
	}
	if now.Before(r.deadline) {
		r.again = r.deadline
		return true
	}
	if !r.closed {
		r.closed = true
		l.log.Warn("it isn't known yet which hosts tunnels take packets from: they take none")
		l.firewall.SetTunnels(policy.Tunnels{VXLANPort: l.params.VXLANPort, IPIP: true})
	}
	return false
}

// tellStands tells that the firewall stands: the router, with the tunnels that it told of, and what lets workloads through
// iptables, which relies on it.
func (l *loop) tellStands() {
	if l.firewall.Err() != nil {
		return
	}
	var families board.Families
	families.V4, families.V6 = l.workload.Families()
	if l.system.forward != nil {
		d := forward.Desired{
			Desired: beside.Desired{Prefixes: l.params.InterfacePrefixes, Mode: l.params.ChainInsertMode}, Unready: l.params.UnreadyWhenBlocked, Families: families,
		}
		if l.router.news != nil {
			d.Blocks, d.VXLAN = l.router.news.Blocks, l.router.news.VXLAN
		}
		l.system.forward.Pass(d)
	}
	if l.system.probe != nil {
		d := probe.Desired{Prefix: l.params.InterfacePrefixes[0]}
		if l.params.ProbePath {
			d.Families = families
		}
		l.system.probe.Try(d)
	}
	for _, stands := range l.router.unsaid {
		close(stands)
	}
	l.router.unsaid = nil
}

// writeMTU keeps the file in which the plugin finds the MTU. Until the router has said
// what that is the file stays as a former run left it.
func (l *loop) writeMTU() {
	if l.router.news == nil {
		return
	}
	err := errNoUplink
	if mtu := l.router.news.MTU; mtu != 0 {
		if err = l.system.files.writeMTU(mtu); err != nil {
			err = fmt.Errorf("%d is not written, and the plugin takes what is in the file: %w", mtu, err)
		}
	}
	l.problems.Tell(problems.Host, "the MTU of workloads for the plugin", err)
}

var errNoUplink = errors.New("it is not known, as no network interface but the loopback is up, and the plugin takes what is in the file, or fails")

// connectProbe connects the workloads that try the path of packets, as pods are.
func (l *loop) connectProbe() {
	ends, ok := l.system.probe.Wired().Take()
	if !ok {
		return
	}
	own := make([]hostpath.Endpoint, 0, len(ends))
	for _, e := range ends {
		own = append(own, hostpath.Endpoint{Interface: e.Interface, MAC: e.MAC, Addrs: e.Addrs, Active: true})
	}
	l.workload.SetOwn(own)
	l.firewall.SetProbe(ends)
}
