// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
)

// Messages of BGP, as far as a neighbour with a few prefixes needs them. They are made by hand, not by the
// library that the agent has: what is wrong in that should show.

// Types of messages (RFC 4271, section 4.1).
const (
	bgpOpen         = 1
	bgpUpdate       = 2
	bgpNotification = 3
	bgpKeepalive    = 4
)

const (
	bgpHeader = 19
	bgpMost   = 4096 // a message's length
	bgpAS     = 64512
	bgpHold   = 90 // seconds
	bgpStale  = 120
)

// bgpMessage is a message of that type.
func bgpMessage(kind byte, body []byte) []byte {
	m := make([]byte, bgpHeader, bgpHeader+len(body))
	for i := range 16 {
		m[i] = 0xff
	}
	binary.BigEndian.PutUint16(m[16:], uint16(bgpHeader+len(body)))
	m[18] = kind
	return append(m, body...)
}

// openOf is the OPEN of a neighbour: IPv4 routes, route refresh, AS numbers of four octets, and graceful restart, as
// our own hosts have them (RFC 5492, 4760, 2918, 6793, 4724).
func openOf(id netip.Addr) []byte {
	capabilities := []byte{
		1, 4, 0, 1, 0, 1,
		2, 0,
		65, 4, 0, 0, bgpAS >> 8, bgpAS & 0xff,
		64, 6, 0, bgpStale, 0, 1, 1, 0,
	}
	body := []byte{4, bgpAS >> 8, bgpAS & 0xff, 0, bgpHold}
	body = append(body, id.AsSlice()...)
	body = append(body, byte(2+len(capabilities)), 2, byte(len(capabilities)))
	return bgpMessage(bgpOpen, append(body, capabilities...))
}

// announcement is the UPDATE that says that prefixes are behind a host (RFC 4271, section 4.3): their origin is IGP,
// the path of AS numbers is empty, the local preference 100.
func announcement(hop netip.Addr, prefixes ...netip.Prefix) []byte {
	attributes := []byte{
		0x40, 1, 1, 0,
		0x40, 2, 0,
		0x40, 3, 4,
	}
	attributes = append(attributes, hop.AsSlice()...)
	attributes = append(attributes, 0x40, 5, 4, 0, 0, 0, 100)
	body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attributes)))
	return bgpMessage(bgpUpdate, appendPrefixes(append(body, attributes...), prefixes))
}

// withdrawal is the UPDATE that says that prefixes are no longer there; with none, that all has been said (RFC 4724,
// section 2).
func withdrawal(prefixes ...netip.Prefix) []byte {
	list := appendPrefixes(nil, prefixes)
	body := binary.BigEndian.AppendUint16(nil, uint16(len(list)))
	return bgpMessage(bgpUpdate, append(append(body, list...), 0, 0))
}

func appendPrefixes(b []byte, prefixes []netip.Prefix) []byte {
	for _, p := range prefixes {
		b = append(append(b, byte(p.Bits())), p.Addr().AsSlice()[:(p.Bits()+7)/8]...)
	}
	return b
}

// readBGP reads a message into the buffer, which has room for any; the body is valid until the next.
func readBGP(r io.Reader, buffer []byte) (kind byte, body []byte, err error) {
	if _, err := io.ReadFull(r, buffer[:bgpHeader]); err != nil {
		return 0, nil, err
	}
	length := int(binary.BigEndian.Uint16(buffer[16:]))
	if length < bgpHeader || length > bgpMost {
		return 0, nil, fmt.Errorf("a message of %d octets: want %d to %d", length, bgpHeader, bgpMost)
	}
	kind, body = buffer[18], buffer[bgpHeader:length]
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	return kind, body, nil
}
