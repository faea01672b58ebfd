// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/policy"
)

// A Flow is the beginning of a connection.
type Flow struct {
	From, To End
	// Protocol is 0 for a ping, of ICMP or ICMPv6.
	Protocol model.Protocol
	// Port is the destination's. The source's is 49152: rules about source ports are rare, and no service uses this one.
	Port uint16
}

const sourcePort = 49152

// echo maps protocols to the ICMP types of a ping and its answer.
var echo = map[model.Protocol][2]uint8{model.ProtocolICMP: {8, 0}, model.ProtocolICMPv6: {128, 129}}

// A Hop is what one host does with the first packet of a flow.
type Hop struct {
	Host string `json:"host"`
	// Interface names the host's interfaces for which this holds, "" = the interface doesn't matter. If it does, and etcd
	// doesn't tell which one the packet takes, there is a Hop for each.
	Interface     string         `json:"interface,omitempty"`
	Source        netip.Addr     `json:"source"`
	Destination   netip.Addr     `json:"destination"`
	Verdict       policy.Verdict `json:"verdict"`
	Asked         []Asked        `json:"asked"` // the endpoints that decide, in order, and what applies to each
	Steps         []string       `json:"steps"` // that lead to the verdict, and changes of the addresses
	policy.Result `json:"-"`
}

// Asked is what applies to an endpoint in one direction.
type Asked struct {
	Endpoint string `json:"endpoint"`
	Which    string `json:"direction"` // ingress or egress
	Direction
}

// Follow returns what the hosts of both ends do, in order, ending with one that drops.
func (c *Cluster) Follow(f Flow) ([]Hop, error) {
	src, dst := ofFamily(f.From.Addrs, true), ofFamily(f.To.Addrs, true)
	if !src.IsValid() || !dst.IsValid() {
		src, dst = ofFamily(f.From.Addrs, false), ofFamily(f.To.Addrs, false)
	}
	switch {
	case !src.IsValid() || !dst.IsValid():
		return nil, fmt.Errorf("%s and %s have no addresses of one family", f.From.Name, f.To.Name)
	case f.From.Host == "" && f.To.Host == "":
		return nil, fmt.Errorf("neither %s nor %s is of this cluster", f.From.Name, f.To.Name)
	}
	p := policy.Packet{Src: src, Dst: dst, Protocol: f.Protocol, DstPort: f.Port, Conn: policy.ConnNew}
	switch {
	case f.Protocol == 0 && src.Is4():
		p.Protocol = model.ProtocolICMP
	case f.Protocol == 0:
		p.Protocol = model.ProtocolICMPv6
	case f.Port != 0:
		p.SrcPort = sourcePort
	}
	p.ICMPType = echo[p.Protocol][0]
	tunnel, own := c.tunnel(f, dst)
	if f.From.Key == (model.WorkloadEndpointKey{}) && tunnel != "" {
		p.Src = own
	}
	from, to := c.endpoints[f.From.Key], c.endpoints[f.To.Key] // zero = the host itself
	var hops []Hop
	if f.From.Host != "" {
		first := p
		first.In, first.MAC = from.Name, from.MAC
		if f.To.Host == f.From.Host {
			first.Out = to.Name
			return []Hop{c.hop(f.From.Host, first)}, nil
		}
		hops = c.by(c.ways(f.From.Host, tunnel, src), func(way string) Hop {
			first.Out = way
			return c.hop(f.From.Host, first)
		})
		if f.To.Host == "" || !slices.ContainsFunc(hops, func(h Hop) bool { return h.Verdict == policy.Accept }) {
			return hops, nil
		}
		uplink := ofFamily(c.hosts[f.From.Host], src.Is4())
		if uplink.IsValid() && slices.ContainsFunc(hops, func(h Hop) bool { return h.Masqueraded }) {
			p.Src = uplink
		}
	}
	p.Out = to.Name
	return append(hops, c.by(c.ways(f.To.Host, tunnel, dst), func(way string) Hop {
		p.In = way
		return c.hop(f.To.Host, p)
	})...), nil
}

// by returns what a host does for each of several interfaces, with those that make no difference merged.
func (c *Cluster) by(ways []string, does func(way string) Hop) (hops []Hop) {
	for _, way := range ways {
		h := does(way)
		h.Interface = way
		if i := slices.IndexFunc(hops, func(o Hop) bool { return reflect.DeepEqual(o.Result, h.Result) }); i >= 0 {
			hops[i].Interface += ", " + way
		} else {
			hops = append(hops, h)
		}
	}
	if len(hops) == 1 {
		hops[0].Interface = ""
	}
	return hops
}

