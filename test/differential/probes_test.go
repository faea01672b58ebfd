// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// flow is what connection tracking must not find twice in a batch. It leaves
// out addresses, so that translated ones don't matter.
type flow struct {
	version   int
	protocol  model.Protocol
	low, high uint16
}

// probes makes a batch of packets, each of a connection of its own.
func (c chance) probes(s policy.Settings, st *policy.State, n int) []probe {
	taken := map[flow]bool{}
	to := routes(st)
	seen := map[string]int{} // decisions
	var out []probe
	for len(out) < n {
		p := c.novel(func(p probe) bool {
			for _, step := range policy.Evaluate(s, st, p.packet(outOf(to, p.Dst))).Trail {
				if step.Rules != (policy.RulesID{}) && seen[step.String()] < 3 {
					seen[step.String()]++
					return true
				}
			}
			return false
		}, st)
		f := flow{versionOf(p.Src), p.Protocol, min(p.SrcPort, p.DstPort), max(p.SrcPort, p.DstPort)}
		if p.icmp() {
			p.SrcPort = uint16(len(out) + 1) // the identifier
			f.low = p.SrcPort
		}
		if !taken[f] && !martian(p) {
			taken[f] = true
			out = append(out, p)
		}
	}
	return out
}

// novel tries for a packet that a rule decides which decided few so far. Every
// fourth is any.
func (c chance) novel(is func(probe) bool, st *policy.State) (p probe) {
	if c.in(4) {
		return c.probe(st)
	}
	for range 8 {
		var ok bool
		if p, ok = c.aimed(st); !ok {
			p = c.probe(st)
		}
		if is(p) {
			break
		}
	}
	return p
}

// probe is any packet.
func (c chance) probe(st *policy.State) probe {
	version := c.version()
	var p probe
	switch i := c.IntN(20); {
	case i < 11:
		n := c.IntN(pods)
		p.In, p.Src = podPort(n), one(c, podAddrs(n, version)...)
	case i < 17:
		n := c.IntN(2)
		p.In, p.Src = fmt.Sprintf("eth%d", n), one(c, outside(n, version)...)
	default:
		p.Src = hostAddr(c.IntN(2), version)
	}
	if p.In != "" {
		p.MAC = macFor(st, p.In)
		if c.in(10) {
			p.MAC = macOf(podPort(c.IntN(pods)), true)
		}
	}
	switch {
	case c.in(10):
		p.Src = c.addr(version)
	case c.in(40) && p.In != "" && p.In[:3] != "eth" && version == 4, c.in(4) && p.In == "":
		p.Src = loopback(version)
	}
	switch c.IntN(10) {
	case 0, 1:
		p.Dst = c.own(p.In, version)
	case 2, 3:
		p.Dst = extAddr(c.IntN(pods), version)
	default:
		p.Dst = c.addr(version)
	}
	c.protocols(&p)
	if c.in(12) {
		c.service(&p)
	}
	p.Options = c.in(10)
	p.HopByHop = p.Options && version == 6 && c.in(2)
	p.Fragmented = p.fragmentable() && c.in(10)
	return p
}

// martian: the kernel itself drops it, or makes more than one packet of it.
func martian(p probe) bool {
	localnet := p.In == "" || p.Src.Is4() && p.In[:3] != "eth" // where the loopback's addresses may come from
	if (p.Src.IsLoopback() || p.Dst.IsLoopback()) && !localnet || p.Src.IsLoopback() && outOf(nil, p.Dst) != "" {
		return true
	}
	return p.In == "" && (p.Dst.IsMulticast() || p.Dst.Is4() && p.Dst.As4()[3] == 255)
}

// own is an address at which the host takes what comes from an interface.
func (c chance) own(in string, version int) netip.Addr {
	all := hostAddrs(version)
	if version == 4 {
		all = append(all, gateway)
	}
	switch {
	case in == "": // others know what is for everybody by the interface
		all = append(all, loopback(version), loopback(version))
	case in[:3] != "eth" && version == 4:
		all = append(all, loopback(version))
		fallthrough
	default:
		all = append(all, everybody(c.IntN(2), version)...)
	}
	return one(c, all...)
}

