// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
)

// workloadRoutes returns the workloads' addresses of a family that have routes, with the indexes of their links.
func workloadRoutes(c *rtnl.Conn, family int) (map[netip.Addr]int, error) {
	routes := map[netip.Addr]int{}
	ours := netlink.Route{Protocol: link.RouteProtocol, Type: unix.RTN_UNICAST}
	err := c.Routes(family, ours, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE, func(r netlink.Route) {
		routes[rtnl.Prefix(r.Dst).Addr()] = r.LinkIndex
	})
	return routes, err
}

// maxAsked is about how many addresses the kernel is asked about in a round, and maxAgain how many of them because they were diverted in
// the one before.
const (
	maxAsked = 32
	maxAgain = 8
)

// turn says which addresses to ask about next, if workloads have more than maxAsked.
type turn struct {
	round int
	lost  []netip.Addr // diverted in the round before
}

// pick returns a share of the addresses, spread over all, so that each has its turn after some rounds: what holds for all of a share may
// hold for all addresses.
func (t turn) pick(routes map[netip.Addr]int) []netip.Addr {
	addrs, every := slices.SortedFunc(maps.Keys(routes), netip.Addr.Compare), 1
	if len(addrs) > maxAsked {
		every += (len(addrs) - 1) / (maxAsked - maxAgain)
	}
	var picked []netip.Addr
	for i, a := range addrs {
		if i%every == t.round%every || slices.Contains(t.lost, a) {
			picked = append(picked, a)
		}
	}
	return picked
}

// divertedBy returns an obstacle if the kernel sends packets for workloads elsewhere than their routes say. Rules of VPN clients do that:
// they look into a table with a default route before main. So does the absence of a rule for main. Most such rules divert only other
// packets, so divertedBy asks the kernel.
func divertedBy(c *rtnl.Conn, family int, workloadPrefixes []string, t *turn) ([]Obstacle, error) {
	rules, err := rtnl.Dump(func() ([]netlink.Rule, error) { return c.RuleList(family) })
	if err != nil {
		return nil, err
	}
	found, err := unruled(c, family, rules)
	if err != nil || lookedInto(rules, unix.RT_TABLE_MAIN) && !slices.ContainsFunc(rules, func(r netlink.Rule) bool { return !isUsual(r) }) {
		return found, err
	}
	routes, err := workloadRoutes(c, family)
	if err != nil {
		return nil, err
	}
	lost, asked := map[netip.Addr]netlink.Route{}, t.pick(routes)
	*t = turn{round: t.round + 1}
	for _, a := range asked {
		if r, is := divertedTo(c, a, routes[a]); is {
			lost[a] = r
		}
	}
	if len(lost) == 0 {
		return found, nil
	}
	still, err := workloadRoutes(c, family) // workloads come and go
	maps.DeleteFunc(lost, func(a netip.Addr, _ netlink.Route) bool { return still[a] != routes[a] })
	links, err2 := link.Select(c, func(name string) bool { return model.IsWorkloadInterface(name, workloadPrefixes) })
	if err := errors.Join(err, err2); err != nil || len(lost) == 0 {
		return found, err
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(lost)), netip.Addr.Compare)
	probes, all := map[int]bool{}, true
	for _, l := range links {
		probes[l.Index] = l.Alias == link.ProbeAlias
	}
	for _, a := range asked {
		_, is := lost[a]
		all = all && (is || probes[routes[a]] || still[a] != routes[a])
		if is && len(t.lost) < maxAgain {
			t.lost = append(t.lost, a)
		}
	}
	o := Obstacle{What: "routes of IPv4", Text: describe(c, first, lost[first], rules), Pods4: all, Led: all}
	if family == unix.AF_INET6 {
		o = Obstacle{What: "routes of IPv6", Text: o.Text, Pods6: all, Led: all}
	}
	if len(lost) > 1 {
		o.Text = fmt.Sprintf("%d of %d addresses of workloads that were asked about are led away: %s", len(lost), len(asked), o.Text)
	}
	return append(found, o), nil
}

// lookedInto reports whether a rule, for any packets, looks into a table.
func lookedInto(rules []netlink.Rule, table int) bool {
	return slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Table == table && !r.Invert })
}

