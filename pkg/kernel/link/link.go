// SPDX-License-Identifier: Apache-2.0

// Package link is network interfaces: a Link as the kernel has it, and what both ends of a workload's agree on,
// its gateways first.
package link

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
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
	Alias    string // up to 255 bytes
	Kind     string // "veth", "bridge", …; "" for hardware
	Parent   int    // index of a veth's peer in the peer's namespace; 0 without
	PeerNSID int    // the id that this namespace has for the peer's namespace; -1 without
	apart    bool   // the peer is in another namespace, also where that is ending and has no id any more
	Conf4    Settings
	Conf6    Settings
	AddrGen  uint8
	Loopback bool
	Carrier  bool // Running says no a moment longer, and always of links that don't tell
	Inet6    bool // the link speaks IPv6 at all
}

// BothEndsHere reports whether the other end of a veth is in the same namespace.
func (l Link) BothEndsHere() bool { return l.Kind == "veth" && l.Parent != 0 && !l.apart }

// Settings is a kernel array of an interface's sysctls.
type Settings []byte

// At returns the value at a position, and false if this kernel has none.
func (d Settings) At(i int) (int32, bool) {
	raw := d.Raw(i)
	return int32(rtnl.Uint32(raw)), raw != nil
}

// Raw is the value at a position as the kernel wrote it, nil if it has none.
func (d Settings) Raw(i int) []byte {
	if i < 0 || 4*i+4 > len(d) {
		return nil
	}
	return d[4*i : 4*i+4]
}

// Ways to make the link-local address, of linux/if_link.h.
const (
	GenEUI64 = 0 // IN6_ADDR_GEN_MODE_EUI64
	GenNone  = 1
)

const confDisableIPv6 = 26 // DEVCONF_DISABLE_IPV6 of linux/ipv6.h

// operUp is IF_OPER_UP of linux/if.h.
const operUp = 6

// FilterSkipStats is RTEXT_FILTER_SKIP_STATS: counters are most of a link's size.
const FilterSkipStats = 1 << 3

// CheckName says whether the kernel could have a link of that name: dev_valid_name, and %, in place of which the kernel
// puts a number, and the directories of sysctls that are of all links.
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

// GetMessage asks for one link by index, or by name where the index is 0.
func GetMessage(index int, name string) *rtnl.Message {
	m := rtnl.NewMessage(unix.RTM_GETLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, index, 0, 0))
	if index == 0 {
		m.AttrString(unix.IFLA_IFNAME, name)
	}
	m.Attr32(unix.IFLA_EXT_MASK, FilterSkipStats)
	return m
}

// ListMessage asks for all links.
func ListMessage() *rtnl.Message {
	m := rtnl.NewMessage(unix.RTM_GETLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, 0, 0, 0))
	m.Attr32(unix.IFLA_EXT_MASK, FilterSkipStats)
	return m
}

// Parse reads struct ifinfomsg and its attributes.
func Parse(b []byte) (Link, bool) {
	if len(b) < unix.SizeofIfInfomsg {
		return Link{}, false
	}
	flags := rtnl.Uint32(b[8:])
	l := Link{
		Index:    int(int32(rtnl.Uint32(b[4:]))),
		Up:       flags&unix.IFF_UP != 0,
		PeerNSID: -1,
		Loopback: flags&unix.IFF_LOOPBACK != 0,
		Carrier:  flags&unix.IFF_LOWER_UP != 0,
	}
	rtnl.Attributes(b[unix.SizeofIfInfomsg:], func(kind uint16, data []byte) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = rtnl.Text(data)
		case unix.IFLA_ADDRESS:
			if len(data) == len(l.MAC) {
				l.MAC = model.MAC(data)
			}
		case unix.IFLA_MTU:
			l.MTU = int(rtnl.Uint32(data))
		case unix.IFLA_IFALIAS:
			l.Alias = rtnl.Text(data)
		case unix.IFLA_LINK:
			l.Parent = int(int32(rtnl.Uint32(data)))
		case unix.IFLA_OPERSTATE:
			// The flag for it says yes before the queue is attached that packets
			// leave by; until then they are dropped (linkwatch_do_dev).
			l.Running = len(data) > 0 && data[0] == operUp
		case unix.IFLA_LINK_NETNSID:
			l.PeerNSID, l.apart = int(int32(rtnl.Uint32(data))), true
		case unix.IFLA_LINKINFO:
			rtnl.Attributes(data, func(kind uint16, data []byte) {
				if kind == unix.IFLA_INFO_KIND {
					l.Kind = rtnl.Text(data)
				}
			})
		case unix.IFLA_AF_SPEC:
			l.ParseFamilies(data)
		}
	})
	return l, true
}

