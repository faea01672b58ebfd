// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// MaxName bounds a name, in bytes, before escaping. Kubernetes names combine a namespace (63) and a pod's name (253),
// so it is far above the 128 that other names need.
const MaxName = 1024

// maxHost is the maximum length of a host name, as in DNS.
const maxHost = 253

// CheckHost rejects names that are not valid for hosts in agent and plugin. Other software's host names may still be
// read.
func CheckHost(name string) error {
	switch {
	case name == "":
		return errors.New("host name is empty")
	case len(name) > maxHost:
		return fmt.Errorf("host name of %d characters: at most %d", len(name), maxHost)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }):
		return fmt.Errorf("host name %q: want letters, digits, '.', '-' and '_'", name)
	}
	return nil
}

const (
	upperHex = "0123456789ABCDEF"
	lowerHex = "0123456789abcdef"
)

// EscapeName returns a name as one segment of a path: every byte other than [A-Za-z0-9_.-] becomes %XX.
func EscapeName(name string) string {
	odd := 0
	for i := range len(name) {
		if !plainNameByte(name[i]) {
			odd++
		}
	}
	if odd == 0 {
		return name
	}
	b := make([]byte, 0, len(name)+2*odd)
	for i := range len(name) {
		if c := name[i]; plainNameByte(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(b)
}

// UnescapeName is the inverse of EscapeName. It also accepts other software's forms: lower-case digits, and bytes that
// should have been escaped but weren't.
func UnescapeName(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("empty name")
	case len(s) > 3*MaxName: // each byte escaped
		return "", nameTooLong(len(s))
	case strings.IndexByte(s, '/') >= 0:
		return "", fmt.Errorf("name %q: write / as %%2F", s)
	case strings.IndexByte(s, '%') < 0:
		if len(s) > MaxName {
			return "", nameTooLong(len(s))
		}
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("name %q: %% without two hexadecimal digits", s)
		}
		hi, lo := unhex(s[i+1]), unhex(s[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("name %q: %% without two hexadecimal digits", s)
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	if len(b) > MaxName {
		return "", nameTooLong(len(b))
	}
	return string(b), nil
}

func nameTooLong(n int) error { return fmt.Errorf("name of %d bytes: at most %d", n, MaxName) }

func plainNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '_' || c == '.' || c == '-'
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// cidrName returns a prefix as one segment of a path: "/" becomes "-".
func cidrName(p netip.Prefix) string {
	b := make([]byte, 0, 48)
	b = p.AppendTo(b)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] == '/' {
			b[i] = '-'
			break
		}
	}
	return string(b)
}

// parseCIDRName is the inverse of cidrName. It rejects host bits, so that no two keys mean the same prefix.
func parseCIDRName(s string, v6 bool) (netip.Prefix, error) {
	i := strings.LastIndexByte(s, '-')
	if i < 0 || len(s) > 64 {
		return netip.Prefix{}, fmt.Errorf("%.64q: want a CIDR with - for /, like %s", s, exampleCIDRName(v6))
	}
	p, err := netip.ParsePrefix(s[:i] + "/" + s[i+1:])
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q: want a CIDR with - for /, like %s", s, exampleCIDRName(v6))
	}
	if err := checkFamily(p.Addr(), v6); err != nil {
		return netip.Prefix{}, err
	}
	if m := p.Masked(); m != p {
		return netip.Prefix{}, fmt.Errorf("%q has host bits set: write %s", s, cidrName(m))
	}
	return p, nil
}

func exampleCIDRName(v6 bool) string {
	if v6 {
		return "fd00:10::-64"
	}
	return "10.0.0.0-16"
}

func parseIPName(s string, v6 bool) (netip.Addr, error) {
	if len(s) > 64 {
		return netip.Addr{}, fmt.Errorf("%.64q: want an IP address", s)
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q: want an IP address", s)
	}
	return a, checkFamily(a, v6)
}

// checkFamily rejects the other family, IPv4 written as IPv6, and zones.
func checkFamily(a netip.Addr, v6 bool) error {
	switch {
	case a.Is4In6():
		return fmt.Errorf("%s: write the IPv4 address as %s", a, a.Unmap())
	case a.Zone() != "":
		return fmt.Errorf("%s: an address here has no zone", a)
	case v6 && a.Is4():
		return fmt.Errorf("%s: want IPv6", a)
	case !v6 && a.Is6():
		return fmt.Errorf("%s: want IPv4", a)
	}
	return nil
}
