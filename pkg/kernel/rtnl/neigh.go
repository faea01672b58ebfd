// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"encoding/binary"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
	"golang.org/x/sys/unix"
)

// Neigh is a neighbour entry.
type Neigh struct {
	Index int
	State uint16
	Addr  netip.Addr
	Mac   model.MAC
}

// ParseNeigh reads struct ndmsg and its attributes; false for proxy entries and
// those of bridges.
func ParseNeigh(b []byte) (Neigh, bool) {
	if len(b) < unix.SizeofNdMsg || b[0] != unix.AF_INET && b[0] != unix.AF_INET6 || b[10]&unix.NTF_PROXY != 0 {
		return Neigh{}, false
	}
	n := Neigh{Index: int(Uint32(b[4:])), State: binary.NativeEndian.Uint16(b[8:])}
	Attributes(b[unix.SizeofNdMsg:], func(kind uint16, data []byte) {
		switch {
		case kind == unix.NDA_DST:
			n.Addr = Addr(data)
		case kind == unix.NDA_LLADDR && len(data) == len(n.Mac):
			n.Mac = model.MAC(data)
		}
	})
	return n, n.Addr.IsValid()
}

// SetNeigh makes a permanent neighbour, or makes one that there is permanent.
func SetNeigh(index int, a netip.Addr, mac model.MAC) *Message {
	m := NewMessage(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, NeighBody(FamilyOf(a), index, unix.NUD_PERMANENT, 0))
	m.AttrAddr(unix.NDA_DST, a)
	m.Attr(unix.NDA_LLADDR, mac[:])
	return m
}

// DeleteNeigh deletes one.
func DeleteNeigh(index int, a netip.Addr) *Message {
	m := NewMessage(unix.RTM_DELNEIGH, 0, NeighBody(FamilyOf(a), index, 0, 0))
	m.AttrAddr(unix.NDA_DST, a)
	return m
}