// unruled returns the tables, other than main, that every host looks into and that have routes but no rule.
func unruled(c *rtnl.Conn, family int, rules []netlink.Rule) (found []Obstacle, err error) {
	command, version := "ip", "IPv4"
	if family == unix.AF_INET6 {
		command, version = "ip -6", "IPv6"
	}
	for _, t := range []struct{ table, priority int }{{unix.RT_TABLE_LOCAL, 0}, {unix.RT_TABLE_DEFAULT, 32767}} {
		if lookedInto(rules, t.table) {
			continue
		}
		routes := 0
		err = errors.Join(err, c.Routes(family, netlink.Route{Table: t.table}, netlink.RT_FILTER_TABLE, func(netlink.Route) { routes++ }))
		if routes > 0 {
			name := map[int]string{unix.RT_TABLE_LOCAL: "local", unix.RT_TABLE_DEFAULT: "default"}[t.table]
			found = append(found, Obstacle{What: "rule of table " + name + " of " + version, Text: fmt.Sprintf(
				"no rule of %s looks into table %s, which has %d routes: run %s rule add priority %d lookup %s, and see to it that nobody deletes it again",
				version, name, routes, command, t.priority, name)})
		}
	}
	return found, err
}

// isUsual reports whether a rule is one that every host has. The routes of main and local are no rule's fault.
func isUsual(r netlink.Rule) bool {
	return r.Table == unix.RT_TABLE_MAIN || r.Table == unix.RT_TABLE_LOCAL || r.Table == unix.RT_TABLE_DEFAULT
}

// divertedTo returns the route that the kernel takes to an address if it isn't by the address's link: for the host's own packets, or for
// workloads'. The kernel may refuse the latter for other reasons; only a way back that leads elsewhere counts (rp_filter's EXDEV, EINVAL in
// newer kernels).
func divertedTo(c *rtnl.Conn, a netip.Addr, index int) (netlink.Route, bool) {
	for _, options := range []*netlink.RouteGetOptions{{}, {SrcAddr: rtnl.IP(a), IifIndex: index}} {
		found, err := c.RouteGetWithOptions(rtnl.IP(a), options)
		switch {
		case err == nil && len(found) > 0 && found[0].LinkIndex != index:
			return found[0], true
		case err != nil && options.IifIndex == 0, errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL):
			return netlink.Route{}, true
		}
	}
	return netlink.Route{}, false
}

// describe says where a workload's packets are diverted to, by which rule, and how to fix it. If the kernel answered with an error there is
// no table: the cause is a rule without a table, which refuses, or one for packets from the workload.
func describe(c *rtnl.Conn, a netip.Addr, r netlink.Route, rules []netlink.Rule) string {
	to := "nowhere"
	if l, err := link.Get(c, r.LinkIndex, ""); err == nil && r.LinkIndex != 0 {
		to = fmt.Sprintf("to %s by table %d", l.Name, r.Table)
	}
	command, which := "ip", ""
	if a.Is6() {
		command = "ip -6"
	}
	if !lookedInto(rules, unix.RT_TABLE_MAIN) {
		return fmt.Sprintf("packets for the workload %s are led %s, as no rule looks into table main: run %s rule add priority 32766 lookup main, "+
			"and see to it that nobody deletes it again", a, to, command)
	}
	for _, rule := range rules {
		forOthers := rule.Mark != 0 && !rule.Invert
		if !isUsual(rule) && !forOthers && rule.Goto < 0 && (rule.Table == r.Table || r.Table == 0 && rule.Src != nil && rule.Src.Contains(rtnl.IP(a))) {
			which = fmt.Sprintf(", by the rule of priority %d: run %s rule add priority %d lookup main suppress_prefixlength 0, "+
				"and have it added at boot", rule.Priority, command, max(rule.Priority-1, 0))
			if rule.Table == unix.RT_TABLE_UNSPEC { // it also refuses the way to the gateway
				which = fmt.Sprintf(", by the rule of priority %d: run %s rule del priority %d, and have it added no more", rule.Priority, command, rule.Priority)
			}
			break
		}
	}
	if which == "" {
		which = fmt.Sprintf(": %s rule and %s route get %s show why", command, command, a)
	}
	return fmt.Sprintf("packets for the workload %s are led %s%s", a, to, which)
}
