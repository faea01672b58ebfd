// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

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
		"c starts with 'x'", "has(a)", "has(t)", "!all()", "global()")
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
	for c.in(2) {
		out = append(out, c.net())
	}
	return out
}

// port is often one that something is about.
func (c chance) port() uint16 {
	return one[uint16](c, 22, 53, 67, 68, 80, 81, 90, 179, 443, 546, 547, 2379, 8080, 8081, 65535)
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
		m.SrcTag = one(c, "t", "u")
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
	}
	if !c.in(6) {
		s.FlowLogGroup = flowGroup
	}
	return s
}

// change does something to the world, seldom to its settings.
func (c chance) change(w *world, revision int64) {
	paths := slices.Sorted(maps.Keys(w.Items))
	switch {
	case c.in(12):
		w.Settings = c.settings()
	case len(paths) > 30 || len(paths) > 0 && c.in(4):
		delete(w.Items, one(c, paths...))
	default:
		path, data := c.object(c.IntN(14))
		if workloads(w) < pods-2 {
			path, data = c.object(0)
		}
		i := item{path, data, revision}
		if old, ok := w.Items[path]; ok {
			i.Created = old.Created
		}
		w.Items[path] = i
	}
}

// workloads counts the host's.
func workloads(w *world) int {
	n := 0
	for path := range w.Items {
		if strings.HasPrefix(path, model.WorkloadEndpointPrefix(host)) {
			n++
		}
	}
	return n
}

// object is a key of some kind with its value.
func (c chance) object(kind int) (path, data string) {
	var key model.Key
	var value any
	var bad []string // values that don't parse
	switch kind {
	case 0, 1, 2, 3:
		i := c.IntN(pods)
		key = model.WorkloadEndpointKey{Host: one(c, host, host, host, host, peer), Orchestrator: "k8s", Workload: fmt.Sprintf("w%d", i), Endpoint: one(c, "eth0", "eth0", "eth0", "net1")}
		value = c.workload(i)
		bad = []string{`{"state":"active"}`, `{`}
	case 4, 5:
		key, value = model.HostEndpointKey{Host: one(c, host, host, host, peer), Endpoint: one(c, "1", "2", "3")}, c.hostEndpoint()
		bad = []string{`{"profile_ids":[]}`}
	case 6, 7:
		r := model.Rules{Inbound: c.rules(3), Outbound: c.rules(3)}
		if c.in(2) {
			r.Inbound, r.Outbound = append(r.Inbound, model.Rule{Action: model.ActionAllow}), append(r.Outbound, model.Rule{Action: model.ActionAllow})
		}
		key, value = model.ProfileRulesKey{Profile: one(c, "p1", "p2", "p3")}, r
		bad = []string{`{"inbound_rules":[{"action":"explode"}]}`}
	case 8:
		key, value = model.ProfileTagsKey{Profile: one(c, "p1", "p2", "p3")}, model.Tags(some(c, 2, "t", "u"))
	case 9:
		key, value = model.ProfileLabelsKey{Profile: one(c, "p1", "p2", "p3")}, model.Labels(c.labels())
	case 10, 11, 12:
		k := model.PolicyKey{Tier: "default", Policy: one(c, "q1", "q2", "q3", "q4", "odd one/ä")}
		if c.in(20) {
			k.Tier = "other"
		}
		key, value = k, c.policy()
		bad = []string{`{"selector":"a == 'x'","inbound_rules":[{"src_sel":"x"}]}`, `{"selector":"==="}`, `{"selector":"all()","untracked":true,"outbound_rules":[{"dst_ports":[80]}]}`}
	default:
		p := one(c, netip.MustParsePrefix("10.65.0.0/16"), netip.MustParsePrefix("10.65.2.0/24"), netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd65::/64"), netip.MustParsePrefix("fd65::2:0/112"))
		key, value = model.PoolKey{CIDR: p}, model.Pool{CIDR: p, Masquerade: c.in(2), IPAM: true}
	}
	if len(bad) > 0 && c.in(12) {
		return key.Path(), one(c, bad...)
	}
	text, err := model.FormatValue(value)
	if err != nil {
		panic(fmt.Sprintf("the generator made a value that is none: %v", err))
	}
	return key.Path(), string(text)
}

// workload is most often the one that the pod's interface is for.
func (c chance) workload(i int) model.WorkloadEndpoint {
	e := model.WorkloadEndpoint{
		State: model.StateActive, Name: podPort(i), MAC: macOf(podPort(i), true),
		ProfileIDs: some(c, 3, "p1", "p2", "p3", "p3", "p1", "p2", "gone"), Labels: c.labels(),
		Ports: some(c, 3, model.EndpointPort{Name: "http", Protocol: model.ProtocolTCP, Port: 80}, model.EndpointPort{Name: "http", Protocol: model.ProtocolTCP, Port: 81},
			model.EndpointPort{Name: "dns", Protocol: model.ProtocolUDP, Port: 53}, model.EndpointPort{Name: "alt", Protocol: model.ProtocolSCTP, Port: 8080}),
	}
	switch c.IntN(12) {
	case 0:
		e.State = model.StateInactive
	case 1:
		e.Name = podPort(c.IntN(pods))
	case 2, 3:
		e.MAC = model.MAC{}
	case 4:
		e.MAC = macOf(podPort(c.IntN(pods)), true)
	}
	of := i
	if c.in(8) {
		of = c.IntN(pods)
	}
	for _, version := range [...]int{4, 6} {
		var nets []netip.Prefix
		var nat []model.NAT
		for _, a := range podAddrs(of, version) {
			if c.in(5) {
				continue
			}
			nets = append(nets, netip.PrefixFrom(a, a.BitLen()))
			if c.in(4) {
				nat = append(nat, model.NAT{IntIP: a, ExtIP: extAddr(one(c, i, i, i, c.IntN(pods)), version)})
			}
		}
		if version == 4 {
			e.IPv4Nets, e.IPv4NAT = nets, nat
		} else {
			e.IPv6Nets, e.IPv6NAT = nets, nat
		}
	}
	return e
}

func (c chance) hostEndpoint() model.HostEndpoint {
	h := model.HostEndpoint{Name: one(c, "", "eth0", "eth0", "eth1", "*", "*", "tap0"), ProfileIDs: some(c, 2, "p1", "p2", "p3"), Labels: c.labels()}
	if h.Name == "" || c.in(2) {
		h.ExpectedIPv4Addrs = []netip.Addr{hostAddr(c.IntN(2), 4)}
		h.ExpectedIPv6Addrs = some(c, 1, hostAddrs(6)...)
	}
	return h
}

func (c chance) policy() model.Policy {
	p := model.Policy{Selector: c.selector(), Inbound: c.rules(4), Outbound: c.rules(4), Untracked: c.in(4)}
	if !c.in(3) {
		order := float64(c.IntN(3) - 1)
		p.Order = &order
	}
	p.Types = one(c, nil, nil, []model.Direction{model.Inbound}, []model.Direction{model.Outbound})
	if c.in(2) {
		p.Inbound = append(p.Inbound, model.Rule{Action: one(c, model.ActionAllow, model.ActionNextTier)})
	}
	if c.in(2) {
		p.Outbound = append(p.Outbound, model.Rule{Action: one(c, model.ActionAllow, model.ActionNextTier)})
	}
	return p
}
