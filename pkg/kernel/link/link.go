// SPDX-License-Identifier: Apache-2.0

// Package link describes network interfaces: a Link as the kernel has it, and the conventions for both ends of a workload's veth, such as
// its gateways.
package link

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Link is a network interface.
type Link struct {
	Index    int
	Name     string
	MAC      model.MAC
	MTU      int
	Up       bool   // administratively
	Running  bool   // the peer, or the other end of the cable, is up too
	NoARP    bool   // it doesn't use ARP and neighbour discovery
	Alias    string // up to 255 bytes
	Kind     string // "veth", "bridge", …; "" for hardware
	Master   int    // index of the bridge, bond or VRF that it is a port of; 0 without
	Parent   int    // index of a veth's peer in the peer's namespace; 0 without
	PeerNSID int    // this namespace's id for the peer's namespace; -1 without
	Conf4    settings
	Conf6    settings
	AddrGen  int // IN6_ADDR_GEN_MODE_…
	Loopback bool
	Carrier  bool         // as Running, but true a moment too early, and for links that don't report it
	Inet6    bool         // the link speaks IPv6 at all
	Device   netlink.Link // with what only its kind has; nil for hardware, veths and taps

	CarrierLosses uint32 // since it was created

	apart bool // the peer is in another namespace, even one that is ending and has no id any more
}

// settings is a kernel array of an interface's sysctls.
type settings []byte

// At returns the value at a position, and false if this kernel has none.
func (d settings) At(i int) (int32, bool) {
	if i < 0 || 4*i+4 > len(d) {
		return 0, false
	}
	return int32(rtnl.Uint32(d[4*i:])), true
}

// How the kernel creates a link-local address, from linux/if_link.h.
const (
	GenEUI64 = 0 // IN6_ADDR_GEN_MODE_EUI64
	GenNone  = 1
)

const (
	confDisableIPv6 = 26     // DEVCONF_DISABLE_IPV6 of linux/ipv6.h
	skipStats       = 1 << 3 // RTEXT_FILTER_SKIP_STATS: counters are most of a link's size
)

// HasIPv6 reports whether the link speaks IPv6 now.
func (l Link) HasIPv6() bool {
	disabled, _ := l.Conf6.At(confDisableIPv6)
	return l.Inet6 && disabled == 0
}

// BothEndsHere reports whether the other end of a veth is in the same namespace.
func (l Link) BothEndsHere() bool { return l.Kind == "veth" && l.Parent != 0 && !l.apart }

// CheckName returns an error if the kernel can't have a link with that name: it fails dev_valid_name, contains %, which the kernel replaces
// by a number, or is the sysctl directory of all links.
func CheckName(name string) error {
	switch {
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n\v\f\r\x00"):
		return fmt.Errorf("%q is not a name that a network interface can have", name)
	case strings.Contains(name, "%"), name == "all", name == "default":
		return fmt.Errorf("%q is not a name that a network interface can have", name)
	case len(name) >= unix.IFNAMSIZ:
		return fmt.Errorf("interface name %q is longer than %d bytes", name, unix.IFNAMSIZ-1)
	}
	return nil
}

// request returns a request for a link, or for all. The library's own request includes counters, and its Link has no sysctls.
func request(index int, name string) []nl.NetlinkRequestData {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	parts := []nl.NetlinkRequestData{msg, nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats))}
	if name != "" {
		parts = append(parts, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	}
	return parts
}

// Parse parses a message about a link, RTM_NEWLINK or RTM_DELLINK. A host has a thousand veths that are read every ten seconds, and the
// library takes three times as long to parse one: it only parses links with settings of their kind, which are few, but not taps.
func Parse(b []byte) (Link, error) {
	if len(b) < unix.SizeofIfInfomsg {
		return Link{}, fmt.Errorf("parse a link: %d bytes are less than a header", len(b))
	}
	header := nl.DeserializeIfInfomsg(b)
	l := Link{Index: int(header.Index), PeerNSID: -1, Up: header.Flags&unix.IFF_UP != 0, NoARP: header.Flags&unix.IFF_NOARP != 0, Loopback: header.Flags&unix.IFF_LOOPBACK != 0, Carrier: header.Flags&unix.IFF_LOWER_UP != 0}
	silent := false
	rtnl.Attributes(b[unix.SizeofIfInfomsg:], func(kind uint16, data []byte) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = rtnl.Text(data)
		case unix.IFLA_ADDRESS:
			l.MAC = rtnl.MAC(data)
		case unix.IFLA_MTU:
			l.MTU = int(rtnl.Uint32(data))
		case unix.IFLA_IFALIAS:
			l.Alias = rtnl.Text(data)
		case unix.IFLA_MASTER:
			l.Master = int(rtnl.Uint32(data))
		case unix.IFLA_LINK:
			l.Parent = int(rtnl.Uint32(data))
		case unix.IFLA_LINK_NETNSID:
			l.apart, l.PeerNSID = true, int(int32(rtnl.Uint32(data)))
		case unix.IFLA_OPERSTATE:
			// The corresponding flag is set before the queue for outgoing packets is attached; until then they are dropped
			// (linkwatch_do_dev).
			l.Running = len(data) > 0 && netlink.LinkOperState(data[0]) == netlink.OperUp
			silent = len(data) > 0 && netlink.LinkOperState(data[0]) == netlink.OperUnknown
		case unix.IFLA_CARRIER_DOWN_COUNT:
			l.CarrierLosses = rtnl.Uint32(data)
		case unix.IFLA_LINKINFO:
			rtnl.Attributes(data, func(kind uint16, data []byte) {
				if kind == unix.IFLA_INFO_KIND {
					l.Kind = rtnl.Text(data)
				}
			})
		case unix.IFLA_AF_SPEC:
			rtnl.Attributes(data, l.parseFamily)
		}
	})
	if l.Kind == "tun" && silent { // it has never been released since it was created
		l.Running = l.Carrier
	}
	if l.Kind == "" || l.Kind == "veth" || l.Kind == "tun" {
		return l, nil
	}
	var err error
	if l.Device, err = deserialize(b); err != nil {
		return Link{}, fmt.Errorf("parse link %s: %w", l.Name, err)
	}
	return l, nil
}

