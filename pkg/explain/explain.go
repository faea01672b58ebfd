// SPDX-License-Identifier: Apache-2.0

// Package explain says what policy decides on a flow, and why: from what etcd holds to the verdict of each host on its way,
// by the evaluator that the kernel is held to.
package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// Ranges are what New needs to be read.
func Ranges() []model.Range {
	return []model.Range{
		model.PrefixRange(model.PolicyPrefix()), model.PrefixRange(model.HostPrefix("")), model.PrefixRange(model.PoolPrefix()), model.PrefixRange(model.BGPPrefix()),
		model.PrefixRange(model.ConfigPrefix()),
	}
}

// Cluster is what etcd holds that bears on policy.
type Cluster struct {
	entries   []model.Entry
	endpoints map[model.WorkloadEndpointKey]model.WorkloadEndpoint
	policies  map[policy.RulesID]model.Policy
	hosts     map[string][]netip.Addr // their addresses, by name
	settings  map[model.Key]string    // of agents, and of hosts
	pools     []model.Pool
	states    map[string]*policy.State
}

// New takes in what Ranges gave.
func New(entries []model.Entry) *Cluster {
	c := &Cluster{
		entries: entries, endpoints: map[model.WorkloadEndpointKey]model.WorkloadEndpoint{}, policies: map[policy.RulesID]model.Policy{},
		hosts: map[string][]netip.Addr{}, settings: map[model.Key]string{}, states: map[string]*policy.State{},
	}
	for _, e := range entries {
		switch k := e.Key.(type) {
		case model.WorkloadEndpointKey:
			if w, ok := e.Value.(model.WorkloadEndpoint); ok {
				c.endpoints[k] = w
			}
		case model.PolicyKey:
			if p, ok := e.Value.(model.Policy); ok {
				c.policies[policy.RulesID{Kind: policy.KindPolicy, Tier: k.Tier, Name: k.Policy}] = p
			}
		case model.GlobalConfigKey, model.HostConfigKey:
			text, _ := e.Value.(model.Text)
			c.settings[k] = string(text)
		case model.HostMetadataKey:
			c.hosts[k.Host] = append([]netip.Addr(nil), c.hosts[k.Host]...) // there, with the addresses that are known
		case model.PoolKey:
			if p, ok := e.Value.(model.Pool); ok {
				c.pools = append(c.pools, p)
			}
		case model.BGPHostKey:
			if text, ok := e.Value.(model.Text); ok {
				c.settings[k] = string(text)
			}
			if k.Field == model.BGPHostIPv4 || k.Field == model.BGPHostIPv6 {
				text, _ := e.Value.(model.Text)
				if a, err := netip.ParseAddr(string(text)); err == nil {
					c.hosts[k.Host] = append(c.hosts[k.Host], a)
				}
			}
		}
	}
	return c
}

// An End is an end of a flow: an endpoint; else a host, if it has a name; else an address outside.
type End struct {
	Key   model.WorkloadEndpointKey // zero = no endpoint
	Host  string                    // that the endpoint is on, or the host itself; "" = outside
	Addrs []netip.Addr
}

// String is how people name it.
func (e End) String() string {
	switch {
	case e.Key != model.WorkloadEndpointKey{}:
		return e.Key.Path()
	case e.Host != "":
		return "host " + e.Host
	}
	return e.Addrs[0].String() + " (outside)"
}

// Find finds an end by a pod's <namespace>/<name>, a workload's name, the path of an endpoint's key, a host's name or an address.
func (c *Cluster) Find(name string) (End, error) {
	addr, _ := netip.ParseAddr(name)
	workload := strings.Replace(name, "/", ".", 1)
	var found []End
	for k, w := range c.endpoints {
		addrs := w.Addrs()
		switch {
		case addr.IsValid() && slices.Contains(addrs, addr):
			addrs = []netip.Addr{addr}
		case !addr.IsValid() && (k.Workload == workload || k.Workload == name || k.Path() == name):
		default:
			continue
		}
		found = append(found, End{k, k.Host, addrs})
	}
	for host, addrs := range c.hosts {
		if host == name {
			found = append(found, End{Host: host, Addrs: addrs})
		} else if addr.IsValid() && slices.Contains(addrs, addr) {
			found = append(found, End{Host: host, Addrs: []netip.Addr{addr}})
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var names []string
		for _, e := range found {
			names = append(names, e.String())
		}
		slices.Sort(names)
		return End{}, fmt.Errorf("%s may be any of these; give one of them: %s", name, strings.Join(names, ", "))
	case addr.IsValid() && addr.Zone() == "":
		return End{Addrs: []netip.Addr{addr.Unmap()}}, nil
	}
	return End{}, &NotFoundError{name}
}

// NotFoundError says that nothing has a name.
type NotFoundError struct{ Name string }

// Error says what a name may be.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%s: no pod <namespace>/<name>, workload or host has this name, and it is no address", e.Name)
}

