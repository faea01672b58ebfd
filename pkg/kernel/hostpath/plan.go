// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// setting is a sysctl of a workload interface: its number in the kernel's array
// (linux/ip.h counts from 1, linux/ipv6.h from 0), its name, the value it shall
// have, and the attribute by which the kernel tells of it, 0 = it doesn't.
type setting struct {
	number int
	name   string
	value  int32
	told   uint16
}

func settings4() []setting {
	return []setting{
		{1, "forwarding", 1, netconfaForwarding},
		{3, "proxy_arp", 1, netconfaProxyNeigh}, // the host end answers for HostGateway
		{8, "rp_filter", 1, netconfaRPFilter},
		{9, "accept_source_route", 0, 0}, // else a workload writes the way into the packet, and policy sees its first stop for the destination
		{26, "route_localnet", 1, 0},
	}
}

func settings6() []setting {
	return []setting{
		{0, "forwarding", 1, netconfaForwarding},
		{3, "accept_ra", 0, 0}, // a workload is no router to the host
		{22, "proxy_ndp", 1, netconfaProxyNeigh},
	}
}

// settings are those of a family that the endpoint's interface shall have.
func (e Endpoint) settings(family uint8) []setting {
	switch {
	case family == unix.AF_INET:
		return settings4()
	case e.hasIPv6():
		return settings6()
	}
	// Forwarding makes a router of the host: see forwardIPv6.
	return slices.DeleteFunc(settings6(), func(s setting) bool { return s.name == "forwarding" })
}

// plan compares the desired state with the kernel's, for the interfaces in
// scope, in their order. It only computes.
func (h *Path) plan(st *state) []interfacePlan {
	held := make(map[netip.Prefix][]rtnl.Route) // our routes by destination
	for _, routes := range st.routes {
		for _, r := range routes {
			held[r.Dst] = append(held[r.Dst], r)
		}
	}
	names := make(map[int]string, len(st.links))
	for name, l := range st.links {
		names[l.Index] = name
	}
	plans := make([]interfacePlan, 0, len(st.scope))
	for _, name := range st.scope {
		p := interfacePlan{name: name}
		e, wanted := h.desired[name]
		l, there := st.links[name]
		switch {
		case wanted && !h.owns(name):
			p.err = fmt.Errorf("interface %q has none of the prefixes of workload interfaces, %q: it is not touched", name, h.cfg.Prefixes)
		case wanted && link.CheckName(name) != nil:
			p.err = link.CheckName(name)
		case there && wanted && e.Active:
			p.settings(e, l, st)
			addrs := h.granted(&p, e, l, st)
			p.neighbours(e, l, st, addrs)
			p.routes(h.cfg.Protocol, l, st, addrs, held, names)
			p.gateway(l, st, addrs)
			if l.Up && !l.Running {
				p.err = errors.Join(p.err, &link.DownError{Interface: name, Why: "carries no packets: the workload's end is down"})
			}
		case there:
			p.routes(h.cfg.Protocol, l, st, nil, held, names)
			p.neighbours(e, l, st, nil)
		case wanted && e.Active:
			p.err = &link.DownError{Interface: name, Why: "is not there"}
			for _, a := range e.claimed() {
				if h.winner(a, st) == name {
					p.astray(a, held[rtnl.HostPrefix(a)], names)
				}
			}
		}
		plans = append(plans, p)
	}
	return plans
}