func (c chance) protocols(p *probe) {
	p.Protocol = one(c, model.ProtocolTCP, model.ProtocolTCP, model.ProtocolTCP, model.ProtocolTCP, model.ProtocolUDP, model.ProtocolUDP, model.ProtocolUDP,
		model.ProtocolICMP, model.ProtocolICMPv6, model.ProtocolICMPv6, model.ProtocolSCTP, model.ProtocolUDPLite)
	if (p.Protocol == model.ProtocolICMP) != p.Src.Is4() && p.Protocol == model.ProtocolICMPv6 != !p.Src.Is4() && !c.in(8) {
		p.Protocol = model.ProtocolICMP + model.ProtocolICMPv6 - p.Protocol // that of its own version
	}
	if c.in(15) {
		p.Protocol = one[model.Protocol](c, 4, 47, 99, 50, 103, 112, 200)
	}
	c.details(p)
}

// details are what belongs to the protocol.
func (c chance) details(p *probe) {
	p.SrcPort, p.DstPort, p.TCPFlags, p.ICMPType, p.ICMPCode = 0, 0, 0, 0, 0
	switch {
	case p.icmp():
		p.ICMPType, p.ICMPCode = c.icmpType(versionOf(p.Src)), uint8(max(0, c.IntN(4)-1))
	case p.Protocol.HasPorts():
		p.SrcPort, p.DstPort = uint16(1024+c.IntN(60000)), c.port()
		switch c.IntN(6) {
		case 0:
			p.SrcPort, p.DstPort = p.DstPort, p.SrcPort
		case 1:
			p.SrcPort = c.port()
		}
		p.TCPFlags = flagSYN
		if p.Protocol == model.ProtocolTCP && c.in(25) {
			p.TCPFlags = one[uint8](c, flagSYN|flagFIN, flagRST, flagACK, flagSYN|flagACK)
		}
	}
}

// service makes it one of the packets that firewalls treat apart: DHCP, DNS,
// neighbour discovery, tunnels.
func (c chance) service(p *probe) {
	version := versionOf(p.Src)
	if c.in(2) {
		p.Dst = hostAddr(0, version)
	}
	switch c.IntN(4) {
	case 0: // DHCP
		p.Protocol, p.TCPFlags, p.SrcPort, p.DstPort = model.ProtocolUDP, 0, 68, 67
		if version == 6 {
			p.SrcPort, p.DstPort = 546, 547
		}
		switch c.IntN(6) {
		case 0:
			p.SrcPort, p.DstPort = p.DstPort, p.SrcPort
		case 1, 2, 3: // forged
			if p.In != "" {
				p.Src, p.Dst = c.addr(version), one(c, p.Dst, c.addr(version), c.addr(version))
			}
		case 4:
			if p.In == "" {
			} else if version == 4 {
				p.Src, p.Dst = netip.IPv4Unspecified(), addr("255.255.255.255")
			} else {
				p.Src, p.Dst = addr("fe80::1:2"), one(c, addr("ff02::1:2"), addr("ff02::2"))
			}
		}
	case 1: // DNS
		p.Protocol, p.DstPort = one(c, model.ProtocolUDP, model.ProtocolTCP), 53
		p.SrcPort, p.TCPFlags = uint16(1024+c.IntN(60000)), flagSYN
	case 2: // tunnels
		p.Protocol, p.DstPort, p.SrcPort, p.TCPFlags = model.ProtocolUDP, vxlanPort, uint16(1024+c.IntN(60000)), 0
		if c.in(3) {
			p.Dst = one(c, outside(c.IntN(2), version)...)
		}
		if c.in(4) {
			p.Protocol, p.SrcPort, p.DstPort = 4, 0, 0
		}
	default:
		if version == 4 {
			return
		}
		p.SrcPort, p.DstPort, p.TCPFlags = 0, 0, 0
		p.Protocol, p.ICMPType, p.ICMPCode = model.ProtocolICMPv6, one[uint8](c, 130, 131, 132, 133, 134, 135, 136, 137, 143), 0
		if p.In == "" {
			return
		}
		if c.in(2) {
			p.Dst = one(c, addr("ff02::1"), addr("ff02::2"))
		}
		if c.in(3) {
			p.Src = c.addr(version)
		} else if c.in(3) && outOf(nil, p.Dst) == "" {
			p.Src = addr("fe80::1:2") // is never forwarded
		}
	}
}

