// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// tunnelTries is how often a device that was just changed is looked at again for
// what else it needs: made anew, then set up.
const tunnelTries = 3

// ensureTunnel makes a device and what it lacks. Its former addresses stay for
// now: routes may name them.
func (p *pass) ensureTunnel(t plan.Tunnel) error {
	if err := link.CheckName(t.Device); err != nil {
		p.problem(t.Device, err)
		return nil
	}
	for range tunnelTries {
		again, err := p.ensureOnce(t)
		if err != nil || !again {
			return err
		}
	}
	return nil
}

// ensureOnce makes what can be made in one go, and says whether to look again.
func (p *pass) ensureOnce(t plan.Tunnel) (again bool, err error) {
	delete(p.links, t.Device)
	under, refused, err := p.under(t)
	if err != nil {
		return false, err
	}
	l, err := readTunnel(p.sock, t.Device)
	switch {
	case isNotExist(err):
		if refused != nil {
			p.problem(t.Device, refused)
			return false, nil
		}
		_, had := p.hadDevices[t.Kind]
		had = had && p.settled(t)
		return p.tunnelWrite(t, deviceStep{"make the device", newTunnel(t, under)}, had)
	case err != nil:
		return false, fmt.Errorf("read link %s: %w", t.Device, err)
	}
	if l.isForeign(t) {
		p.problem(t.Device, foreignLink(l))
		return false, nil
	}
	if refused != nil {
		p.problem(t.Device, refused)
		under = l.under
	}
	drifted := p.hadDevices[t.Kind] == l.Index && p.settled(t)
	steps := l.steps(t, under)
	for _, s := range steps {
		if s.remake {
			again, err := p.tunnelWrite(t, deviceStep{s.what, deleteMessage(l.Index)}, drifted)
			return again && err == nil, err
		}
		done, err := p.tunnelWrite(t, s.deviceStep, drifted)
		if err != nil {
			return false, err
		}
		again = again || done
	}
	missing, _, err := p.tunnelAddrs(t, l.Index)
	if err != nil {
		return false, err
	}
	for _, a := range missing {
		done, err := p.tunnelWrite(t, deviceStep{"add address " + a.String(), rtnl.AddAddr(l.Index, a)}, drifted)
		if err != nil {
			return false, err
		}
		if done {
			p.awaitLocal(a.Addr())
		}
	}
	if len(steps)+len(missing) == 0 && refused == nil {
		p.devices[t.Kind], p.settledTunnels[t.Kind] = l.Index, t
	}
	return again, nil
}

// awaitLocal waits until routes can name an address that was just added: of IPv6
// the kernel makes its local route in a work queue.
func (p *pass) awaitLocal(a netip.Addr) {
	if a.Is6() {
		rtnl.Await(func() bool {
			r, ok := p.sock.Lookup(a, 0)
			return ok && r.Local
		})
	}
}

// tunnelWrite makes one change; done says that it was made.
func (p *pass) tunnelWrite(t plan.Tunnel, s deviceStep, drifted bool) (done bool, err error) {
	_, err = p.sock.Ask(s.request)
	if t.Kind == plan.IPIP && errors.Is(err, unix.EEXIST) {
		err = nil // loading the module made it
	}
	delete(p.links, t.Device)
	var refused unix.Errno
	if err != nil && !errors.As(err, &refused) {
		return false, err
	}
	if cure := p.takenBy(t, refused); cure != "" {
		err = fmt.Errorf("%w: %s", err, cure)
	}
	p.wrote(&change{Change: rtnl.Change{What: s.what, Err: err}, subject: t.Device, drifted: drifted})
	return err == nil, nil
}

// takenBy says what has what the kernel refuses to a VXLAN, and what to do; "" = it isn't for that.
func (p *pass) takenBy(t plan.Tunnel, refused unix.Errno) (cure string) {
	switch {
	case t.Kind == plan.IPIP:
	case refused == unix.EADDRINUSE:
		return fmt.Sprintf("something else has UDP port %d: see `ss -lunp sport = :%[1]d` and `ip -d link show type vxlan`, and stop it, or set VXLANPort for all hosts", t.Port)
	case refused == unix.EEXIST:
		_ = p.sock.Walk(link.ListMessage(), func() { cure = "" }, func(m rtnl.Received) { // what isn't found has no name
			l, ok := parseTunnel(m.Body)
			if ok && m.Kind == unix.RTM_NEWLINK && l.Kind == "vxlan" && l.Name != link.VXLAN4 && l.Name != link.VXLAN6 && l.vni == t.VNI && l.port == t.Port {
				cure = fmt.Sprintf("link %s has VNI %d and port %d: delete it, or set VXLANVNI or VXLANPort for all hosts", l.Name, t.VNI, t.Port)
			}
		})
	}
	return cure
}

func deleteMessage(index int) *rtnl.Message {
	return rtnl.NewMessage(unix.RTM_DELLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, index, 0, 0))
}

// under is the index of the link that the tunnel runs over, 0 = the kernel's
// choice for each packet.
func (p *pass) under(t plan.Tunnel) (index int, refused, err error) {
	if t.Parent == "" || t.Kind == plan.IPIP {
		return 0, nil, nil
	}
	l, there, err := p.link(t.Parent)
	if err == nil && !there {
		refused = &link.DownError{Interface: t.Parent, Why: "is not there"}
	}
	return l.Index, refused, err
}

