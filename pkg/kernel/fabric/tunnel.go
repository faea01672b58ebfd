// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tunnelDevices returns the names that plan gives, and the kernel's kind of each.
func tunnelDevices() map[plan.TunnelKind]struct{ name, kind string } {
	return map[plan.TunnelKind]struct{ name, kind string }{
		plan.VXLAN4: {link.VXLAN4, "vxlan"},
		plan.VXLAN6: {link.VXLAN6, "vxlan"},
		plan.IPIP:   {link.IPIP, "ipip"},
	}
}

// ends are where a tunnel device leads.
type ends struct {
	local, remote netip.Addr // the latter only for IPIP
	under         int        // index of the underlying link
	vni, port     int
	learning      bool
}

func endsOf(l link.Link) ends {
	switch d := l.Device.(type) {
	case *netlink.Vxlan:
		return ends{local: rtnl.Addr(d.SrcAddr), under: d.VtepDevIndex, vni: d.VxlanId, port: d.Port, learning: d.Learning}
	case *netlink.Iptun:
		return ends{local: specified(d.Local), remote: specified(d.Remote), under: int(d.Link)}
	}
	return ends{}
}

// specified returns the address unless it is all zeros.
func specified(ip []byte) netip.Addr {
	if a := rtnl.Addr(ip).Unmap(); a.IsValid() && !a.IsUnspecified() {
		return a
	}
	return netip.Addr{}
}

// bound reports whether an IPIP tunnel has ends of its own: then all packets go to the one remote, whatever the route's gateway.
func bound(l link.Link) bool {
	e := endsOf(l)
	return l.Kind == "ipip" && (e.local.IsValid() || e.remote.IsValid())
}

// foreign returns an error if a device with a tunnel's name is another program's, which is left alone.
func foreign(l link.Link, t plan.Tunnel) error {
	switch {
	case l.Kind != tunnelDevices()[t.Kind].kind:
		return fmt.Errorf("there is a link %s of kind %q that is not ours: rename or delete it", l.Name, l.Kind)
	case bound(l) && l.Alias != link.TunnelAlias:
		return fmt.Errorf("there is a link %s with local or remote address that is not ours: rename or delete it", l.Name)
	}
	return nil
}

// newTunnel returns a tunnel device for the library to add, down.
//
// IPIP (RFC 2003) leads to the host that a route names as its gateway: the device has neither a remote nor a local address, and takes the
// outer source from the route to the gateway. TTL and TOS are the inner packet's. The kernel creates tunl0 itself when the module ipip is
// loaded, unless the sysctl net.core.fb_tunnels_only_for_init_net says otherwise; requesting the kind loads the module. That tunl0 has just
// these parameters, which can't be changed (ipip_changelink).
func newTunnel(t plan.Tunnel, under int) netlink.Link {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = t.Device, t.MTU
	if t.Kind == plan.IPIP {
		return &netlink.Iptun{LinkAttrs: attrs, PMtuDisc: 1, Proto: unix.IPPROTO_IPIP}
	}
	if !t.MAC.IsZero() {
		attrs.HardwareAddr = rtnl.HardwareAddr(t.MAC)
	}
	return &netlink.Vxlan{LinkAttrs: attrs, VxlanId: int(t.VNI), Port: int(t.Port), VtepDevIndex: under, SrcAddr: rtnl.IP(t.Local)}
}

// step is one thing that a device lacks.
type step struct {
	what   string
	make   func() error
	remake bool // it requires recreating the device
}