// answers are what comes back to probes that passed: the other side's packets,
// and errors about them; to are the probes that they answer. An answer to what
// has the host's address as its source is for the host itself until connection
// tracking sees it, so there are none where untracked policy is asked before.
func (c chance) answers(st *policy.State, probes []probe, fates []fate, ports map[string]*port) (out, to []probe) {
	for i, p := range probes {
		f := fates[i]
		if f.verdict != policy.Accept || f.state != "new" || c.in(2) || f.src != p.Src && hasUntracked(st, f.out) || f.out == "" && !answerable(p) {
			continue
		}
		if p.Protocol.HasPorts() || p.icmp() {
			p.SrcPort = f.port // masqueraded, by a random one
		}
		back := probe{
			In: f.out, Src: f.dst, Dst: f.src, Protocol: p.Protocol, SrcPort: p.DstPort, DstPort: p.SrcPort,
			Expect: "established", To: &probes[i],
		}
		if f.out != "" {
			back.MAC = ports[f.out].far
		}
		switch {
		case c.in(4):
			about := p
			about.Fragmented = false
			about.Src, about.Dst = f.src, f.dst
			back.Protocol, back.SrcPort, back.DstPort, back.ICMPType, back.ICMPCode = model.ProtocolICMP, 0, 0, 3, 1
			if !p.Src.Is4() {
				back.Protocol, back.ICMPType = model.ProtocolICMPv6, 1
			}
			back.About, back.Expect, back.Ends = &about, "related", [...]netip.Addr{p.Src, f.dst}
			if n := c.IntN(pods); c.in(2) && podPort(n) != f.out && f.src.IsGlobalUnicast() { // it is forged
				back.In, back.Src = podPort(n), one(c, podAddrs(n, versionOf(p.Src))...)
				back.MAC = ports[back.In].far
			}
		case p.icmp():
			back.SrcPort, back.DstPort, back.ICMPCode = p.SrcPort, 0, p.ICMPCode
			switch p.ICMPType {
			case 8:
				back.ICMPType = 0
			case 128:
				back.ICMPType = 129
			default:
				continue
			}
		case p.Protocol == model.ProtocolTCP && p.TCPFlags == flagSYN:
			back.TCPFlags = flagSYN | flagACK
		case p.Protocol == model.ProtocolUDP:
		default:
			continue
		}
		if f.out == "" && p.Protocol == model.ProtocolTCP {
			back.Expect = "" // the host has said already that nobody listens there
		}
		back.Fragmented = back.fragmentable() && c.in(10)
		out, to = append(out, back), append(to, p)
	}
	return out, to
}

// answerable: the host can answer from where the packet was for, to where it says
// that it is from.
func answerable(p probe) bool {
	return outOf(nil, p.Dst) == "" && (p.Src.IsGlobalUnicast() || p.Src.IsLoopback() && p.In == "") && !p.Dst.IsMulticast() && p.Dst.IsGlobalUnicast() &&
		!slices.Contains(everybody(0, 4), p.Dst) && !slices.Contains(everybody(1, 4), p.Dst)
}

func hasUntracked(st *policy.State, name string) bool {
	for _, ep := range st.Endpoints {
		if !ep.Workload && ep.Interface == name && len(ep.UntrackedInbound) > 0 {
			return true
		}
	}
	return false
}