// tunnel returns the device by which the flow goes from host to host, "" = none, and the sending host's address there. If no subnet is
// known, the hosts are taken to share one.
func (c *Cluster) tunnel(f Flow, dst netip.Addr) (device string, own netip.Addr) {
	if f.From.Host == "" || f.From.Host == f.To.Host || f.To.Key == (model.WorkloadEndpointKey{}) {
		return "", own
	}
	var pool model.Pool
	for _, other := range c.pools {
		if other.CIDR.Contains(dst) && other.CIDR.Bits() >= pool.CIDR.Bits() {
			pool = other
		}
	}
	kind, mode := plan.VXLAN4, pool.VXLANMode
	switch {
	case mode == model.EncapNever:
		kind, mode = plan.IPIP, pool.IPIPMode
	case dst.Is6():
		kind = plan.VXLAN6
	}
	if mode == model.EncapCrossSubnet {
		subnet, err := netip.ParsePrefix(c.settings[model.BGPHostKey{Host: f.From.Host, Field: model.BGPHostNetworkV4}])
		if dst.Is6() || err != nil || slices.ContainsFunc(c.hosts[f.To.Host], subnet.Contains) {
			return "", own
		}
	}
	for _, t := range plan.OwnTunnels(f.From.Host) {
		if addr, err := netip.ParseAddr(c.settings[model.HostConfigKey{Host: f.From.Host, Name: t.AddrConfig}]); t.Kind == kind && mode != model.EncapNever && err == nil {
			return t.Device, addr
		}
	}
	return "", own
}

// elsewhere stands for the interfaces of a host that no host endpoint names, and for which etcd has no address.
const elsewhere = "any other interface"

// interfaces returns a host's interfaces for which etcd has addresses: the host's own, and those that host endpoints expect.
func (c *Cluster) interfaces(host string) []policy.Interface {
	all := []policy.Interface{{Addrs: c.hosts[host]}}
	for _, h := range c.links[host] {
		expected := slices.Concat(h.ExpectedIPv4Addrs, h.ExpectedIPv6Addrs)
		if len(expected) == 0 || h.Name == "*" {
			continue
		}
		i := slices.IndexFunc(all, func(i policy.Interface) bool {
			return slices.ContainsFunc(i.Addrs, func(a netip.Addr) bool { return slices.Contains(expected, a) })
		})
		if i < 0 {
			all, i = append(all, policy.Interface{}), len(all)
		}
		all[i].Addrs = append(slices.Clone(all[i].Addrs), expected...)
		if h.Name != "" {
			all[i].Name = h.Name
		} else if all[i].Name == "" {
			all[i].Name = "the interface of " + expected[0].String()
		}
	}
	return slices.DeleteFunc(all, func(i policy.Interface) bool { return i.Name == "" }) // the first has a name only if a host endpoint gave it one
}

// ways returns the interfaces by which a host may send or receive a packet. own is the packet's address at this end, which is
// another's if the host only forwards. It returns the tunnel; or the interface that has the address, or for a pod's address the
// host's; else every interface that a host endpoint names, and elsewhere.
func (c *Cluster) ways(host, tunnel string, own netip.Addr) []string {
	if tunnel != "" {
		return []string{tunnel}
	}
	isPod := false
	for _, w := range c.endpoints {
		isPod = isPod || slices.Contains(w.Addrs(), own)
	}
	for _, i := range c.interfaces(host) {
		if slices.ContainsFunc(i.Addrs, func(a netip.Addr) bool { return a == own || isPod && slices.Contains(c.hosts[host], a) }) {
			return []string{i.Name}
		}
	}
	ways := []string{elsewhere}
	for _, h := range c.links[host] {
		isTunnel := slices.ContainsFunc(plan.OwnTunnels(host), func(t plan.Tunnel) bool { return t.Device == h.Name })
		if h.Name != "" && h.Name != "*" && !isTunnel && !slices.Contains(ways, h.Name) {
			ways = append(ways, h.Name)
		}
	}
	return ways
}

// ofFamily returns the first address of a family, zero = there is none.
func ofFamily(addrs []netip.Addr, v4 bool) netip.Addr {
	if i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() == v4 }); i >= 0 {
		return addrs[i]
	}
	return netip.Addr{}
}