// steps returns what a device needs to be as desired, in order. The mark comes first, so that a half-made device can be removed.
func (p *pass) steps(l link.Link, t plan.Tunnel, under int) (steps []step) {
	device, e := rtnl.Device(l.Index), endsOf(l)
	remake := func(what string) []step {
		return []step{{what: "make it anew " + what, make: func() error { return p.conn.LinkDel(device) }, remake: true}}
	}
	switch {
	case bound(l):
		return remake("without local and remote address")
	case t.Kind == plan.IPIP:
	case e.vni != int(t.VNI) || e.port != int(t.Port):
		return remake(fmt.Sprintf("with VNI %d and port %d", t.VNI, t.Port))
	case e.local != t.Local || e.under != under || e.learning:
		return remake(fmt.Sprintf("with local address %s by link %q, without learning", t.Local, t.Parent))
	}
	add := func(what string, make func() error) { steps = append(steps, step{what: what, make: make}) }
	if l.Alias != link.TunnelAlias {
		add("mark by its alias", func() error { return p.conn.LinkSetAlias(device, link.TunnelAlias) })
	}
	if t.Kind != plan.IPIP && l.MAC != t.MAC && !t.MAC.IsZero() {
		add("set MAC address "+t.MAC.String(), func() error { return p.conn.LinkSetHardwareAddr(device, rtnl.HardwareAddr(t.MAC)) })
	}
	if l.MTU != t.MTU && t.MTU > 0 {
		add(fmt.Sprintf("set MTU %d", t.MTU), func() error { return p.conn.LinkSetMTU(device, t.MTU) })
	}
	if l.Master != 0 { // the host doesn't route what arrives by a port
		add(fmt.Sprintf("take out of link %d", l.Master), func() error { return p.conn.LinkSetNoMaster(device) })
	}
	family, settings := "ipv4", l.Conf4
	if t.Kind == plan.VXLAN6 {
		family, settings = "ipv6", l.Conf6
	}
	if v, ok := settings.At(0); ok && v == 0 { // otherwise it has net.ipv4.conf.default.forwarding, or IPv6's
		sysctl := family + "/conf/" + l.Name + "/forwarding"
		add("set sysctl net/"+sysctl+" to 1", func() error {
			return p.ns.Do(func(ns.NetNS) error { return rtnl.WriteSysctl(sysctl, "1") })
		})
	}
	if !l.Up {
		add("bring up", func() error { return p.conn.LinkSetUp(device) })
	}
	return steps
}

// found is the present device with a tunnel's name.
type found struct {
	link.Link
	there bool
	under int   // index of the link that it should run over, 0 = the kernel chooses for each packet
	lacks error // why it can't be as desired now
}

// find reads a tunnel's device, and the underlying link.
func (p *pass) find(t plan.Tunnel) (f found, err error) {
	delete(p.links, t.Device)
	if err := link.CheckName(t.Device); err != nil {
		return found{lacks: err}, nil
	}
	if t.Parent != "" && t.Kind != plan.IPIP {
		l, there, err := p.link(t.Parent)
		if err != nil {
			return f, err
		}
		if f.under = l.Index; !there {
			f.lacks = &link.DownError{Interface: t.Parent, Why: "is not there"}
		}
	}
	if f.Link, f.there, err = p.link(t.Device); err != nil || !f.there {
		return f, err
	}
	if err := foreign(f.Link, t); err != nil {
		return found{lacks: err}, nil
	}
	if f.lacks != nil {
		f.under = endsOf(f.Link).under
	}
	return f, nil
}

// tunnelAddrs compares a device's addresses, except link-local ones.
func (p *pass) tunnelAddrs(t plan.Tunnel, index int) (missing, stale []netip.Prefix, err error) {
	all, err := rtnl.Dump(func() ([]netlink.Addr, error) { return p.conn.AddrList(rtnl.Device(index), netlink.FAMILY_ALL) })
	if err != nil {
		return nil, nil, fmt.Errorf("list addresses of %s: %w", t.Device, err)
	}
	if t.Addr.IsValid() {
		missing = append(missing, rtnl.HostPrefix(t.Addr))
	}
	for _, a := range all {
		addr := rtnl.Prefix(a.IPNet)
		switch {
		case slices.Contains(missing, addr):
			missing = nil
		case !addr.Addr().IsLinkLocalUnicast():
			stale = append(stale, addr)
		}
	}
	return missing, stale, nil
}