// tunnelAddrs compares a device's addresses.
func (p *pass) tunnelAddrs(t plan.Tunnel, index int) (missing, stale []netip.Prefix, err error) {
	addrs, err := addrsOf(p.sock, index)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", t.Device, err)
	}
	if t.Addr.IsValid() && !slices.Contains(addrs, rtnl.HostPrefix(t.Addr)) {
		missing = append(missing, rtnl.HostPrefix(t.Addr))
	}
	for _, a := range addrs {
		if a.Addr() != t.Addr || a.Bits() != a.Addr().BitLen() {
			stale = append(stale, a)
		}
	}
	return missing, stale, nil
}

func foreignLink(l tunnelLink) error {
	if l.bound() {
		return fmt.Errorf("there is a link %s with local or remote address that is not ours: rename or delete it", l.Name)
	}
	return fmt.Errorf("there is a link %s of kind %q that is not ours: rename or delete it", l.Name, l.Kind)
}

// settled says whether the tunnel is desired as it was when it was last right.
func (p *pass) settled(t plan.Tunnel) bool {
	was, ok := p.hadTunnels[t.Kind]
	return ok && sameDevice(was, t)
}

func sameDevice(a, b plan.Tunnel) bool {
	return a.Device == b.Device && a.Local == b.Local && a.Parent == b.Parent && a.Addr == b.Addr &&
		a.MTU == b.MTU && a.MAC == b.MAC && a.VNI == b.VNI && a.Port == b.Port
}

// checkTunnel reports what a device lacks; it writes nothing.
func (p *pass) checkTunnel(t plan.Tunnel) error {
	delete(p.devices, t.Kind)
	delete(p.settledTunnels, t.Kind)
	if err := link.CheckName(t.Device); err != nil {
		p.problem(t.Device, err)
		return nil
	}
	under, refused, err := p.under(t)
	if err != nil {
		return err
	}
	l, err := readTunnel(p.sock, t.Device)
	switch {
	case isNotExist(err) && refused != nil:
		p.problem(t.Device, refused)
		return nil
	case isNotExist(err):
		p.unmet(t.Device, "make the device")
		return nil
	case err != nil:
		return fmt.Errorf("read link %s: %w", t.Device, err)
	case l.isForeign(t):
		p.problem(t.Device, foreignLink(l))
		return nil
	case refused != nil:
		p.problem(t.Device, refused)
		under = l.under
	}
	right := refused == nil
	for _, s := range l.steps(t, under) {
		right = false
		p.unmet(t.Device, s.what)
	}
	missing, stale, err := p.tunnelAddrs(t, l.Index)
	if err != nil {
		return err
	}
	for _, a := range missing {
		right = false
		p.unmet(t.Device, "add address "+a.String())
	}
	for _, a := range stale {
		right = false
		p.unmet(t.Device, "delete address "+a.String())
	}
	if right {
		p.devices[t.Kind], p.settledTunnels[t.Kind] = l.Index, t
	}
	return nil
}

// removeTunnels deletes what no route needs any more: former addresses of devices,
// and devices of ours that are not desired. bare says that a device that stays has none
// any more: with the last of IPv4 the kernel drops its routes and neighbours.
func (p *pass) removeTunnels() (bare bool, err error) {
	for kind, d := range tunnelDevices() {
		i := slices.IndexFunc(p.tunnels, func(t plan.Tunnel) bool { return t.Kind == kind })
		t := plan.Tunnel{Kind: kind, Device: d.name}
		if i >= 0 {
			t = p.tunnels[i]
		}
		l, err := readTunnel(p.sock, t.Device)
		if isNotExist(err) {
			continue
		} else if err != nil {
			return false, fmt.Errorf("read link %s: %w", t.Device, err)
		}
		if l.Alias != link.TunnelAlias || l.Kind != d.kind {
			continue
		}
		drifted := p.hadDevices[kind] == l.Index && p.settled(t)
		if i < 0 {
			err = p.removeTunnel(t, l)
		} else {
			writes := p.writes
			err = p.removeAddrs(t, l.Index, drifted)
			if p.writes > writes && !t.Addr.IsValid() {
				bare = true
				clear(p.held) // it was nobody else
				delete(p.hadDevices, kind)
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
		if _, err := p.tunnelWrite(t, deviceStep{"delete address " + a.String(), rtnl.DeleteAddr(index, a)}, drifted); err != nil {
			return err
		}
	}
	return nil
}

// removeTunnel deletes a device. The kernel's own tunl0 says that it was deleted
// and stays: it goes down, and is no longer ours.
func (p *pass) removeTunnel(t plan.Tunnel, l tunnelLink) error {
	delete(p.devices, t.Kind)
	delete(p.settledTunnels, t.Kind)
	if _, err := p.tunnelWrite(t, deviceStep{"delete the device", deleteMessage(l.Index)}, false); err != nil {
		return err
	}
	if _, err := link.Get(p.sock, l.Index, ""); isNotExist(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read link %s: %w", t.Device, err)
	}
	if err := p.removeAddrs(t, l.Index, false); err != nil {
		return err
	}
	down := rtnl.NewMessage(unix.RTM_SETLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, l.Index, 0, unix.IFF_UP))
	down.Attr(unix.IFLA_IFALIAS, nil)
	_, err := p.tunnelWrite(t, deviceStep{"take down", down}, false)
	return err
}