func (c *Cluster) hop(host string, p policy.Packet) Hop {
	var prefixes []string
	for k, w := range c.endpoints {
		if k.Host == host {
			prefixes = append(prefixes, w.Name)
		}
	}
	settings := policy.Settings{
		Prefixes:         prefixes,
		EndpointToHost:   policy.EndpointToHost(strings.ToUpper(c.setting(host, "DefaultEndpointToHostAction"))),
		EndpointDNS:      slices.Contains([]string{"true", "yes", "1"}, strings.ToLower(c.setting(host, "AllowDNSPacketsFromWorkloads"))),
		FailsafeInbound:  c.failsafe(host, "FailsafeInboundHostPorts", policy.DefaultFailsafeInbound),
		FailsafeOutbound: c.failsafe(host, "FailsafeOutboundHostPorts", policy.DefaultFailsafeOutbound),
		MetricsPorts:     c.failsafe(host, "MetricsPorts", policy.DefaultMetricsPorts),
	}
	if !slices.Contains([]string{"false", "no", "0"}, strings.ToLower(c.setting(host, "PrometheusMetricsEnabled"))) {
		own := "tcp:" + cmp.Or(c.setting(host, "PrometheusMetricsPort"), "9091")
		settings.MetricsPorts = append(settings.MetricsPorts, c.failsafe(host, "", own)...)
	}
	if a, err := netip.ParseAddr(c.setting(host, "MetadataAddr")); err == nil {
		port, err := strconv.ParseUint(c.setting(host, "MetadataPort"), 10, 16)
		if err != nil {
			port = 8775
		}
		settings.Metadata = netip.AddrPortFrom(a, uint16(port))
	}
	r := policy.Evaluate(settings, c.state(host), p)
	h := Hop{Host: host, Source: p.Src, Destination: p.Dst, Asked: []Asked{}, Steps: []string{}}
	c.take(&h, host, r.Trail, "")
	if r.Verdict == policy.Accept && slices.ContainsFunc(r.Trail, func(s policy.Step) bool { return s.Untracked }) && r.Untracked {
		back := policy.Evaluate(settings, c.state(host), answer(p))
		if r.Verdict = back.Verdict; r.Verdict != policy.Accept {
			r.Trail = append(r.Trail, back.Trail...)
			c.take(&h, host, back.Trail, "what answers it, which nothing tracks: ")
		}
	}
	h.Verdict, h.Result = r.Verdict, r
	if r.DNAT.IsValid() {
		h.Steps = append(h.Steps, fmt.Sprintf("its destination becomes %s", r.DNAT))
	}
	if r.SNAT.IsValid() {
		h.Steps = append(h.Steps, fmt.Sprintf("its source becomes %s", r.SNAT))
	}
	if r.Masqueraded {
		h.Steps = append(h.Steps, "its source becomes an address of the host")
	}
	return h
}

// take adds the steps of a trail, and the endpoints that decided, to a hop.
func (c *Cluster) take(h *Hop, host string, trail []policy.Step, of string) {
	for _, step := range trail {
		if ep := c.state(host).Endpoints[step.Endpoint]; ep != nil {
			which := map[model.Direction]string{model.Inbound: "ingress", model.Outbound: "egress"}[step.Direction]
			step.Endpoint = c.name(step.Endpoint)
			if !slices.ContainsFunc(h.Asked, func(a Asked) bool { return a.Endpoint == step.Endpoint && a.Which == which }) {
				h.Asked = append(h.Asked, Asked{step.Endpoint, which, c.directionOf(ep, step.Direction)})
			}
		}
		h.Steps = append(h.Steps, of+step.String())
	}
}

// answer returns the first reply in a connection that an untracked policy allows: connection tracking has not seen the request.
func answer(p policy.Packet) policy.Packet {
	back := policy.Packet{In: p.Out, Out: p.In, Src: p.Dst, Dst: p.Src, Protocol: p.Protocol, SrcPort: p.DstPort, DstPort: p.SrcPort, ICMPType: echo[p.Protocol][1], Conn: policy.ConnInvalid}
	if p.Protocol == model.ProtocolUDP {
		back.Conn = policy.ConnNew
	}
	return back
}

// name returns the name, for people, of the endpoint with this path.
func (c *Cluster) name(path string) string {
	switch k, _ := model.ParseKey(path); k := k.(type) {
	case model.WorkloadEndpointKey:
		return nameOf(k)
	case model.HostEndpointKey:
		return k.Endpoint + " of host " + k.Host
	}
	return path
}

// failsafe returns the fail-safe ports set in etcd, or the default.
func (c *Cluster) failsafe(host, name, initial string) []policy.ProtoPort {
	if ports, err := policy.ParseProtoPorts(c.setting(host, name)); err == nil {
		return ports
	}
	ports, _ := policy.ParseProtoPorts(initial) // a test parses it
	return ports
}