// granted are the endpoint's addresses that can be programmed now; the others
// stand in the plan's error. A pod that is made anew has its interface by the same name:
// what led to the container before must not lead to the next, before that has an endpoint.
func (h *Path) granted(p *interfacePlan, e Endpoint, l link.Link, st *state) []netip.Addr {
	if !l.Up {
		p.err = &link.DownError{Interface: e.Interface, Why: "is down"}
		return nil
	}
	if link.IsAnothers(l.Alias, e.Container) {
		p.err = &link.DownError{Interface: e.Interface, Why: fmt.Sprintf("is not of container %s: its alias is %q", e.Container, l.Alias)}
		return nil
	}
	var addrs []netip.Addr
	for _, a := range e.claimed() {
		winner := h.winner(a, st)
		switch {
		case !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
			p.err = errors.Join(p.err, fmt.Errorf("%s is not an address that a workload can have", a))
		case winner != e.Interface:
			p.err = errors.Join(p.err, fmt.Errorf("address %s is also the endpoint's of %s, which comes first", a, winner))
		case a.Is6() && !l.HasIPv6():
			p.err = errors.Join(p.err, fmt.Errorf("address %s: IPv6 is disabled on %s, or its MTU of %d is below 1280", a, e.Interface, l.MTU))
		default:
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// winner is the interface that an address leads to where several endpoints have
// it: the first by name of those that are up and theirs, else the first by name.
func (h *Path) winner(a netip.Addr, st *state) string {
	names := h.claims[a]
	for _, name := range names {
		if l := st.links[name]; l.Up && !link.IsAnothers(l.Alias, h.desired[name].Container) {
			return name
		}
	}
	return names[0]
}

func (p *interfacePlan) add(c change) { p.changes = append(p.changes, &c) }

func (p *interfacePlan) write(c rtnl.Change) { p.add(change{Change: c}) }

func (p *interfacePlan) settings(e Endpoint, l link.Link, st *state) {
	var wrong []string
	var differ []setting
	for _, s := range e.settings(unix.AF_INET) {
		if v, ok := l.Conf4.At(s.number - 1); ok && v != s.value {
			differ = append(differ, s)
			wrong = append(wrong, fmt.Sprintf("%s=%d", s.name, s.value))
		}
	}
	if len(differ) > 0 {
		p.write(rtnl.Change{
			What:     fmt.Sprintf("set sysctls net.ipv4.conf.%s: %s", l.Name, strings.Join(wrong, " ")),
			Requests: []*rtnl.Message{setConf4(l.Index, differ)},
		})
	}
	for _, s := range e.settings(unix.AF_INET6) {
		if v, ok := l.Conf6.At(s.number); ok && v != s.value {
			p.add(change{
				Change: rtnl.Change{What: fmt.Sprintf("set sysctl net.ipv6.conf.%s: %s=%d", l.Name, s.name, s.value)},
				sysctl: "ipv6/conf/" + l.Name + "/" + s.name,
				value:  strconv.Itoa(int(s.value)),
			})
		}
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		key := delayKey{l.Index, family}
		if ms, ok := st.delays[key]; ok && ms != 0 {
			p.write(rtnl.Change{
				What:     fmt.Sprintf("set proxy_delay of %s in %s to 0", l.Name, tableName(family)),
				Requests: []*rtnl.Message{setDelay(key, 0)},
			})
		}
	}
}

// setConf4 sets IPv4 sysctls of one link without a file for each.
func setConf4(index int, settings []setting) *rtnl.Message {
	m := rtnl.NewMessage(unix.RTM_SETLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, index, 0, 0))
	m.Nest(unix.IFLA_AF_SPEC, func() {
		m.Nest(unix.AF_INET, func() {
			m.Nest(unix.IFLA_INET_CONF, func() {
				for _, s := range settings {
					m.Attr32(uint16(s.number), uint32(s.value))
				}
			})
		})
	})
	return m
}

func (p *interfacePlan) neighbours(e Endpoint, l link.Link, st *state, addrs []netip.Addr) {
	has := st.neighs[l.Index]
	want := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if e.MAC.IsZero() {
			break
		}
		want[a] = true
		if has[a] != e.MAC {
			p.write(rtnl.Change{
				What:     fmt.Sprintf("set neighbour %s on %s to %s", a, l.Name, e.MAC),
				Requests: []*rtnl.Message{rtnl.SetNeigh(l.Index, a, e.MAC)},
			})
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(has), netip.Addr.Compare) {
		if !want[a] {
			p.write(rtnl.Change{
				What:     fmt.Sprintf("delete neighbour %s on %s", a, l.Name),
				Requests: []*rtnl.Message{rtnl.DeleteNeigh(l.Index, a)},
				Late:     true,
			})
		}
	}
}

func (p *interfacePlan) routes(protocol uint8, l link.Link, st *state, addrs []netip.Addr, held map[netip.Prefix][]rtnl.Route, names map[int]string) {
	right := make(map[rtnl.Route]bool, len(addrs))
	for _, a := range addrs {
		want := endpointRoute(protocol, l.Index, a)
		right[want] = true
		others := held[want.Dst]
		if slices.Contains(others, want) {
			continue
		}
		c := change{Change: rtnl.Change{What: fmt.Sprintf("add route to %s by %s", a, l.Name)}}
		if !slices.ContainsFunc(others, func(r rtnl.Route) bool { return r.Index == l.Index }) {
			c.leads = a
		}
		if len(others) == 0 {
			c.Requests, c.add = []*rtnl.Message{rtnl.AddRoute(want, unix.NLM_F_EXCL)}, &want
		} else {
			c.Requests = []*rtnl.Message{rtnl.AddRoute(want, 0)}
		}
		p.add(c)
		p.astray(a, others, names)
	}
	for _, r := range st.routes[l.Index] {
		if right[r] {
			continue
		}
		c := change{Change: rtnl.Change{What: fmt.Sprintf("delete route to %s by %s", r.Dst, l.Name), Requests: []*rtnl.Message{rtnl.DeleteRoute(r)}, Late: true}}
		if !slices.Contains(addrs, r.Dst.Addr()) {
			c.lost = r.Dst.Addr()
		}
		p.add(c)
	}
}

// astray deletes what of our routes to an address leads by links that are no workload's, where no policy is enforced:
// such as the endpoint's own link once it was renamed.
func (p *interfacePlan) astray(a netip.Addr, held []rtnl.Route, names map[int]string) {
	for _, r := range held {
		if _, workload := names[r.Index]; !workload { // a workload's has its own plan
			p.add(change{Change: rtnl.Change{What: fmt.Sprintf("delete route to %s by link %d", r.Dst, r.Index), Requests: []*rtnl.Message{rtnl.DeleteRoute(r)}, Late: true}, lost: a})
		}
	}
}

// endpointRoute is the route by which the host reaches a workload's address.
func endpointRoute(protocol uint8, index int, a netip.Addr) rtnl.Route {
	r := rtnl.Route{Dst: rtnl.HostPrefix(a), Index: index, Protocol: protocol}
	if a.Is4() {
		r.Scope = unix.RT_SCOPE_LINK
	} else {
		r.Metric = rtnl.DefaultMetric6
	}
	return r
}
