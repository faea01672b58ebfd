// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/policy"
)

const (
	// lookPause is the least time between two readings of the host's links that events ask for.
	lookPause = 20 * time.Millisecond
	// readPause is when what could not be read is tried again.
	readPause = time.Second
	// ownLinks is what the ledger calls them.
	ownLinks = "the host's interfaces"
	// ipvsLink is what kube-proxy makes in mode ipvs.
	ipvsLink = "kube-ipvs0"
)

// links are the host's own links, as they were read last.
type links struct {
	own       map[netip.Addr]string // by address
	overtaken problems.Passing      // readings that changes overtook
	again     time.Time             // when they are to be read; zero = not
	looked    time.Time             // when they were, for a notice
	pause     time.Duration         // how long no notice has them read again
}

// look reads the host's own links and addresses anew. Where links come and go by
// the hundred it does so for a tenth of the time: each look reads all of them.
func (l *loop) look() {
	if since := time.Since(l.links.looked); since < l.links.pause {
		l.links.again = l.links.looked.Add(l.links.pause)
		return
	}
	start := time.Now()
	l.links.again = time.Time{}
	l.writeMTU()
	l.readInterfaces()
	l.unsettled = l.adoption.Review() || l.unsettled
	l.firewall.LinksChanged()
	l.links.looked = time.Now()
	l.links.pause = max(lookPause, 10*l.links.looked.Sub(start))
}

// readInterfaces learns the host's own interfaces, which host endpoints are found by, and
// whose addresses no workload may have.
func (l *loop) readInterfaces() {
	found, err := l.system.kernel.Interfaces(l.params.InterfacePrefixes)
	if err != nil {
		l.links.again = time.Now().Add(readPause)
	}
	if l.links.overtaken.Hide(err, time.Now()) {
		l.log.Debug("the host's interfaces changed while they were read, trying again", "err", err)
		return
	}
	l.reports.linksUnknown = err != nil
	if err != nil {
		l.problems.Tell(problems.Host, ownLinks, fmt.Errorf("they could not be read, and host endpoints stay on those that were known: %w", err))
		return
	}
	l.problems.Tell(problems.Host, ownLinks, nil)
	proxied := ""
	interfaces, own := make([]policy.Interface, 0, len(found)), map[netip.Addr]string{}
	for _, f := range found {
		for _, a := range f.Addrs {
			own[a] = f.Name
		}
		if f.Name == ipvsLink {
			proxied = "kube-proxy runs in mode ipvs, as the link " + ipvsLink + " shows, with which policy doesn't see services' pods: " +
				"run it in mode nftables or iptables (mode in its configuration), and clean up with kube-proxy --cleanup"
		}
		if !f.Loopback {
			interfaces = append(interfaces, policy.Interface{Name: f.Name, Addrs: f.Addrs})
		}
	}
	l.health.Set("kube-proxy", proxied)
	l.links.own = own
	l.reserve()
	l.firewall.SetInterfaces(interfaces)
}

// reserve tells whose addresses no workload may have: this host's, other hosts', and those of
// what this host can't do without. The host would send to the workload what is for them, and
// what puts it right in etcd would not arrive.
func (l *loop) reserve() {
	reserved := map[netip.Addr]string{}
	if news := l.router.news; news != nil {
		for a, link := range news.Routers {
			reserved[a] = "the router on " + link
		}
	}
	for _, a := range l.source.Needed() {
		reserved[a] = "etcd"
	}
	if news := l.router.news; news != nil {
		for a, name := range news.Hosts {
			reserved[a] = "host " + name
		}
	}
	for a, link := range l.links.own {
		reserved[a] = "this host, on " + link
	}
	l.workload.Reserve(reserved)
}
