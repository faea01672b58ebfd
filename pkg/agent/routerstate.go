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

// tunnelsPatience is how long a firewall that has not been applied yet waits to learn which hosts tunnels accept packets from. Meanwhile a
// former run's rules stay.
const tunnelsPatience = 2 * time.Second

// routerState is what the loop knows of the router, which runs beside it.
type routerState struct {
	configured bool            // it has the parameters
	news       *router.News    // the latest, nil = none yet
	deadline   time.Time       // when the firewall is applied without news
	again      time.Time       // when to check the deadline; zero = not
	closed     bool            // it was applied without news
	unsaid     []chan struct{} // closed when the firewall has been applied with the news
}

// noteNews takes in the router's news.
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

// configureRouter passes the parameters to the router, including those in etcd.
func (l *loop) configureRouter() {
	if !l.router.configured {
		l.router.configured = true
		l.handover.Configure(routerSettings(l.params))
	}
}

// awaitsTunnels reports whether a firewall that has not been applied yet must wait for news of tunnels. Without it, the firewall would
// accept tunnelled packets from any host; accepting none would lose those of hosts that talk with this one. After the deadline it accepts
// none: nothing fails open.
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

// tellStands reports that the firewall has been applied: to the router, whose tunnels it covers, and to the rules that let workloads
// through iptables, which rely on it.
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

// writeMTU keeps the file that gives the plugin the MTU. Until the router reports an MTU, the file stays as a former run left it.
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

// connectProbe connects the workloads that probe the packets' path, as pods are connected.
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