// A Flow is what begins a connection.
type Flow struct {
	From, To End
	// Protocol is 0 for a ping, of ICMP or ICMPv6.
	Protocol model.Protocol
	// Port is the destination's. The source's is 49152: rules by source ports are rare, and this one is none of a service.
	Port               uint16
	ICMPType, ICMPCode uint8
}

const sourcePort = 49152

// A Hop is what one host does with the first packet of a flow.
type Hop struct {
	Host   string
	Packet policy.Packet
	policy.Result
}

// Follow says what the hosts of both ends do, in order; none after one that drops. Host endpoints of single interfaces are not asked
// of what is forwarded: which interface a packet takes is the kernel's to say.
func (c *Cluster) Follow(f Flow) ([]Hop, error) {
	src, dst, err := addresses(f)
	if err != nil {
		return nil, err
	}
	p := policy.Packet{Src: src, Dst: dst, Protocol: f.Protocol, DstPort: f.Port, ICMPType: f.ICMPType, ICMPCode: f.ICMPCode, Conn: policy.ConnNew}
	if f.Protocol == 0 {
		p.Protocol, p.ICMPType = model.ProtocolICMP, 8
		if src.Is6() {
			p.Protocol, p.ICMPType = model.ProtocolICMPv6, 128
		}
	}
	if f.Port != 0 {
		p.SrcPort = sourcePort
	}
	if f.From.Host == "" && f.To.Host == "" {
		return nil, fmt.Errorf("neither %s nor %s is of this cluster", f.From, f.To)
	}
	if f.From.Key == (model.WorkloadEndpointKey{}) && f.To.Key != (model.WorkloadEndpointKey{}) && f.From.Host != "" && f.From.Host != f.To.Host {
		p.Src = c.tunnelled(f, p)
	}
	var hops []Hop
	if f.From.Host != "" {
		first := p
		first.In, first.MAC = c.link(f.From)
		first.Out = uplink
		if f.To.Host == f.From.Host {
			first.Out, _ = c.link(f.To)
		}
		hop := c.hop(f.From.Host, first)
		hops = append(hops, hop)
		if hop.Verdict != policy.Accept || f.To.Host == f.From.Host || f.To.Host == "" {
			return hops, nil
		}
		if hop.Masqueraded {
			if i := slices.IndexFunc(c.hosts[f.From.Host], func(a netip.Addr) bool { return a.Is4() == src.Is4() }); i >= 0 {
				p.Src = c.hosts[f.From.Host][i]
			}
		}
	}
	p.In = uplink
	p.Out, _ = c.link(f.To)
	return append(hops, c.hop(f.To.Host, p)), nil
}

// tunnelled is what a host sends from to a pod of another: where the way leads through a tunnel, the tunnel's address. The hosts are
// taken to have one subnet where none is known.
func (c *Cluster) tunnelled(f Flow, p policy.Packet) netip.Addr {
	var pool model.Pool
	for _, other := range c.pools {
		if other.CIDR.Contains(p.Dst) && other.CIDR.Bits() >= pool.CIDR.Bits() {
			pool = other
		}
	}
	name, mode := "IPv4VXLANTunnelAddr", pool.VXLANMode
	switch {
	case !pool.CIDR.IsValid():
		return p.Src
	case mode == model.EncapNever:
		name, mode = "IpInIpTunnelAddr", pool.IPIPMode
	case p.Dst.Is6():
		name = "IPv6VXLANTunnelAddr"
	}
	if mode == model.EncapCrossSubnet {
		subnet, err := netip.ParsePrefix(c.settings[model.BGPHostKey{Host: f.From.Host, Field: model.BGPHostNetworkV4}])
		if p.Dst.Is6() || err != nil || slices.ContainsFunc(c.hosts[f.To.Host], subnet.Contains) {
			return p.Src
		}
	}
	addr, err := netip.ParseAddr(c.settings[model.HostConfigKey{Host: f.From.Host, Name: name}])
	if mode == model.EncapNever || err != nil {
		return p.Src
	}
	return addr
}