// ParseFamilies reads the attribute that has what is of one family.
func (l *Link) ParseFamilies(b []byte) {
	rtnl.Attributes(b, func(family uint16, data []byte) {
		rtnl.Attributes(data, func(kind uint16, data []byte) {
			switch {
			case family == unix.AF_INET && kind == unix.IFLA_INET_CONF:
				l.Conf4 = data
			case family == unix.AF_INET6 && kind == unix.IFLA_INET6_CONF:
				l.Conf6 = data
			case family == unix.AF_INET6 && kind == unix.IFLA_INET6_ADDR_GEN_MODE && len(data) > 0:
				l.AddrGen, l.Inet6 = data[0], true
			}
		})
	})
}

// Get returns one link; the error wraps os.ErrNotExist when there is none.
func Get(s *rtnl.Socket, index int, name string) (Link, error) {
	data, err := s.Ask(GetMessage(index, name))
	if errors.Is(err, unix.ENODEV) {
		err = os.ErrNotExist
	}
	if err != nil {
		return Link{}, err
	}
	return First(data)
}

// First is the link of an answer to GetMessage.
func First(data []rtnl.Received) (Link, error) {
	for _, r := range data {
		if r.Kind == unix.RTM_NEWLINK {
			if l, ok := Parse(r.Body); ok {
				return l, nil
			}
		}
	}
	return Link{}, errors.New("the kernel answered without a link")
}

// Select returns the links whose name keep accepts.
func Select(s *rtnl.Socket, keep func(name string) bool) ([]Link, error) {
	all, err := s.Dump(ListMessage())
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var links []Link
	for _, r := range all {
		if l, ok := Parse(r.Body); ok && r.Kind == unix.RTM_NEWLINK && keep(l.Name) {
			links = append(links, l)
		}
	}
	return links, nil
}

// Find returns the link of that name in the current namespace. The error
// wraps os.ErrNotExist when there is none.
func Find(name string) (Link, error) {
	if err := CheckName(name); err != nil {
		return Link{}, err
	}
	s, err := rtnl.Open()
	if err != nil {
		return Link{}, err
	}
	defer s.Close()
	l, err := Get(s, 0, name)
	if err != nil {
		return Link{}, fmt.Errorf("read link %s: %w", name, err)
	}
	return l, nil
}

// List returns the links of the current namespace whose name starts with
// the prefix.
func List(prefix string) ([]Link, error) {
	s, err := rtnl.Open()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return Select(s, func(name string) bool { return strings.HasPrefix(name, prefix) })
}

// Delete deletes the link of that name in the current namespace, and with a
// veth its peer, wherever that is. A link that is gone already is no error.
func Delete(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return DeleteIndex(0, name)
}

// DeleteFound removes that very link, and not one that has taken its name since.
func DeleteFound(l Link) error { return DeleteIndex(l.Index, l.Name) }

// DeleteIndex deletes the link with the index, or with the name where that is 0.
func DeleteIndex(index int, name string) error {
	s, err := rtnl.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	m := rtnl.NewMessage(unix.RTM_DELLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, index, 0, 0))
	if index == 0 {
		m.AttrString(unix.IFLA_IFNAME, name)
	}
	if _, err := s.Ask(m); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete link %s: %w", name, err)
	}
	return nil
}

// HasIPv6 says whether the link speaks IPv6 now.
func (l Link) HasIPv6() bool {
	disabled, _ := l.Conf6.At(confDisableIPv6)
	return l.Inet6 && disabled == 0
}

// SetUp brings a link up.
func SetUp(index int) *rtnl.Message {
	return rtnl.NewMessage(unix.RTM_SETLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, index, unix.IFF_UP, unix.IFF_UP))
}

// SetAddrGen says how the kernel makes the link-local address when the link goes
// up.
func SetAddrGen(index int, mode uint8) *rtnl.Message {
	m := rtnl.NewMessage(unix.RTM_SETLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, index, 0, 0))
	m.Nest(unix.IFLA_AF_SPEC, func() {
		m.Nest(unix.AF_INET6, func() { m.Attr8(unix.IFLA_INET6_ADDR_GEN_MODE, mode) })
	})
	return m
}
