// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// A workload may have several interfaces. The routes of the first win; what is sent from
// an address of a later one has a table of its own, with a default route by that one. The
// host takes a source address from its own interface alone.

const (
	// besideTable and a link's index make the number of its table.
	besideTable = 80000
	// besidePriority is after the local table's and before the main one's. Rules that are
	// made without a priority come later.
	besidePriority = 30000
)

// far is an address that no network has (RFC 5737, RFC 3849): a route to it is one to
// anywhere.
func far(v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{192, 0, 2, 1})
	}
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1})
}

// findOthers asks, before a workload's link has routes, whether another link has: a
// default route or, of IPv4, one to the gateway that all our links have.
func findOthers() []*rtnl.Message {
	return []*rtnl.Message{rtnl.FindRoute(link.HostGateway(), 0), rtnl.FindRoute(far(false), 0)}
}

func foundOthers(answers []rtnl.Answer) bool {
	_, v4 := rtnl.FoundRoute(answers[0], link.HostGateway())
	_, v6 := rtnl.FoundRoute(answers[1], far(false))
	return v4 || v6
}

// metrics are those that the routes to one destination have, at least one.
type metrics []uint32

func (m metrics) first() uint32 { return slices.Min(m) }
func (m metrics) last() uint32  { return slices.Max(m) }

// routeMetrics reads the metrics of the link's routes in a table, and of all others there.
func (n *Namespace) routeMetrics(index int, table uint32) (mine, others map[netip.Prefix]metrics, err error) {
	mine, others = make(map[netip.Prefix]metrics), make(map[netip.Prefix]metrics)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		routes, err := n.sock.Routes(rtnl.RouteFilter{Family: family, Table: table})
		if err != nil {
			return nil, nil, err
		}
		for _, r := range routes {
			of := others
			if r.Index == index {
				of = mine
			}
			of[r.Dst.Masked()] = append(of[r.Dst.Masked()], r.Metric)
		}
	}
	return mine, others, nil
}

// isBeside reports whether another link's routes come before those of a link that may
// have some already.
func (n *Namespace) isBeside(index int) (bool, error) {
	mine, others, err := n.routeMetrics(index, 0)
	if err != nil {
		return false, err
	}
	for _, dst := range []netip.Prefix{rtnl.HostPrefix(link.HostGateway()), defaultRoute(true), defaultRoute(false)} {
		other, taken := others[dst]
		own, there := mine[dst]
		if taken && (!there || own.first() > other.first()) {
			return true, nil
		}
	}
	return false, nil
}

// putBeside makes the steps' routes replace those of the same link. Another link's
// stay, and come first, as they were there first: these get a higher metric than any of
// them, unless they are to have one that is free. Where the link comes after another in all,
// every other route of the main table gets one, by which Read knows.
func (n *Namespace) putBeside(index int, steps []netStep, all bool) error {
	type have struct{ mine, others map[netip.Prefix]metrics }
	tables := make(map[uint32]have)
	for i, s := range steps {
		if s.route == nil {
			continue
		}
		t, read := tables[s.route.Table]
		if !read {
			var err error
			if t.mine, t.others, err = n.routeMetrics(index, s.route.Table); err != nil {
				return err
			}
			tables[s.route.Table] = t
		}
		dst := s.route.Dst.Masked()
		metric := besideMetric(index, *s.route, t.mine[dst], t.others[dst], all)
		steps[i].request = addRoute(index, *s.route, metric, unix.NLM_F_REPLACE)
	}
	return nil
}

// besideMetric is the metric of a route beside those to its destination that the link and
// others have in the table.
func besideMetric(index int, r Route, own, other metrics, all bool) uint32 {
	switch {
	case r.Metric != 0 && (slices.Contains(own, r.Metric) || !slices.Contains(other, r.Metric)):
		return r.Metric
	case r.Metric == 0 && len(own) > 0:
		return own.first()
	case len(other) > 0:
		after := max(rtnl.DefaultMetric6+uint32(index), min(other.last(), math.MaxUint32-1)+1)
		return after + min(r.Metric, math.MaxUint32-after) // the link's own stay in their order
	case all && r.isMain():
		return rtnl.DefaultMetric6 + uint32(index)
	}
	return 0
}

// hostGateway is the next hop of a workload.
func hostGateway(v4 bool) netip.Addr {
	if v4 {
		return link.HostGateway()
	}
	return link.HostGatewayLL()
}

