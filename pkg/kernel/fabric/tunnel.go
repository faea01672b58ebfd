// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// tunnelDevices are the names that plan gives, and the kernel's kind of each.
func tunnelDevices() map[plan.TunnelKind]struct{ name, kind string } {
	return map[plan.TunnelKind]struct{ name, kind string }{
		plan.VXLAN4: {link.VXLAN4, "vxlan"},
		plan.VXLAN6: {link.VXLAN6, "vxlan"},
		plan.IPIP:   {link.IPIP, "ipip"},
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
	link.Link
	vni      uint32
	port     uint16
	local    netip.Addr
	remote   netip.Addr // of IPIP
	under    int        // index of the link below
	learning bool
}

// parseTunnel reads struct ifinfomsg of a link and what of it is a tunnel's.
func parseTunnel(b []byte) (tunnelLink, bool) {
	l, ok := link.Parse(b)
	if !ok {
		return tunnelLink{}, false
	}
	t := tunnelLink{Link: l}
	rtnl.Attributes(b[unix.SizeofIfInfomsg:], func(kind uint16, data []byte) {
		if kind != unix.IFLA_LINKINFO {
			return
		}
		rtnl.Attributes(data, func(kind uint16, data []byte) {
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
	rtnl.Attributes(b, func(kind uint16, data []byte) {
		switch kind {
		case unix.IFLA_VXLAN_ID:
			l.vni = rtnl.Uint32(data)
		case unix.IFLA_VXLAN_LINK:
			l.under = int(rtnl.Uint32(data))
		case unix.IFLA_VXLAN_LOCAL, unix.IFLA_VXLAN_LOCAL6:
			l.local = rtnl.Addr(data)
		case unix.IFLA_VXLAN_PORT:
			if len(data) >= 2 {
				l.port = binary.BigEndian.Uint16(data)
			}
		case unix.IFLA_VXLAN_LEARNING:
			l.learning = len(data) > 0 && data[0] != 0
		}
	})
}

// readTunnel reads one tunnel device; the error wraps os.ErrNotExist when there is no
// link of that name.
func readTunnel(s *rtnl.Socket, name string) (tunnelLink, error) {
	if _, err := link.Get(s, 0, name); err != nil {
		return tunnelLink{}, err
	}
	data, err := s.Ask(link.GetMessage(0, name))
	if err != nil {
		return tunnelLink{}, err
	}
	for _, m := range data {
		if t, ok := parseTunnel(m.Body); ok && m.Kind == unix.RTM_NEWLINK {
			return t, nil
		}
	}
	return tunnelLink{}, errors.New("the kernel answered without a link")
}

// vxlan adds what makes a device a VXLAN. VNI and port can't be changed of one
// that is there.
func vxlan(m *rtnl.Message, t plan.Tunnel, under int, create bool) {
	m.Nest(unix.IFLA_LINKINFO, func() {
		m.AttrString(unix.IFLA_INFO_KIND, "vxlan")
		m.Nest(unix.IFLA_INFO_DATA, func() {
			if create {
				m.Attr32(unix.IFLA_VXLAN_ID, t.VNI)
				m.Attr(unix.IFLA_VXLAN_PORT, binary.BigEndian.AppendUint16(nil, t.Port))
			}
			if under != 0 {
				m.Attr32(unix.IFLA_VXLAN_LINK, uint32(under))
			}
			if t.Local.Is4() {
				m.AttrAddr(unix.IFLA_VXLAN_LOCAL, t.Local)
			} else if t.Local.IsValid() {
				m.AttrAddr(unix.IFLA_VXLAN_LOCAL6, t.Local)
			}
			m.Attr8(unix.IFLA_VXLAN_LEARNING, 0)
		})
	})
}

// newTunnel makes a tunnel device, down.
func newTunnel(t plan.Tunnel, under int) *rtnl.Message {
	m := rtnl.NewMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, rtnl.LinkBody(unix.AF_UNSPEC, 0, 0, 0))
	m.AttrString(unix.IFLA_IFNAME, t.Device)
	if t.MTU > 0 {
		m.Attr32(unix.IFLA_MTU, uint32(t.MTU))
	}
	if t.Kind == plan.IPIP {
		ipip(m)
		return m
	}
	if !t.MAC.IsZero() {
		m.Attr(unix.IFLA_ADDRESS, t.MAC[:])
	}
	vxlan(m, t, under, true)
	return m
}

// deviceStep is a request with the words for its failure.
type deviceStep struct {
	what    string
	request *rtnl.Message
}

// tunnelStep is one thing that a device lacks.
type tunnelStep struct {
	deviceStep
	remake bool // it can be had only by making the device anew
}

// steps are what the device needs to be as desired, in order.
func (l *tunnelLink) steps(t plan.Tunnel, under int) []tunnelStep {
	var steps []tunnelStep
	set := func(what string, fill func(m *rtnl.Message)) {
		m := rtnl.NewMessage(unix.RTM_SETLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, l.Index, 0, 0))
		fill(m)
		steps = append(steps, tunnelStep{deviceStep: deviceStep{what, m}})
	}
	// Marked first: what is half made can be removed.
	if l.Alias != link.TunnelAlias {
		set("mark by its alias", func(m *rtnl.Message) { m.Attr(unix.IFLA_IFALIAS, []byte(link.TunnelAlias)) })
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
			m := rtnl.NewMessage(unix.RTM_NEWLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, l.Index, 0, 0))
			vxlan(m, t, under, false)
			steps = append(steps, tunnelStep{deviceStep: deviceStep{fmt.Sprintf("set local address %s, link %q, no learning", t.Local, t.Parent), m}})
		}
		if l.MAC != t.MAC && !t.MAC.IsZero() {
			set("set MAC address "+t.MAC.String(), func(m *rtnl.Message) { m.Attr(unix.IFLA_ADDRESS, t.MAC[:]) })
		}
	}
	if l.MTU != t.MTU && t.MTU > 0 {
		set(fmt.Sprintf("set MTU %d", t.MTU), func(m *rtnl.Message) { m.Attr32(unix.IFLA_MTU, uint32(t.MTU)) })
	}
	if !l.Up {
		steps = append(steps, tunnelStep{deviceStep: deviceStep{"bring up", link.SetUp(l.Index)}})
	}
	return steps
}

// addrsOf are the addresses of a link but for those of its own scope.
func addrsOf(s *rtnl.Socket, index int) ([]netip.Prefix, error) {
	body := make([]byte, unix.SizeofIfAddrmsg)
	binary.NativeEndian.PutUint32(body[4:], uint32(index))
	all, err := s.Dump(rtnl.NewMessage(unix.RTM_GETADDR, 0, body))
	if errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var addrs []netip.Prefix
	for _, m := range all {
		a, i, ok := rtnl.ParseAddr(m.Body)
		if ok && i == index && m.Kind == unix.RTM_NEWADDR && !a.Addr().IsLinkLocalUnicast() {
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}
