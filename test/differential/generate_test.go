// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"math/rand/v2"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// chance makes random things.
type chance struct{ *rand.Rand }

func one[T any](c chance, of ...T) T { return of[c.IntN(len(of))] }

// some are up to max of them, perhaps twice the same.
func some[T any](c chance, max int, of ...T) []T {
	var out []T
	for range c.IntN(max + 1) {
		out = append(out, one(c, of...))
	}
	return out
}

// in is true once in n times.
func (c chance) in(n int) bool { return c.IntN(n) == 0 }

func (c chance) version() int { return one(c, 4, 4, 6) }

func (c chance) labels() map[string]string {
	out := map[string]string{}
	for range c.IntN(4) {
		out[one(c, "a", "b", "c")] = one(c, "x", "y", "")
	}
	return out
}

func (c chance) selector() string {
	return one(c, "all()", "all()", "a == 'x'", "b == 'x'", "a == 'y' && has(b)", "b in {'x','y'}", "a != 'x'", "!has(c)", "a == 'x' || b == 'x'",
		"c starts with 'x'", "projectcalico.org/kind == 'GlobalNetworkSet'", "calico/k8s_ns == 'p'", "has(a)", "has(t)", "!all()", "global()")
}

// addr is any that a packet or a rule may be about.
func (c chance) addr(version int) netip.Addr {
	switch c.IntN(8) {
	case 0:
		return extAddr(c.IntN(pods), version)
	case 1:
		return hostAddr(c.IntN(2), version)
	case 2, 3:
		return one(c, outside(c.IntN(2), version)...)
	}
	return one(c, podAddrs(c.IntN(pods), version)...)
}

func (c chance) net() netip.Prefix {
	a := c.addr(c.version())
	bits := one(c, 0, 8, 16, 24, 30, 31, 32)
	if !a.Is4() {
		bits = one(c, 0, 16, 32, 64, 112, 126, 128)
	}
	return netip.PrefixFrom(a, bits).Masked()
}

func (c chance) nets() []netip.Prefix {
	out := []netip.Prefix{c.net()}
	if c.in(20) { // both halves of all there are
		all := netip.PrefixFrom(c.addr(c.version()), 0).Masked()
		half := all.Addr().AsSlice()
		half[0] = 0x80
		upper, _ := netip.AddrFromSlice(half)
		out = append(out, netip.PrefixFrom(all.Addr(), 1), netip.PrefixFrom(upper, 1))
	}
	for c.in(2) {
		out = append(out, c.net())
	}
	for range c.more() {
		out = append(out, c.net())
	}
	return out
}

// more is how many values more a list has, now and then: many are a set in the kernel.
func (c chance) more() int {
	if c.in(12) {
		return 15 + c.IntN(40)
	}
	return 0
}

// port is often one that something is about.
func (c chance) port() uint16 {
	return one[uint16](c, 22, 53, 67, 68, 80, 81, 90, 179, 443, 546, 547, 2379, vxlanPort, 8080, 8081, 65535)
}

func (c chance) ports() []model.Port {
	var out []model.Port
	for len(out) == 0 || c.in(2) {
		switch p := c.port(); c.IntN(6) {
		case 0, 1:
			out = append(out, model.Port{Name: one(c, "http", "dns", "alt", "nobody")})
		case 2:
			out = append(out, model.Port{Min: p, Max: p + uint16(c.IntN(int(65535-p)+1))})
		case 3:
			out = append(out, model.Port{Min: one[uint16](c, 0, p/2), Max: p})
		default:
			out = append(out, model.Port{Min: p, Max: p})
		}
	}
	for range c.more() {
		p := one(c, c.port(), uint16(c.IntN(65536)))
		out = append(out, model.Port{Min: p, Max: p + uint16(c.IntN(min(3, int(65535-p)+1)))})
	}
	return out
}

// icmpType is most often one that begins a connection, or is of none.
func (c chance) icmpType(version int) uint8 {
	if version == 4 {
		return one[uint8](c, 8, 8, 8, 8, 13, 13, 13, 15, 15, 17, 17, 0, 3)
	}
	return one[uint8](c, 128, 128, 128, 128, 139, 139, 139, 133, 134, 135, 136, 143, 129, 1)
}

func (c chance) protocol() model.Protocol {
	return one(c, model.ProtocolTCP, model.ProtocolTCP, model.ProtocolTCP, model.ProtocolUDP, model.ProtocolUDP, model.ProtocolICMP, model.ProtocolICMPv6,
		model.ProtocolSCTP, model.ProtocolUDPLite, 47, 99)
}

