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
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// change is one difference between the desired state and the kernel's.
type change struct {
	what   string // "add route to 10.0.0.1 by cali1"
	make   func(*Path) error
	late   bool       // removes: done after all that adds
	sysctl bool       // done in the namespace
	lost   netip.Addr // the address that a deleted route led to
	leads  netip.Addr // that a new route leads to, if none by this interface did
	err    error      // why it failed
}

// interfacePlan is what one interface needs.
type interfacePlan struct {
	name    string
	changes []*change
	err     error // why something cannot be done now
}

func (p *interfacePlan) add(c change) { p.changes = append(p.changes, &c) }

// setting is a sysctl of a workload interface: its number in the kernel's array (linux/ip.h counts from 1, linux/ipv6.h from 0), its name,
// and its desired value.
type setting struct {
	number int
	name   string
	value  int32
}

func (e Endpoint) settings4() []setting {
	localnet := int32(0) // otherwise the workload could reach what listens on the loopback as soon as no rule prevents it
	if e.Loopback {
		localnet = 1
	}
	return []setting{
		{1, "forwarding", 1},
		{3, "proxy_arp", 1}, // the host end answers for link.HostGateway
		{8, "rp_filter", 1},
		{9, "accept_source_route", 0}, // otherwise a workload could put the path into the packet, and policy would take its first stop for the destination
		{19, "arp_ignore", 0},         // otherwise a host without a default route wouldn't answer for link.HostGateway
		{26, "route_localnet", localnet},
	}
}

// settings6 returns IPv6's settings. Forwarding makes the host a router, see forwardIPv6: it is enabled only where needed.
func (e Endpoint) settings6() []setting {
	settings := []setting{
		{3, "accept_ra", 0}, // a workload is no router for the host
		{22, "proxy_ndp", 1},
	}
	if e.hasIPv6() {
		settings = append(settings, setting{0, "forwarding", 1})
	}
	return settings
}

// plan compares the desired state with the kernel's, for the interfaces in scope, in their order. It does no I/O.
func (h *Path) plan(st *state) []interfacePlan {
	d := differ{h.cfg, h.conn, h.desired, st, make(map[int]string, len(st.links)), make(map[int][]rtnl.Route)}
	for name, l := range st.links {
		d.names[l.Index] = name
	}
	for _, routes := range st.routes {
		for _, r := range routes {
			d.byLink[r.Index] = append(d.byLink[r.Index], r)
		}
	}
	plans := make([]interfacePlan, 0, len(st.scope))
	for _, name := range st.scope {
		plans = append(plans, d.plan(name))
	}
	return plans
}

// differ compares the desired state with the kernel's.
type differ struct {
	cfg     Config
	conn    *rtnl.Conn
	desired desired
	st      *state
	names   map[int]string // of the workload links, by index
	byLink  map[int][]rtnl.Route
}

func (d *differ) plan(name string) interfacePlan {
	p := interfacePlan{name: name}
	e, wanted := d.desired.endpoints[name]
	l, there := d.st.links[name]
	switch {
	case wanted && !d.cfg.owns(name):
		p.err = fmt.Errorf("interface %q has none of the prefixes of workload interfaces, %q: it is not touched", name, d.cfg.Prefixes)
	case wanted && link.CheckName(name) != nil:
		p.err = link.CheckName(name)
	case there && wanted && e.Active:
		d.place(&p, e, l)
		d.address(&p, l)
		d.settings(&p, e, l)
		addrs := d.granted(&p, e, l)
		d.neighbours(&p, e, l, addrs)
		d.routes(&p, l, addrs)
		d.gateway(&p, l, addrs)
		if l.Up && !l.Running {
			p.err = errors.Join(p.err, &link.DownError{Interface: name, Why: "carries no packets: the workload's end is down"})
		}
	case there:
		d.routes(&p, l, nil)
		d.neighbours(&p, e, l, nil)
	case wanted && e.Active:
		p.err = &link.DownError{Interface: name, Why: "is not there"}
		for _, a := range e.claimed() {
			if d.desired.winner(a, d.st.links) == name {
				d.astray(&p, a)
			}
		}
	}
	return p
}