// tunnelTries is how many times a device that was just changed is checked for what else it needs: for example recreated, then set up.
const tunnelTries = 3

// ensureTunnel creates a device and what it lacks. Its former addresses stay for now: routes may name them.
func (p *pass) ensureTunnel(t plan.Tunnel) error {
	for range tunnelTries {
		again, err := p.ensureOnce(t)
		if err != nil || !again {
			return err
		}
	}
	return nil
}

// ensureOnce makes the changes possible in one go, and reports whether to check again.
func (p *pass) ensureOnce(t plan.Tunnel) (again bool, err error) {
	f, err := p.find(t)
	if err != nil {
		return false, err
	}
	if f.lacks != nil {
		p.problem(t.Device, f.lacks)
	}
	had := p.had[t.Kind]
	drifted := had.index != 0 && sameDevice(had.tunnel, t)
	if !f.there {
		return f.lacks == nil && p.tunnelWrite(t, "make the device", drifted, func() error { return p.conn.LinkAdd(newTunnel(t, f.under)) }), nil
	}
	drifted = drifted && had.index == f.Index
	steps := p.steps(f.Link, t, f.under)
	for _, s := range steps {
		again = p.tunnelWrite(t, s.what, drifted, s.make) || again
		if s.remake {
			return again, nil
		}
	}
	missing, _, err := p.tunnelAddrs(t, f.Index)
	if err != nil {
		return false, err
	}
	for _, a := range missing {
		if p.tunnelWrite(t, "add address "+a.String(), drifted, func() error { return p.conn.AddrReplace(rtnl.Device(f.Index), rtnl.NewAddr(a)) }) {
			again = true
			p.awaitLocal(a.Addr())
		}
	}
	if len(steps)+len(missing) == 0 && f.lacks == nil {
		p.held.devices[t.Kind] = device{f.Index, t}
	}
	return again, nil
}

// awaitLocal waits until routes can name an address that was just added: for IPv6 the kernel creates its local route in a work queue.
func (p *pass) awaitLocal(a netip.Addr) {
	if a.Is6() {
		rtnl.Await(func() bool {
			r, ok := p.conn.Lookup(a, 0)
			return ok && r.Local
		})
	}
}

// tunnelWrite makes one change, and reports whether that succeeded.
func (p *pass) tunnelWrite(t plan.Tunnel, what string, drifted bool, make func() error) (done bool) {
	return p.do(&change{subject: t.Device, what: what, drifted: drifted, make: func() error {
		err := make()
		delete(p.links, t.Device)
		if t.Kind == plan.IPIP && errors.Is(err, unix.EEXIST) {
			return nil // loading the module created it
		}
		if advice := p.adviseTaken(t, err); advice != "" {
			return fmt.Errorf("%w: %s", err, advice)
		}
		return err
	}})
}

// adviseTaken says what occupies what a VXLAN device needs, and what to do; "" = the refusal has another reason.
func (p *pass) adviseTaken(t plan.Tunnel, refused error) string {
	switch {
	case t.Kind == plan.IPIP:
	case errors.Is(refused, unix.EADDRINUSE):
		return fmt.Sprintf("something else has UDP port %d: see `ss -lunp sport = :%[1]d` and `ip -d link show type vxlan`, and stop it, or set VXLANPort for all hosts", t.Port)
	case errors.Is(refused, unix.EEXIST):
		links, _ := link.Select(p.conn, func(name string) bool { return !link.IsTunnelName(name) }) // a failure means no name
		for _, l := range links {
			if e := endsOf(l); l.Kind == "vxlan" && e.vni == int(t.VNI) && e.port == int(t.Port) {
				return fmt.Sprintf("link %s has VNI %d and port %d: delete it, or set VXLANVNI or VXLANPort for all hosts", l.Name, t.VNI, t.Port)
			}
		}
	}
	return ""
}

