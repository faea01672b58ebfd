// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// MAC is a 48-bit Ethernet address; the zero value means none.
type MAC [6]byte

// ParseMAC parses 02:00:00:00:00:01, 02-00-00-00-00-01 and 0200.0000.0001, in upper or lower case.
func ParseMAC(s string) (MAC, error) {
	bad := func() (MAC, error) {
		return MAC{}, fmt.Errorf("MAC address %.64q: want six bytes like 02:00:00:00:00:01", s)
	}
	var group int // bytes between separators
	switch {
	case len(s) == len("02:00:00:00:00:01") && (s[2] == ':' || s[2] == '-'):
		group = 1
	case len(s) == len("0200.0000.0001") && s[4] == '.':
		group = 2
	default:
		return bad()
	}
	sep := s[2*group]
	var m MAC
	for i, pos := 0, 0; i < len(m); i++ {
		hi, lo := unhex(s[pos]), unhex(s[pos+1])
		if hi < 0 || lo < 0 {
			return bad()
		}
		m[i] = byte(hi<<4 | lo)
		pos += 2
		if (i+1)%group == 0 && i+1 < len(m) {
			if s[pos] != sep {
				return bad()
			}
			pos++
		}
	}
	return m, nil
}

// String returns the address in lower case with colons.
func (m MAC) String() string {
	b := make([]byte, 0, len("02:00:00:00:00:01"))
	for i, c := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, lowerHex[c>>4], lowerHex[c&15])
	}
	return string(b)
}

// IsZero reports whether there is no address.
func (m MAC) IsZero() bool { return m == MAC{} }

// MarshalText returns String.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText uses ParseMAC.
func (m *MAC) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMAC(string(text))
	return err
}