func defaultRoute(v4 bool) netip.Prefix {
	if v4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// answerSteps make what the workload sends from the addresses leave by their link. They
// also take away rules that a former link or call has left.
func (n *Namespace) answerSteps(index int, addrs []netip.Addr) ([]netStep, error) {
	have, err := n.rules()
	if err != nil {
		return nil, err
	}
	links, err := link.Select(n.sock, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	var steps []netStep
	for _, v4 := range []bool{true, false} {
		if !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is4() == v4 }) {
			continue
		}
		r := Route{Dst: defaultRoute(v4), Gateway: hostGateway(v4), Table: uint32(besideTable + index)}
		steps = append(steps, netStep{step{"add " + r.String(), addRoute(index, r, 0, unix.NLM_F_REPLACE)}, nil})
	}
	for _, r := range have {
		switch ours := slices.Contains(addrs, r.from); {
		case r.index == index && ours:
			addrs = slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return a == r.from })
		case r.index == index || ours || r.isLost(links):
			steps = append(steps, netStep{step{"delete " + r.String(), r.message(unix.RTM_DELRULE, 0)}, nil})
		}
	}
	for _, a := range addrs {
		r := rule{a, index}
		steps = append(steps, netStep{step{"add " + r.String(), r.message(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)}, nil})
	}
	return steps, nil
}

// forget takes away the rules of links that are gone.
func (n *Namespace) forget() error {
	have, err := n.rules()
	if err != nil || len(have) == 0 {
		return err
	}
	links, err := link.Select(n.sock, func(string) bool { return true })
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range have {
		if !r.isLost(links) {
			continue
		}
		if _, err := n.sock.Ask(r.message(unix.RTM_DELRULE, 0)); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("delete %s: %w", r, err))
		}
	}
	return errors.Join(errs...)
}

// astray returns those of the link's addresses from which packets leave by another link.
func (n *Namespace) astray(index int, addrs []netip.Prefix) (out []netip.Addr, err error) {
	requests := make([]*rtnl.Message, len(addrs))
	for i, a := range addrs {
		requests[i] = findRouteFrom(a.Addr())
	}
	answers, err := n.sock.Do(requests...)
	if err != nil {
		return nil, err
	}
	for i, a := range answers {
		if leavesBy(a) != index {
			out = append(out, addrs[i].Addr())
		}
	}
	return out, nil
}

// findRouteFrom asks by which route a packet from the address would go anywhere.
func findRouteFrom(a netip.Addr) *rtnl.Message {
	m := rtnl.FindRoute(far(a.Is4()), 0)
	(*m)[unix.SizeofNlMsghdr+2] = uint8(a.BitLen()) // rtm_src_len
	m.AttrAddr(unix.RTA_SRC, a)
	return m
}

// leavesBy is the link of the route that was found, in whichever table; 0 = there is none.
func leavesBy(a rtnl.Answer) int {
	for _, m := range a.Data {
		if r, _ := rtnl.ParseRoute(m.Body); m.Kind == unix.RTM_NEWROUTE {
			return r.Index
		}
	}
	return 0
}

// rule is a routing policy rule of ours: what is sent from the address goes by the
// table of the link.
type rule struct {
	from  netip.Addr
	index int
}

// String is the rule as iproute2 shows it.
func (r rule) String() string {
	return fmt.Sprintf("rule from %s lookup %d", r.from, besideTable+r.index)
}

// isLost reports whether the rule's link is gone.
func (r rule) isLost(links []link.Link) bool {
	return !slices.ContainsFunc(links, func(l link.Link) bool { return l.Index == r.index })
}

// Message is struct fib_rule_hdr of linux/fib_rules.h and its attributes.
func (r rule) message(kind, flags uint16) *rtnl.Message {
	m := rtnl.NewMessage(kind, flags, []byte{0: rtnl.FamilyOf(r.from), 2: uint8(r.from.BitLen()), 7: unix.FR_ACT_TO_TBL, 11: 0})
	m.AttrAddr(unix.FRA_SRC, r.from)
	m.Attr32(unix.FRA_PRIORITY, besidePriority)
	m.Attr32(unix.FRA_TABLE, uint32(besideTable+r.index))
	m.Attr8(unix.FRA_PROTOCOL, link.RouteProtocol)
	return m
}

// rules reads the rules of ours, of both families.
func (n *Namespace) rules() (rules []rule, err error) {
	all, err := n.sock.Dump(rtnl.NewMessage(unix.RTM_GETRULE, 0, []byte{0: unix.AF_UNSPEC, 11: 0}))
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	for _, m := range all {
		if r, ok := parseRule(m.Body); ok && m.Kind == unix.RTM_NEWRULE {
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// parseRule reads a rule; false for what is none of ours.
func parseRule(b []byte) (r rule, ok bool) {
	if len(b) < 12 || b[7] != unix.FR_ACT_TO_TBL {
		return rule{}, false
	}
	var priority, table uint32
	rtnl.Attributes(b[12:], func(kind uint16, data []byte) {
		switch kind {
		case unix.FRA_SRC:
			r.from = rtnl.Addr(data)
		case unix.FRA_PRIORITY:
			priority = rtnl.Uint32(data)
		case unix.FRA_TABLE:
			table = rtnl.Uint32(data)
		}
	})
	r.index = int(table) - besideTable
	return r, priority == besidePriority && r.index > 0 && r.from.IsValid() && int(b[2]) == r.from.BitLen()
}
