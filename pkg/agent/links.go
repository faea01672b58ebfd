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
	// lookPause is the least time between two readings of the host's links that events cause.
	lookPause = 20 * time.Millisecond
	// readPause is the pause before a failed reading is retried.
	readPause = time.Second
	// ownLinks is the host's links' name in the ledger.
	ownLinks = "the host's interfaces"
	// ipvsLink is the link that kube-proxy creates in mode ipvs.
	ipvsLink = "kube-ipvs0"
)

// links are the host's own links as last read.
type links struct {
	own       map[netip.Addr]string // by address
	overtaken problems.Passing      // readings that failed because links changed meanwhile
	again     time.Time             // when to read them; zero = not
	looked    time.Time             // when they were last read, for a notice
	pause     time.Duration         // how long a notice causes no other reading
}

// look reads the host's own links and addresses again. Each look reads all of them: where links come and go by the hundred, looking takes
// at most a tenth of the time.
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

// readInterfaces reads the host's own interfaces. They place host endpoints, and no workload may have their addresses.
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

// reserve sets the addresses that no workload may have: this host's, other hosts', and those this host depends on. Otherwise the host would
// send their packets to the workload, and a correction in etcd could not arrive.
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