// deserialize calls the library, which panics if an attribute of the link's kind is shorter than it expects.
func deserialize(b []byte) (l netlink.Link, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the library can't read it: %v", p)
		}
	}()
	return netlink.LinkDeserialize(nil, b)
}

// nameOf returns the name in a message about a link.
func nameOf(b []byte) (name string) {
	rtnl.Attributes(b[min(len(b), unix.SizeofIfInfomsg):], func(kind uint16, data []byte) {
		if kind == unix.IFLA_IFNAME {
			name = rtnl.Text(data)
		}
	})
	return name
}

// parseFamily parses a link's attributes of one family.
func (l *Link) parseFamily(family uint16, data []byte) {
	rtnl.Attributes(data, func(kind uint16, data []byte) {
		switch {
		case family == unix.AF_INET && kind == unix.IFLA_INET_CONF:
			l.Conf4 = data
		case family == unix.AF_INET6 && kind == unix.IFLA_INET6_CONF:
			l.Conf6 = data
		case family == unix.AF_INET6 && kind == unix.IFLA_INET6_ADDR_GEN_MODE && len(data) > 0:
			l.AddrGen, l.Inet6 = int(data[0]), true
		}
	})
}

// Get returns the link with the index, or if that is 0 with the name. The error wraps os.ErrNotExist if there is none.
func Get(c *rtnl.Conn, index int, name string) (Link, error) {
	return get(c, request(index, name)...)
}

// GetPeer returns a veth's other end, which is in another namespace.
func GetPeer(c *rtnl.Conn, l Link) (Link, error) {
	return get(c, append(request(l.Parent, ""), nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(l.PeerNSID))))...)
}

func get(c *rtnl.Conn, parts ...nl.NetlinkRequestData) (Link, error) {
	found, err := c.Request(unix.RTM_GETLINK, 0, unix.RTM_NEWLINK, parts...)
	switch {
	case errors.Is(err, unix.ENODEV):
		return Link{}, os.ErrNotExist
	case err != nil:
		return Link{}, err
	case len(found) == 0:
		return Link{}, errors.New("the kernel answered without a link")
	}
	return Parse(found[0])
}

// Select returns the links whose name keep accepts.
func Select(c *rtnl.Conn, keep func(name string) bool) ([]Link, error) {
	all, err := c.Request(unix.RTM_GETLINK, unix.NLM_F_DUMP, unix.RTM_NEWLINK, request(0, "")...)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var links []Link
	for _, b := range all {
		if !keep(nameOf(b)) {
			continue
		}
		l, err := Parse(b)
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	return links, nil
}

// Find returns the link with that name in the current namespace. The error wraps os.ErrNotExist if there is none.
func Find(name string) (Link, error) {
	if err := CheckName(name); err != nil {
		return Link{}, err
	}
	c, err := rtnl.Dial()
	if err != nil {
		return Link{}, err
	}
	defer c.Close()
	l, err := Get(c, 0, name)
	if err != nil {
		return Link{}, fmt.Errorf("read link %s: %w", name, err)
	}
	return l, nil
}

// List returns the links of the current namespace whose name starts with the prefix.
func List(prefix string) ([]Link, error) {
	c, err := rtnl.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return Select(c, func(name string) bool { return strings.HasPrefix(name, prefix) })
}

// Delete deletes the link with that name in the current namespace, and a veth's peer wherever it is. A missing link is no error.
func Delete(name string) error {
	l, err := Find(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return DeleteFound(l)
}

// DeleteFound deletes that very link, not one that has taken its name since.
func DeleteFound(l Link) error {
	c, err := rtnl.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.LinkDel(rtnl.Device(l.Index)); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete link %s: %w", l.Name, err)
	}
	return nil
}
