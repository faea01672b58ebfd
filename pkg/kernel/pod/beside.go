// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A workload may have several interfaces. The routes of the first win; packets from an address of a later one use a table of their own,
// with a default route by that interface. The host accepts a source address only from its own interface.

const (
	// besideTable plus a link's index is the number of its table.
	besideTable = 80000
	// besidePriority is after the local table's and before the main one's. Rules created without a priority come later.
	besidePriority = 30000
)

// far returns an address that no network has (RFC 5737, RFC 3849): a route to it is a default route.
func far(v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{192, 0, 2, 1})
	}
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1})
}

// hasRoutes reports, before a workload's link has routes, whether another link has: a default route or, for IPv4, one to the gateway that
// all our links have.
func (n *Namespace) hasRoutes() bool {
	_, v4 := n.conn.Lookup(link.HostGateway(), 0)
	_, v6 := n.conn.Lookup(far(false), 0)
	return v4 || v6
}

// tableMetrics are the metrics of a table's routes to each destination.
type tableMetrics struct{ mine, others map[netip.Prefix][]uint32 }

// routeMetrics reads the metrics of the link's routes in a table, and of all others there.
func (n *Namespace) routeMetrics(index int, table uint32) (tableMetrics, error) {
	t := tableMetrics{make(map[netip.Prefix][]uint32), make(map[netip.Prefix][]uint32)}
	for _, family := range families() {
		err := n.eachRoute(family, table, func(r rtnl.Route) {
			of := t.others
			if r.Index == index {
				of = t.mine
			}
			of[r.Dst.Masked()] = append(of[r.Dst.Masked()], r.Metric)
		})
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

// isBeside reports whether another link's routes come before those of a link that may have some already.
func (n *Namespace) isBeside(index int) (bool, error) {
	t, err := n.routeMetrics(index, 0)
	if err != nil {
		return false, err
	}
	for _, dst := range []netip.Prefix{rtnl.HostPrefix(link.HostGateway()), defaultRoute(true), defaultRoute(false)} {
		others, mine := t.others[dst], t.mine[dst]
		if len(others) > 0 && (len(mine) == 0 || slices.Min(mine) > slices.Min(others)) {
			return true, nil
		}
	}
	return false, nil
}

// metric returns the metric of a route beside the existing ones. Another link's stay, and come first, as they were there first: this one
// gets a higher metric than any of them, unless it should have a free one. If the link as a whole comes after another, every other route of
// the main table gets such a metric, by which Read recognizes it.
func (t tableMetrics) metric(index int, r Route, beside bool) uint32 {
	own, other := t.mine[r.Dst.Masked()], t.others[r.Dst.Masked()]
	switch {
	case r.Metric != 0 && (slices.Contains(own, r.Metric) || !slices.Contains(other, r.Metric)):
		return r.Metric
	case r.Metric == 0 && len(own) > 0:
		return slices.Min(own)
	case len(other) > 0:
		after := max(rtnl.DefaultMetric6+uint32(index), min(slices.Max(other), math.MaxUint32-1)+1)
		return after + min(r.Metric, math.MaxUint32-after) // the link's own routes keep their order
	case beside && r.isMain():
		return rtnl.DefaultMetric6 + uint32(index)
	}
	return 0
}

// addRules makes what the workload sends from the addresses leave by their link: by a table of the link, and a rule for each address. It
// deletes rules that a former link or call left.
func (n *Namespace) addRules(index int, addrs []netip.Addr) error {
	for _, v4 := range []bool{true, false} {
		if !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is4() == v4 }) {
			continue
		}
		r := Route{Dst: defaultRoute(v4), Gateway: hostGateway(v4), Table: uint32(besideTable + index)}
		if err := n.conn.RouteReplace(r.netlink(index, 0)); err != nil {
			return fmt.Errorf("add %s: %w", r, err)
		}
	}
	have, err := n.rules()
	if err != nil {
		return err
	}
	for _, r := range have {
		if wanted := slices.Contains(addrs, r.from); wanted == (r.index == index) {
			continue
		}
		if err := n.conn.RuleDel(r.netlink()); err != nil && !rtnl.IsGone(err) {
			return fmt.Errorf("delete %s: %w", r, err)
		}
	}
	for _, a := range addrs {
		r := rule{a, index}
		if err := n.conn.RuleAdd(r.netlink()); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add %s: %w", r, err)
		}
	}
	return n.deleteStaleRules()
}

// deleteStaleRules deletes the rules of links that are gone.
func (n *Namespace) deleteStaleRules() error {
	have, err := n.rules()
	if err != nil || len(have) == 0 {
		return err
	}
	links, err := link.Select(n.conn, func(string) bool { return true })
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range have {
		if slices.ContainsFunc(links, func(l link.Link) bool { return l.Index == r.index }) {
			continue
		}
		if err := n.conn.RuleDel(r.netlink()); err != nil && !rtnl.IsGone(err) {
			errs = append(errs, fmt.Errorf("delete %s: %w", r, err))
		}
	}
	return errors.Join(errs...)
}

// leavesBy returns the link by which a packet from the address would leave, in whichever table its route is; 0 = none.
func (n *Namespace) leavesBy(a netip.Addr) int {
	found, err := n.conn.RouteGetWithOptions(rtnl.IP(far(a.Is4())), &netlink.RouteGetOptions{SrcAddr: rtnl.IP(a), FIBMatch: true})
	if err != nil || len(found) == 0 {
		return 0
	}
	return found[0].LinkIndex
}

// rule is a routing policy rule of ours: packets from the address use the table of the link.
type rule struct {
	from  netip.Addr
	index int
}

// String returns the rule as iproute2 shows it.
func (r rule) String() string {
	return fmt.Sprintf("rule from %s lookup %d", r.from, besideTable+r.index)
}

func (r rule) netlink() *netlink.Rule {
	n := netlink.NewRule()
	n.Src, n.Priority, n.Table, n.Protocol = rtnl.IPNet(rtnl.HostPrefix(r.from)), besidePriority, besideTable+r.index, link.RouteProtocol
	return n
}

// rules reads our rules, of both families.
func (n *Namespace) rules() (rules []rule, err error) {
	for _, family := range families() {
		all, err := rtnl.Dump(func() ([]netlink.Rule, error) { return n.conn.RuleList(family) })
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		for _, r := range all {
			src := rtnl.Prefix(r.Src)
			if r.Priority == besidePriority && r.Table > besideTable && src.IsSingleIP() {
				rules = append(rules, rule{src.Addr(), r.Table - besideTable})
			}
		}
	}
	slices.SortFunc(rules, func(a, b rule) int { return cmp.Or(cmp.Compare(a.index, b.index), a.from.Compare(b.from)) })
	return rules, nil
}
