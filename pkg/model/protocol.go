// SPDX-License-Identifier: Apache-2.0

package model

// Protocol is an IP protocol number; 0 means any.
type Protocol uint8

const (
	ProtocolICMP    Protocol = 1
	ProtocolTCP     Protocol = 6
	ProtocolUDP     Protocol = 17
	ProtocolICMPv6  Protocol = 58
	ProtocolSCTP    Protocol = 132
	ProtocolUDPLite Protocol = 136
)

// Port is a range of ports, both ends included, or the name of a port of the
// endpoints that the rule is about.
type Port struct {
	Min, Max uint16
	Name     string
}
