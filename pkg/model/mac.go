// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net"
)

// MAC is a 48-bit Ethernet address; the zero value means none.
type MAC [6]byte

// ParseMAC reads the forms of net.ParseMAC, 48 bits only.
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != 6 {
		return MAC{}, fmt.Errorf("MAC address %q: want six bytes like 02:00:00:00:00:01", s)
	}
	return MAC(hw), nil
}

// String is lower case with colons.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// IsZero reports whether there is no address.
func (m MAC) IsZero() bool { return m == MAC{} }