func sameDevice(a, b plan.Tunnel) bool {
	return a.Device == b.Device && a.Local == b.Local && a.Parent == b.Parent && a.Addr == b.Addr &&
		a.MTU == b.MTU && a.MAC == b.MAC && a.VNI == b.VNI && a.Port == b.Port
}

// checkTunnel reports what a device lacks; it writes nothing.
func (p *pass) checkTunnel(t plan.Tunnel) error {
	delete(p.held.devices, t.Kind)
	f, err := p.find(t)
	if err != nil {
		return err
	}
	if f.lacks != nil {
		p.problem(t.Device, f.lacks)
	} else if !f.there {
		p.unmet(t.Device, "make the device")
	}
	if !f.there {
		return nil
	}
	right := f.lacks == nil
	unmet := func(what string) {
		right = false
		p.unmet(t.Device, what)
	}
	for _, s := range p.steps(f.Link, t, f.under) {
		unmet(s.what)
	}
	missing, stale, err := p.tunnelAddrs(t, f.Index)
	if err != nil {
		return err
	}
	for _, a := range missing {
		unmet("add address " + a.String())
	}
	for _, a := range stale {
		unmet("delete address " + a.String())
	}
	if right {
		p.held.devices[t.Kind] = device{f.Index, t}
	}
	return nil
}

// removeStaleTunnels deletes what no route needs any more: former addresses of devices, and devices of ours that are not desired. bare
// reports that a remaining device lost its last address: with the last IPv4 address the kernel drops its routes and neighbours.
func (p *pass) removeStaleTunnels() (bare bool, err error) {
	for kind, d := range tunnelDevices() {
		t := plan.Tunnel{Kind: kind, Device: d.name}
		i := slices.IndexFunc(p.tunnels, func(t plan.Tunnel) bool { return t.Kind == kind })
		if i >= 0 {
			t = p.tunnels[i]
		}
		delete(p.links, t.Device)
		l, there, err := p.link(t.Device)
		if err != nil {
			return false, err
		}
		if !there || l.Alias != link.TunnelAlias || l.Kind != d.kind {
			continue
		}
		if i < 0 {
			err = p.removeTunnel(t, l)
		} else {
			had, writes := p.had[kind], p.writes
			err = p.removeAddrs(t, l.Index, had.index == l.Index && sameDevice(had.tunnel, t))
			if p.writes > writes && !t.Addr.IsValid() {
				bare = true
				clear(p.held.routes) // what is missing then is no drift
				delete(p.had, kind)
			}
		}
		if err != nil {
			return false, err
		}
	}
	return bare, nil
}

func (p *pass) removeAddrs(t plan.Tunnel, index int, drifted bool) error {
	_, stale, err := p.tunnelAddrs(t, index)
	if err != nil {
		return err
	}
	for _, a := range stale {
		p.tunnelWrite(t, "delete address "+a.String(), drifted, func() error { return p.conn.AddrDel(rtnl.Device(index), &netlink.Addr{IPNet: rtnl.IPNet(a)}) })
	}
	return nil
}

// removeTunnel deletes a device. For its own tunl0 the kernel reports success but keeps it: it is set down, and is no longer ours.
func (p *pass) removeTunnel(t plan.Tunnel, l link.Link) error {
	delete(p.held.devices, t.Kind)
	device := rtnl.Device(l.Index)
	p.tunnelWrite(t, "delete the device", false, func() error { return p.conn.LinkDel(device) })
	if _, err := link.Get(p.conn, l.Index, ""); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read link %s: %w", t.Device, err)
	}
	if err := p.removeAddrs(t, l.Index, false); err != nil {
		return err
	}
	p.tunnelWrite(t, "take down", false, func() error { return errors.Join(p.conn.LinkSetDown(device), p.conn.LinkSetAlias(device, "")) })
	return nil
}