// granted returns the endpoint's addresses that can be programmed now; the plan's error explains the others. A recreated pod's interface
// has the same name: what led to the former container must not lead to the next before that has an endpoint.
func (d *differ) granted(p *interfacePlan, e Endpoint, l link.Link) []netip.Addr {
	if !l.Up {
		p.err = &link.DownError{Interface: e.Interface, Why: link.IsDown}
		return nil
	}
	if link.IsAnothers(l.Alias, e.Container) {
		p.err = &link.DownError{Interface: e.Interface, Why: fmt.Sprintf("is not of container %s: its alias is %q", e.Container, l.Alias)}
		return nil
	}
	var addrs []netip.Addr
	for _, a := range e.claimed() {
		winner := d.desired.winner(a, d.st.links)
		switch {
		case !isUnicast(a):
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

// place takes links that the plugin, or that of an older version of Calico, created out of a bridge or another master: the host doesn't
// route what arrives by a port. It also makes them answer for the gateway.
func (d *differ) place(p *interfacePlan, e Endpoint, l link.Link) {
	made := l.Kind == "veth" && strings.HasPrefix(l.Alias, link.WorkloadAlias)
	if !made && !l.IsUnnamed() || link.IsAnothers(l.Alias, e.Container) {
		return
	}
	add := func(what string, make func(netlink.Link) error) {
		p.add(change{what: what, make: func(*Path) error {
			if err := make(rtnl.Device(l.Index)); !rtnl.IsGone(err) {
				return err
			}
			return nil
		}})
	}
	if l.Master != 0 {
		add(fmt.Sprintf("take %s out of link %d", l.Name, l.Master), d.conn.LinkSetNoMaster)
	}
	if l.NoARP {
		add("switch on ARP on "+l.Name, d.conn.LinkSetARPOn)
	}
}

// address gives taps, and the plugin's links, the MAC address that workloads have in their neighbour caches; a workload would take half a
// minute to notice another. It comes before neighbours: the kernel forgets them when the address changes (neigh_changeaddr).
func (d *differ) address(p *interfacePlan, l link.Link) {
	want := l.MAC
	switch {
	case l.IsTap():
		want = link.TapMAC()
	case l.Kind == "veth" && strings.HasPrefix(l.Alias, link.WorkloadAlias): // older versions of Calico left the link its own address
		want = link.HostMAC()
	}
	if l.MAC == want {
		return
	}
	p.add(change{what: fmt.Sprintf("set MAC address of %s to %s", l.Name, want),
		make: func(h *Path) error {
			return h.conn.LinkSetHardwareAddr(rtnl.Device(l.Index), rtnl.HardwareAddr(want))
		}})
}

func (d *differ) settings(p *interfacePlan, e Endpoint, l link.Link) {
	set := func(sysctl string, value int32) {
		p.add(change{what: fmt.Sprintf("set sysctl net/%s to %d", sysctl, value), sysctl: true,
			make: func(*Path) error { return rtnl.WriteSysctl(sysctl, strconv.Itoa(int(value))) }})
	}
	for _, s := range e.settings4() {
		if v, ok := l.Conf4.At(s.number - 1); ok && v != s.value {
			set("ipv4/conf/"+l.Name+"/"+s.name, s.value)
		}
	}
	for _, s := range e.settings6() {
		v, ok := l.Conf6.At(s.number)
		sysctl := "ipv6/conf/" + l.Name + "/" + s.name
		switch {
		case !ok || v == s.value:
		case s.name == "forwarding":
			p.add(change{what: "set sysctl net/" + sysctl + " to 1", sysctl: true, make: func(h *Path) error { return h.forwardIPv6(sysctl) }})
		default:
			set(sysctl, s.value)
		}
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		if sysctl := family + "/neigh/" + l.Name + "/proxy_delay"; d.st.delays[sysctl] != 0 {
			set(sysctl, 0)
		}
	}
}

func (d *differ) neighbours(p *interfacePlan, e Endpoint, l link.Link, addrs []netip.Addr) {
	has := d.st.neighs[l.Index]
	want := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if e.MAC.IsZero() {
			break
		}
		want[a] = true
		if has[a] != e.MAC {
			p.add(change{what: fmt.Sprintf("set neighbour %s on %s to %s", a, l.Name, e.MAC),
				make: func(h *Path) error { return h.conn.NeighSet(rtnl.Neigh(l.Index, a, e.MAC)) }})
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(has), netip.Addr.Compare) {
		if !want[a] {
			p.add(change{what: fmt.Sprintf("delete neighbour %s on %s", a, l.Name), late: true,
				make: func(h *Path) error { return h.conn.NeighDel(rtnl.Neigh(l.Index, a, has[a])) }})
		}
	}
}

func (d *differ) routes(p *interfacePlan, l link.Link, addrs []netip.Addr) {
	right := make(map[rtnl.Route]bool, len(addrs))
	for _, a := range addrs {
		want := endpointRoute(d.cfg.Protocol, l.Index, a)
		right[want] = true
		others := d.st.routes[want.Dst]
		if slices.Contains(others, want) {
			continue
		}
		c := change{what: fmt.Sprintf("add route to %s by %s", a, l.Name)}
		if !slices.ContainsFunc(others, func(r rtnl.Route) bool { return r.Index == l.Index }) {
			c.leads = a
		}
		if len(others) == 0 {
			c.make = func(h *Path) error { return h.addRoute(want) }
		} else {
			c.make = func(h *Path) error { return h.conn.RouteAddEcmp(want.Netlink()) } // it wins, and replaces none
		}
		p.add(c)
		d.astray(p, a)
	}
	for _, r := range d.byLink[l.Index] {
		if right[r] {
			continue
		}
		c := deleteRoute(r, "by "+l.Name)
		if !slices.Contains(addrs, r.Dst.Addr()) {
			c.lost = r.Dst.Addr()
		}
		p.add(c)
	}
}

// astray deletes our routes to an address by links that are no workload's, where no policy is enforced: for instance by the endpoint's own
// link after a rename.
func (d *differ) astray(p *interfacePlan, a netip.Addr) {
	for _, r := range d.st.routes[rtnl.HostPrefix(a)] {
		if _, workload := d.names[r.Index]; !workload { // a workload's link has its own plan
			c := deleteRoute(r, fmt.Sprintf("by link %d", r.Index))
			c.lost = a
			p.add(c)
		}
	}
}

// gateway adds the link's GatewayLL, which the endpoint's IPv6 traffic uses. Other programs may remove it, by flushing a link's addresses.
func (d *differ) gateway(p *interfacePlan, l link.Link, addrs []netip.Addr) {
	gateway := l.GatewayLL()
	if !gateway.IsValid() || d.st.gateways[l.Index] || !slices.ContainsFunc(addrs, netip.Addr.Is6) {
		return
	}
	p.add(change{what: fmt.Sprintf("add %s, the workload's IPv6 gateway, to %s", gateway, l.Name),
		make: func(h *Path) error { return link.AddGateway(h.conn, l.Index, gateway) }})
}

func deleteRoute(r rtnl.Route, by string) change {
	return change{what: fmt.Sprintf("delete route to %s %s", r.Dst, by), late: true, make: func(h *Path) error { return h.conn.RouteDel(r.Netlink()) }}
}

// endpointRoute returns the route by which the host reaches a workload's address.
func endpointRoute(protocol uint8, index int, a netip.Addr) rtnl.Route {
	r := rtnl.Route{Dst: rtnl.HostPrefix(a), Index: index, Protocol: protocol}
	if a.Is4() {
		r.Scope = unix.RT_SCOPE_LINK
	} else {
		r.Metric = rtnl.DefaultMetric6
	}
	return r
}
