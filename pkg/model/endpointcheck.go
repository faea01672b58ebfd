// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// check applies to every endpoint that is read or written.
func (e WorkloadEndpoint) check() error {
	switch e.State {
	case StateActive, StateInactive:
	case "":
		return missing("state")
	default:
		return inField("state", fmt.Errorf("%.32q: want active or inactive", string(e.State)))
	}
	if err := CheckInterface(e.Name); err != nil {
		return inField("name", err)
	}
	if err := checkNames(e.ProfileIDs); err != nil {
		return inField("profile_ids", err)
	}
	if err := checkNets(e.IPv4Nets, e.IPv4NAT, false); err != nil {
		return err
	}
	if err := checkNets(e.IPv6Nets, e.IPv6NAT, true); err != nil {
		return err
	}
	if e.IPv4Gateway.IsValid() {
		if err := checkFamily(e.IPv4Gateway, false); err != nil {
			return inField("ipv4_gateway", err)
		}
	}
	if e.IPv6Gateway.IsValid() {
		if err := checkFamily(e.IPv6Gateway, true); err != nil {
			return inField("ipv6_gateway", err)
		}
	}
	for i, p := range e.Ports {
		if err := p.check(); err != nil {
			return inField("ports", atIndex(i, err))
		}
	}
	if e.MTU < 0 || e.MTU > maxMTU {
		return inField("mtu", fmt.Errorf("%d: want 0 to %d", e.MTU, maxMTU))
	}
	return nil
}

// IsWorkloadInterface reports whether an interface is a workload's, that is, whether its name begins with one of the
// prefixes.
func IsWorkloadInterface(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// CheckInterface accepts the interface names that the kernel accepts (dev_valid_name), except those that need quoting
// somewhere.
func CheckInterface(name string) error {
	switch {
	case name == "":
		return errMissing
	case len(name) > 15:
		return fmt.Errorf("%.64q: an interface's name has at most 15 bytes", name)
	case name == "." || name == "..":
		return fmt.Errorf("%q: not an interface's name", name)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c <= ' ' || c >= 0x7f, c == '/', c == ':', c == '"', c == '\\', c == '*', c == '%':
			return fmt.Errorf("%q: not an interface's name", name)
		}
	}
	return nil
}

func checkNames(names []string) error {
	for i, s := range names {
		if s == "" {
			return atIndex(i, errEmpty)
		}
	}
	return nil
}

func checkNets(nets []netip.Prefix, nats []NAT, v6 bool) error {
	list, nat := "ipv4_nets", "ipv4_nat"
	if v6 {
		list, nat = "ipv6_nets", "ipv6_nat"
	}
	if len(nets) > maxNets {
		return inField(list, fmt.Errorf("%d entries: at most %d", len(nets), maxNets))
	}
	for i, p := range nets {
		if err := checkNet(p, v6); err != nil {
			return inField(list, atIndex(i, err))
		}
	}
	for i, n := range nats {
		if err := n.check(nets, v6); err != nil {
			return inField(nat, atIndex(i, err))
		}
	}
	return nil
}

// checkNet requires a single address that an endpoint can have.
func checkNet(p netip.Prefix, v6 bool) error {
	if !p.IsValid() {
		return errMissing
	}
	if err := checkFamily(p.Addr(), v6); err != nil {
		return err
	}
	if !p.IsSingleIP() {
		return fmt.Errorf("%s: want one address, /%d", p, p.Addr().BitLen())
	}
	return checkUnicast(p.Addr())
}

func checkUnicast(a netip.Addr) error {
	if !a.IsGlobalUnicast() {
		return fmt.Errorf("%s: not an address that an endpoint can have: want a unicast address that can be routed to", a)
	}
	return nil
}

func (n NAT) check(nets []netip.Prefix, v6 bool) error {
	if !n.IntIP.IsValid() {
		return missing("int_ip")
	}
	if !n.ExtIP.IsValid() {
		return missing("ext_ip")
	}
	if err := checkFamily(n.IntIP, v6); err != nil {
		return inField("int_ip", err)
	}
	if err := checkFamily(n.ExtIP, v6); err != nil {
		return inField("ext_ip", err)
	}
	if err := checkUnicast(n.ExtIP); err != nil {
		return inField("ext_ip", err)
	}
	if !slices.Contains(nets, netip.PrefixFrom(n.IntIP, n.IntIP.BitLen())) {
		return inField("int_ip", fmt.Errorf("%s: not an address of this endpoint", n.IntIP))
	}
	return nil
}

func (p EndpointPort) check() error {
	switch {
	case !portName(p.Name):
		return inField("name", fmt.Errorf("%.64q: not the name of a port", p.Name))
	case !p.Protocol.HasPorts():
		return inField("protocol", errNoPorts)
	case p.Port == 0:
		return inField("port", errors.New("0: want 1 to 65535"))
	}
	return nil
}
