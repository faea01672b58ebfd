// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// tunnelDevices are the names that plan gives, and the kernel's kind of each.
func tunnelDevices() map[plan.TunnelKind]struct{ name, kind string } {
	return map[plan.TunnelKind]struct{ name, kind string }{
		plan.VXLAN4: {"vxlan.calico", "vxlan"},
		plan.VXLAN6: {"vxlan-v6.calico", "vxlan"},
		plan.IPIP:   {"tunl0", "ipip"},
	}
}

func kindOf(t plan.TunnelKind) string {
	if t == plan.IPIP {
		return "ipip"
	}
	return "vxlan"
}

// tunnelLink is a tunnel device as the kernel has it.
type tunnelLink struct {
	Link
	vni      uint32
	port     uint16
	local    netip.Addr
	remote   netip.Addr // of IPIP
	under    int        // index of the link below
	learning bool
}

// parseTunnel reads struct ifinfomsg of a link and what of it is a tunnel's.
func parseTunnel(b []byte) (tunnelLink, bool) {
	l, ok := parseLink(b)
	if !ok {
		return tunnelLink{}, false
	}
	t := tunnelLink{Link: l}
	attributes(b[unix.SizeofIfInfomsg:], func(kind uint16, data []byte) {
		if kind != unix.IFLA_LINKINFO {
			return
		}
		attributes(data, func(kind uint16, data []byte) {
			switch {
			case kind == unix.IFLA_INFO_DATA && l.Kind == "vxlan":
				t.parseVXLAN(data)
			case kind == unix.IFLA_INFO_DATA && l.Kind == "ipip":
				t.parseIPIP(data)
			}
		})
	})
	return t, true
}

func (l *tunnelLink) parseVXLAN(b []byte) {
	attributes(b, func(kind uint16, data []byte) {
		switch kind {
		case unix.IFLA_VXLAN_ID:
			l.vni = u32(data)
		case unix.IFLA_VXLAN_LINK:
			l.under = int(u32(data))
		case unix.IFLA_VXLAN_LOCAL, unix.IFLA_VXLAN_LOCAL6:
			l.local = addrOf(data)
		case unix.IFLA_VXLAN_PORT:
			if len(data) >= 2 {
				l.port = binary.BigEndian.Uint16(data)
			}
		case unix.IFLA_VXLAN_LEARNING:
			l.learning = len(data) > 0 && data[0] != 0
		}
	})
}

// tunnel reads one tunnel device; the error wraps os.ErrNotExist when there is no
// link of that name.
func (s *socket) tunnel(name string) (tunnelLink, error) {
	if _, err := s.link(0, name); err != nil {
		return tunnelLink{}, err
	}
	data, err := s.ask(getLink(0, name))
	if err != nil {
		return tunnelLink{}, err
	}
	for _, m := range data {
		if t, ok := parseTunnel(m.body); ok && m.kind == unix.RTM_NEWLINK {
			return t, nil
		}
	}
	return tunnelLink{}, errors.New("the kernel answered without a link")
}

// vxlan adds what makes a device a VXLAN. VNI and port can't be changed of one
// that is there.
func vxlan(m *message, t plan.Tunnel, under int, create bool) {
	m.nest(unix.IFLA_LINKINFO, func() {
		m.attrString(unix.IFLA_INFO_KIND, "vxlan")
		m.nest(unix.IFLA_INFO_DATA, func() {
			if create {
				m.attr32(unix.IFLA_VXLAN_ID, t.VNI)
				m.attr(unix.IFLA_VXLAN_PORT, binary.BigEndian.AppendUint16(nil, t.Port))
			}
			if under != 0 {
				m.attr32(unix.IFLA_VXLAN_LINK, uint32(under))
			}
			if t.Local.Is4() {
				m.attrAddr(unix.IFLA_VXLAN_LOCAL, t.Local)
			} else if t.Local.IsValid() {
				m.attrAddr(unix.IFLA_VXLAN_LOCAL6, t.Local)
			}
			m.attr8(unix.IFLA_VXLAN_LEARNING, 0)
		})
	})
}

