// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/binary"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// fragments is the packet as it is sent, in parts. The mark is in the first.
func (p probe) fragments(id uint32) [][]byte {
	b := p.bytes(id)
	if !p.Fragmented {
		return [][]byte{b}
	}
	carried := b[len(b)-p.carries():]
	cut := 16
	if p.Protocol == model.ProtocolTCP {
		cut = 32
	}
	if p.Src.Is4() {
		part := func(offset int, data []byte) []byte {
			h := slices.Clone(b[:len(b)-len(carried)])
			field := uint16(offset / 8)
			if offset == 0 {
				field |= 0x2000 // more fragments
			}
			binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(data)))
			binary.BigEndian.PutUint16(h[6:], field)
			binary.BigEndian.PutUint16(h[10:], 0)
			binary.BigEndian.PutUint16(h[10:], checksum(h))
			return append(h, data...)
		}
		return [][]byte{part(0, carried[:cut]), part(cut, carried[cut:])}
	}
	part := func(offset uint16, data []byte) []byte {
		h := append(slices.Clone(b[:40]), byte(p.Protocol), 0)
		if offset == 0 {
			offset |= 1 // more fragments
		}
		h = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(h, offset), id)
		h[6] = fragmentHeader
		binary.BigEndian.PutUint16(h[4:], uint16(8+len(data)))
		return append(h, data...)
	}
	return [][]byte{part(0, carried[:cut]), part(uint16(cut), carried[cut:])}
}

// fragmentable: the first part has room for all that is asked.
func (p probe) fragmentable() bool {
	return (p.Protocol == model.ProtocolTCP || p.Protocol == model.ProtocolUDP || p.icmp()) && p.About == nil && (p.Src.Is4() || !p.Options)
}

// carries is how much follows the IP header.
func (p probe) carries() int {
	n := 16
	if p.Protocol == model.ProtocolTCP {
		n = 28
	}
	if p.Fragmented {
		n += len(padding)
	}
	return n
}

// padding is what fragments have to share.
const padding = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
