// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
	"golang.org/x/sys/unix"
)

// neigh is a neighbour entry.
type neigh struct {
	index int
	state uint16
	addr  netip.Addr
	mac   model.MAC
}

// parseNeigh reads struct ndmsg and its attributes; false for proxy entries and
// those of bridges.
func parseNeigh(b []byte) (neigh, bool) {
	if len(b) < unix.SizeofNdMsg || b[0] != unix.AF_INET && b[0] != unix.AF_INET6 || b[10]&unix.NTF_PROXY != 0 {
		return neigh{}, false
	}
	n := neigh{index: int(u32(b[4:])), state: binary.NativeEndian.Uint16(b[8:])}
	attributes(b[unix.SizeofNdMsg:], func(kind uint16, data []byte) {
		switch {
		case kind == unix.NDA_DST:
			n.addr = addrOf(data)
		case kind == unix.NDA_LLADDR && len(data) == len(n.mac):
			n.mac = model.MAC(data)
		}
	})
	return n, n.addr.IsValid()
}

func setNeigh(index int, a netip.Addr, mac model.MAC) *message {
	m := newMessage(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, neighBody(familyOf(a), index, unix.NUD_PERMANENT, 0))
	m.attrAddr(unix.NDA_DST, a)
	m.attr(unix.NDA_LLADDR, mac[:])
	return m
}

func deleteNeigh(index int, a netip.Addr) *message {
	m := newMessage(unix.RTM_DELNEIGH, 0, neighBody(familyOf(a), index, 0, 0))
	m.attrAddr(unix.NDA_DST, a)
	return m
}