// newTunnel makes a tunnel device, down.
func newTunnel(t plan.Tunnel, under int) *message {
	m := newMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, linkBody(unix.AF_UNSPEC, 0, 0, 0))
	m.attrString(unix.IFLA_IFNAME, t.Device)
	if t.MTU > 0 {
		m.attr32(unix.IFLA_MTU, uint32(t.MTU))
	}
	if t.Kind == plan.IPIP {
		ipip(m)
		return m
	}
	if !t.MAC.IsZero() {
		m.attr(unix.IFLA_ADDRESS, t.MAC[:])
	}
	vxlan(m, t, under, true)
	return m
}

// deviceStep is a request with the words for its failure.
type deviceStep struct {
	what    string
	request *message
}

// tunnelStep is one thing that a device lacks.
type tunnelStep struct {
	deviceStep
	remake bool // it can be had only by making the device anew
}

// steps are what the device needs to be as desired, in order.
func (l *tunnelLink) steps(t plan.Tunnel, under int) []tunnelStep {
	var steps []tunnelStep
	set := func(what string, fill func(m *message)) {
		m := newMessage(unix.RTM_SETLINK, 0, linkBody(unix.AF_UNSPEC, l.Index, 0, 0))
		fill(m)
		steps = append(steps, tunnelStep{deviceStep: deviceStep{what, m}})
	}
	// Marked first: what is half made can be removed.
	if l.Alias != tunnelAlias {
		set("mark by its alias", func(m *message) { m.attr(unix.IFLA_IFALIAS, []byte(tunnelAlias)) })
	}
	if l.bound() {
		return []tunnelStep{{deviceStep{what: "make it anew without local and remote address"}, true}}
	}
	if t.Kind != plan.IPIP {
		if l.vni != t.VNI || l.port != t.Port {
			return []tunnelStep{{deviceStep{what: fmt.Sprintf("make it anew with VNI %d and port %d", t.VNI, t.Port)}, true}}
		}
		if l.local.IsValid() && t.Local.IsValid() && l.local.Is4() != t.Local.Is4() || l.under != 0 && under == 0 {
			return []tunnelStep{{deviceStep{what: fmt.Sprintf("make it anew with local address %s by link %q", t.Local, t.Parent)}, true}}
		}
		if l.local != t.Local || l.under != under || l.learning {
			m := newMessage(unix.RTM_NEWLINK, 0, linkBody(unix.AF_UNSPEC, l.Index, 0, 0))
			vxlan(m, t, under, false)
			steps = append(steps, tunnelStep{deviceStep: deviceStep{fmt.Sprintf("set local address %s, link %q, no learning", t.Local, t.Parent), m}})
		}
		if l.MAC != t.MAC && !t.MAC.IsZero() {
			set("set MAC address "+t.MAC.String(), func(m *message) { m.attr(unix.IFLA_ADDRESS, t.MAC[:]) })
		}
	}
	if l.MTU != t.MTU && t.MTU > 0 {
		set(fmt.Sprintf("set MTU %d", t.MTU), func(m *message) { m.attr32(unix.IFLA_MTU, uint32(t.MTU)) })
	}
	if !l.Up {
		steps = append(steps, tunnelStep{deviceStep: deviceStep{"bring up", setUp(l.Index)}})
	}
	return steps
}

// addrsOf are the addresses of a link but for those of its own scope.
func (s *socket) addrsOf(index int) ([]netip.Prefix, error) {
	body := make([]byte, unix.SizeofIfAddrmsg)
	binary.NativeEndian.PutUint32(body[4:], uint32(index))
	all, err := s.dump(newMessage(unix.RTM_GETADDR, 0, body))
	if errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var addrs []netip.Prefix
	for _, m := range all {
		a, i, ok := parseAddr(m.body)
		if ok && i == index && m.kind == unix.RTM_NEWADDR && !a.Addr().IsLinkLocalUnicast() {
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}
