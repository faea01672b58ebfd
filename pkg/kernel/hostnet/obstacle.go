// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
)

// Obstacle is a setting of the host that stops workloads' packets: a sysctl, or routing rules.
type Obstacle struct {
	What         string // "net.ipv4.…", "routes of IPv4", "routes of IPv6"
	Text         string // what it does, and the command that fixes it
	Pods4, Pods6 bool   // no workload is reached over the family
	Maybe        bool   // it may stop no packets
	Led          bool   // all packets of a family are diverted, which is as bad on a host that has the other family, too
}

// Obstacles finds them. The zero value is ready to use. It is not safe for concurrent use.
type Obstacles struct {
	filtered uint64  // packets that rp_filter dropped so far
	rounds   int     // consecutive rounds in which it dropped some
	turns    [2]turn // by family
}

// Find checks the settings of the host and of its links, except workloads' and tunnels, which are repaired.
func (o *Obstacles) Find(workloadPrefixes []string) (found []Obstacle, err error) {
	add := func(sysctl string, is, want int, what string) {
		text := fmt.Sprintf("%s is %d: %s: run sysctl -w %s=%d, and set it so in /etc/sysctl.d", sysctl, is, what, sysctl, want)
		found = append(found, Obstacle{What: sysctl, Text: text})
	}
	c, err := rtnl.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	// If link.HostGateway is a local address of the host, on no link, arp_ignore applies, unlike for proxied answers (arp_process).
	ignore, err := rtnl.ReadSysctl("ipv4/conf/all/arp_ignore")
	if r, ok := c.Lookup(link.HostGateway(), 0); ok && r.Local && ignore != 0 {
		add("net.ipv4.conf.all.arp_ignore", ignore, 0, "the host doesn't answer workloads that ask for their gateway "+link.HostGateway().String())
		found[0].Pods4 = true
	}
	strict, err2 := rtnl.ReadSysctl("ipv4/conf/all/rp_filter")
	dropped, err3 := o.dropped()
	links, err4 := link.Select(c, func(name string) bool {
		return !link.IsTunnelName(name) && !model.IsWorkloadInterface(name, workloadPrefixes)
	})
	for _, err := range []error{err, err2, err3, err4} {
		if err != nil {
			return nil, fmt.Errorf("look for settings that stop workloads' packets: %w", err)
		}
	}
	for _, l := range links {
		forwarding, known := l.Conf4.At(0) // linux/ip.h counts from 1
		filter, _ := l.Conf4.At(7)
		if !known || l.Loopback || !l.Up {
			continue
		}
		if forwarding == 0 && leadsOn(c, l) {
			add("net.ipv4.conf."+l.Name+".forwarding", 0, 1, "nothing that comes in by "+l.Name+" is forwarded to workloads")
		}
		if dropped > 0 && max(int(filter), strict) == 1 {
			add("net.ipv4.conf."+l.Name+".rp_filter", 1, 2,
				fmt.Sprintf("the host, on whichever link, dropped %d packets lately that did not come by the link to which the way back to their source leads; "+
					"that is noise from outside, or packets for workloads: if other hosts' don't reach them", dropped))
			found[len(found)-1].Maybe = true
		}
	}
	for i, family := range []int{unix.AF_INET, unix.AF_INET6} {
		diverted, err := divertedBy(c, family, workloadPrefixes, &o.turns[i])
		if err != nil {
			return nil, fmt.Errorf("look for rules that lead workloads' packets elsewhere: %w", err)
		}
		found = append(found, diverted...)
	}
	return found, nil
}

// leadsOn reports whether routes by the link have a gateway, or lead anywhere. Few links need this check.
func leadsOn(c *rtnl.Conn, l link.Link) (leads bool) {
	err := c.Routes(unix.AF_INET, netlink.Route{Type: unix.RTN_UNICAST}, netlink.RT_FILTER_TYPE, func(r netlink.Route) {
		leads = leads || r.LinkIndex == l.Index && (r.Gw != nil || r.Via != nil || rtnl.Prefix(r.Dst).Bits() == 0) ||
			slices.ContainsFunc(r.MultiPath, func(h *netlink.NexthopInfo) bool { return h.LinkIndex == l.Index })
	})
	return leads && err == nil
}

// dropped returns how many packets rp_filter has dropped since the last round in the thread's namespace; 0 if it dropped none in the round
// before. The firewall drops workloads' forged packets before they get there.
func (o *Obstacles) dropped() (since uint64, err error) {
	b, err := os.ReadFile("/proc/thread-self/net/netstat")
	if err != nil {
		return 0, err
	}
	total := uint64(0)
	lines := strings.Split(string(b), "\n") // names and values alternate
	for i := 0; i+1 < len(lines); i += 2 {
		values := strings.Fields(lines[i+1])
		if at := slices.Index(strings.Fields(lines[i]), "IPReversePathFilter"); at > 0 && at < len(values) {
			total, err = strconv.ParseUint(values[at], 10, 64)
		}
	}
	before := o.filtered
	if o.filtered = total; total <= before {
		o.rounds = 0
		return 0, err
	}
	if o.rounds++; o.rounds < 2 { // the first may have been any time ago
		return 0, err
	}
	return total - before, err
}