// uplink stands for an interface that no endpoint has.
const uplink = "*uplink"

// addresses are those of both ends, of one family; IPv4 where both have both.
func addresses(f Flow) (src, dst netip.Addr, err error) {
	for _, v4 := range []bool{true, false} {
		of := func(addrs []netip.Addr) (netip.Addr, bool) {
			i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() == v4 })
			if i < 0 {
				return netip.Addr{}, false
			}
			return addrs[i], true
		}
		src, ok1 := of(f.From.Addrs)
		dst, ok2 := of(f.To.Addrs)
		if ok1 && ok2 {
			return src, dst, nil
		}
	}
	return src, dst, fmt.Errorf("%s and %s have no addresses of one family", f.From, f.To)
}

// link is the interface of an end on its host, "" = the host itself, and the end's MAC address.
func (c *Cluster) link(e End) (string, model.MAC) {
	w := c.endpoints[e.Key]
	return w.Name, w.MAC
}

func (c *Cluster) hop(host string, p policy.Packet) Hop {
	var prefixes []string
	for k, w := range c.endpoints {
		if k.Host == host {
			prefixes = append(prefixes, w.Name)
		}
	}
	settings := policy.Settings{
		Prefixes:       prefixes,
		EndpointToHost: policy.EndpointToHost(strings.ToUpper(c.setting(host, "DefaultEndpointToHostAction"))),
		EndpointDNS:    slices.Contains([]string{"true", "yes", "1"}, strings.ToLower(c.setting(host, "AllowDNSPacketsFromWorkloads"))),
	}
	if a, err := netip.ParseAddr(c.setting(host, "MetadataAddr")); err == nil {
		port, err := strconv.ParseUint(c.setting(host, "MetadataPort"), 10, 16)
		if err != nil {
			port = 8775
		}
		settings.Metadata = netip.AddrPortFrom(a, uint16(port))
	}
	return Hop{host, p, policy.Evaluate(settings, c.state(host), p)}
}

// setting is what a parameter of a host's agent is set to in etcd, "" = not set, which is as DROP and false.
func (c *Cluster) setting(host, name string) string {
	if own, ok := c.settings[model.HostConfigKey{Host: host, Name: name}]; ok {
		return own
	}
	return c.settings[model.GlobalConfigKey{Name: name}]
}

// state is what the host's agent makes of etcd.
func (c *Cluster) state(host string) *policy.State {
	if c.states[host] == nil {
		engine := policy.NewEngine(host)
		engine.Update(c.entries...)
		s := &policy.State{}
		_ = s.Apply(engine.Flush()) // the first changes of an engine fit
		c.states[host] = s
	}
	return c.states[host]
}

// Applied is a policy or profile that an endpoint is held to.
type Applied struct {
	ID       policy.RulesID
	Selector string   // of a policy
	Order    *float64 // of a policy
}

// Direction is what an endpoint is held to in one direction, in the order in which it is asked.
type Direction struct {
	Policies []Applied
	Passing  []string // tiers that pass on what none of their policies decides
	Profiles []Applied
}

// Held is what holds for an endpoint.
type Held struct {
	Key               model.WorkloadEndpointKey
	Labels            map[string]string // its own
	Dropped           string            // why nothing passes, "" = it is active
	Inbound, Outbound Direction
}

// Endpoint says which policies and profiles hold for an endpoint.
func (c *Cluster) Endpoint(key model.WorkloadEndpointKey) Held {
	h := Held{Key: key, Labels: maps.Clone(c.endpoints[key].Labels)}
	if ep := c.state(key.Host).Endpoints[key.Path()]; ep != nil {
		h.Dropped, h.Inbound, h.Outbound = ep.Dropped, c.direction(ep.Inbound), c.direction(ep.Outbound)
	}
	return h
}

func (c *Cluster) direction(v policy.Verdicts) Direction {
	d := Direction{Passing: v.Passing}
	for _, id := range v.Policies {
		p := c.policies[id]
		d.Policies = append(d.Policies, Applied{id, p.Selector, p.Order})
	}
	for _, id := range v.Profiles {
		d.Profiles = append(d.Profiles, Applied{ID: id})
	}
	return d
}