func (c chance) rule() model.Rule {
	r := model.Rule{Action: one(c, model.ActionAllow, model.ActionAllow, model.ActionAllow, model.ActionDeny, model.ActionDeny, model.ActionLog, model.ActionNextTier)}
	if c.in(8) {
		r.IPVersion = c.version()
	}
	if c.in(5) {
		r.LogPrefix = one(c, "seen", "a b%c", "more-than-twenty-seven-bytes-of-prefix", "x:y_z")
	}
	if c.in(3) {
		r.Match.Protocol = c.protocol()
	}
	for range one(c, 0, 1, 1, 2) {
		c.criterion(&r, &r.Match, 6)
	}
	if c.in(10) {
		*one(c, &r.Match.SrcTag, &r.Match.DstTag) = one(c, "t", "u")
	}
	if c.in(2) {
		c.criterion(&r, &r.Not, 9)
	}
	return r
}

// criterion adds one of the first kinds of them.
func (c chance) criterion(r *model.Rule, m *model.Match, kinds int) {
	switch c.IntN(kinds) {
	case 0:
		m.SrcSelector, m.HasSrcSelector = c.selector(), true
		if c.in(4) {
			m.SrcTag = one(c, "t", "u")
		}
	case 1:
		m.DstSelector, m.HasDstSelector = c.selector(), true
		if c.in(4) {
			m.DstTag = one(c, "t", "u")
		}
	case 2:
		m.SrcNets = c.nets()
	case 3:
		m.DstNets = c.nets()
	case 4, 5, 6:
		c.withProtocol(r, m)
	case 7:
		m.Protocol = c.protocol()
	case 8:
		*one(c, &m.SrcTag, &m.DstTag) = one(c, "t", "u")
	}
}

// withProtocol adds ports or ICMP types, of which the rule must have the protocol.
func (c chance) withProtocol(r *model.Rule, m *model.Match) {
	if !r.Match.Protocol.HasPorts() && r.Match.Protocol != model.ProtocolICMP && r.Match.Protocol != model.ProtocolICMPv6 {
		r.Match.Protocol = one(c, model.ProtocolTCP, model.ProtocolTCP, model.ProtocolUDP, model.ProtocolICMP, model.ProtocolICMPv6, model.ProtocolSCTP, model.ProtocolUDPLite)
	}
	if !r.Match.Protocol.HasPorts() {
		version := 4
		if r.Match.Protocol == model.ProtocolICMPv6 {
			version = 6
		}
		t := c.icmpType(version)
		m.ICMPType = &t
		if c.in(3) {
			code := uint8(c.IntN(2))
			m.ICMPCode = &code
		}
		return
	}
	side := c.IntN(3)
	if side < 2 {
		m.DstPorts = c.ports()
	}
	if side > 0 {
		m.SrcPorts = c.ports()
	}
}

func (c chance) rules(max int) []model.Rule {
	var out []model.Rule
	for range c.IntN(max + 1) {
		out = append(out, c.rule())
	}
	return out
}

const vxlanPort = 4789

func (c chance) tunnels() policy.Tunnels {
	t := policy.Tunnels{VXLANPort: one[uint16](c, 0, vxlanPort), IPIP: c.in(2), BGP: policy.BGP{Port: one(c, 0, c.port())}}
	for _, version := range [...]int{4, 6} {
		t.BGP.Peers = append(t.BGP.Peers, some(c, 2, outside(c.IntN(2), version)...)...)
		for uplink := range 2 {
			t.Hosts = append(t.Hosts, some(c, 2, outside(uplink, version)...)...)
		}
	}
	return t
}

func (c chance) settings() policy.Settings {
	tcp := func(ports ...uint16) (out []policy.ProtoPort) {
		for _, p := range ports {
			out = append(out, policy.ProtoPort{Protocol: model.ProtocolTCP, Port: p})
		}
		return out
	}
	udp := policy.ProtoPort{Protocol: model.ProtocolUDP, Port: 68}
	s := policy.Settings{
		Prefixes:         one(c, []string{"cali"}, []string{"cali"}, []string{"cali", "tap"}),
		EndpointToHost:   one(c, policy.ToHostDrop, policy.ToHostReturn, policy.ToHostAccept),
		EndpointDNS:      c.in(2),
		FailsafeInbound:  one(c, nil, tcp(22), append(tcp(22, 179, 2379), udp)),
		FailsafeOutbound: one(c, nil, tcp(179), append(tcp(179, 2379), policy.ProtoPort{Protocol: model.ProtocolUDP, Port: 53}, policy.ProtoPort{Protocol: model.ProtocolUDP, Port: 67})),
		LogPrefix:        one(c, "calico-packet", "other"),
		MetricsPorts:     one(c, nil, nil, tcp(c.port())),
	}
	if !c.in(6) {
		s.FlowLogGroup = flowGroup
	}
	return s
}
