// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// world makes random objects of a small universe, in which everything meets
// everything else soon. pick chooses a number below n.
type world struct{ pick func(n int) int }

func one[T any](w world, of ...T) T { return of[w.pick(len(of))] }

func some[T any](w world, max int, of ...T) []T {
	var out []T
	for range w.pick(max + 1) {
		out = append(out, one(w, of...))
	}
	return out
}

var (
	worldV4 = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.1.4")}
	worldV6 = []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	errBad  = errors.New("bad value")
)

func (w world) labels() map[string]string {
	out := map[string]string{}
	for range w.pick(4) {
		out[one(w, "a", "b", "c", "d")] = one(w, "x", "y", "")
	}
	return out
}

func (w world) selector() string {
	return one(w, "", "all()", "a == 'x'", "a=='x'", "a == 'y' && has(b)", "b in {'x','y'}", "a != 'x'", "!has(c)", "!(a != 'x')",
		"calico/k8s_ns == 'p1'", "projectcalico.org/kind == 'NetworkSet' && b != 'x'", "a == 'x' || b == 'x'", "c starts with 'x'", "has(d)", "a in {}", "a in {} || b in {}", "!all()", "d == '' && c != 'y'")
}

func (w world) rule() model.Rule {
	r := model.Rule{Action: one(w, model.ActionAllow, model.ActionDeny, model.ActionLog, model.ActionNextTier), LogPrefix: one(w, "", "", "seen it")}
	for _, m := range []*model.Match{&r.Match, &r.Not} {
		switch w.pick(6) {
		case 0:
			m.SrcTag = one(w, "a", "t")
		case 1:
			m.SrcSelector, m.HasSrcSelector = w.selector(), true
		case 2:
			m.DstSelector, m.HasDstSelector, m.DstTag = w.selector(), true, one(w, "", "t")
		case 3:
			m.DstPorts = some(w, 3, model.Port{Name: "http"}, model.Port{Name: "dns"}, model.Port{Min: 80, Max: 90})
			r.Match.Protocol = model.ProtocolTCP
		}
	}
	return r
}

func (w world) rules() []model.Rule {
	var out []model.Rule
	for range w.pick(3) {
		out = append(out, w.rule())
	}
	return out
}

func (w world) workload() model.WorkloadEndpoint {
	e := model.WorkloadEndpoint{
		State: one(w, model.StateActive, model.StateActive, model.StateActive, model.StateInactive),
		Name:  one(w, "cali1", "cali2", "cali3", "cali4", "tap1"), MAC: model.MAC{2, 0, 0, 0, 0, byte(w.pick(3))},
		ProfileIDs: some(w, 3, "p1", "p2", "p3", "p4"), Labels: w.labels(),
		Ports: some(w, 3, model.EndpointPort{Name: "http", Protocol: model.ProtocolTCP, Port: 80}, model.EndpointPort{Name: "http", Protocol: model.ProtocolTCP, Port: 81},
			model.EndpointPort{Name: "dns", Protocol: model.ProtocolUDP, Port: 53}),
	}
	for _, a := range some(w, 2, worldV4...) {
		e.IPv4Nets = append(e.IPv4Nets, netip.PrefixFrom(a, 32))
	}
	for _, a := range some(w, 1, worldV6...) {
		e.IPv6Nets = append(e.IPv6Nets, netip.PrefixFrom(a, 128))
	}
	if len(e.IPv4Nets) > 0 && w.pick(4) == 0 {
		e.IPv4NAT = []model.NAT{{IntIP: e.IPv4Nets[0].Addr(), ExtIP: one(w, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), one(w, worldV4...))}}
	}
	if len(e.IPv6Nets) > 0 && w.pick(4) == 0 {
		e.IPv6NAT = []model.NAT{{IntIP: e.IPv6Nets[0].Addr(), ExtIP: one(w, netip.MustParseAddr("2001:db8::1"), one(w, worldV6...))}}
	}
	return e
}

func (w world) policy() model.Policy {
	p := model.Policy{Selector: w.selector(), Inbound: w.rules(), Outbound: w.rules(), Untracked: w.pick(4) == 0}
	if w.pick(3) > 0 {
		p.Order = new(float64)
		*p.Order = float64(w.pick(3) - 1)
	}
	p.Types = one(w, nil, nil, []model.Direction{model.Inbound}, []model.Direction{model.Outbound})
	p.Forward = w.pick(3) == 0
	if !p.Untracked && w.pick(4) == 0 {
		p.PreDNAT, p.Outbound, p.Types = true, nil, nil
	}
	return p
}

func (w world) tier() model.Tier {
	t := model.Tier{DefaultAction: one(w, model.TierDeny, model.TierPass)}
	if w.pick(3) > 0 {
		order := one[float64](w, -1, 0, 999_999, 1_000_000, 1_000_001)
		t.Order = &order
	}
	return t
}

// nets are networks inside one another, beside one another, and all of them.
func (w world) nets() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range some(w, 4, "0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/24", "10.0.0.0/25", "10.0.0.128/25", "10.0.1.0/24", "10.0.0.1/32", "::/0", "fd00::/64", "fd00::1/128") {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func (w world) networkSet() model.NetworkSet {
	s := model.NetworkSet{Nets: w.nets(), Labels: w.labels()}
	if w.pick(3) == 0 { // they don't count
		s.Labels[one(w, "calico/k8s_ns", "projectcalico.org/kind", "projectcalico.org/name", "k8s_ns/label/a")] = one(w, "p1", "x")
	}
	return s
}

// entry is a write or a delete of a random key.
func (w world) entry() model.Entry {
	var e model.Entry
	switch w.pick(11) {
	case 0, 1:
		e.Key = model.WorkloadEndpointKey{Host: one(w, "h1", "h1", "h2"), Orchestrator: "k8s", Workload: "w", Endpoint: one(w, "1", "2", "3", "4")}
		e.Value = w.workload()
	case 2:
		e.Key = model.HostEndpointKey{Host: one(w, "h1", "h1", "h2"), Endpoint: one(w, "1", "2", "3")}
		h := model.HostEndpoint{Name: one(w, "", "eth0", "eth1", "*", "cali9", "lo"), ProfileIDs: some(w, 2, "p1", "p2"), Labels: w.labels()}
		if h.ExpectedIPv4Addrs = some(w, 2, worldV4...); h.Name == "" {
			h.ExpectedIPv4Addrs = append(h.ExpectedIPv4Addrs, worldV4[0])
		}
		e.Value = h
	case 3:
		e.Key, e.Value = model.ProfileRulesKey{Profile: one(w, "p1", "p2", "p3")}, model.Rules{Inbound: w.rules(), Outbound: w.rules()}
	case 4:
		e.Key, e.Value = model.ProfileTagsKey{Profile: one(w, "p1", "p2", "p3")}, model.Tags(some(w, 2, "a", "d", "t"))
	case 5:
		e.Key, e.Value = model.ProfileLabelsKey{Profile: one(w, "p1", "p2", "p3")}, model.Labels(w.labels())
	case 6:
		e.Key, e.Value = model.PolicyKey{Tier: one(w, "default", "default", "default", "t1", "t2", "t/3"), Policy: one(w, "q1", "q2", "q3", "odd one")}, w.policy()
	case 7:
		p := one(w, netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.1.0/24"), netip.MustParsePrefix("fd00::/64"))
		e.Key, e.Value = model.PoolKey{CIDR: p}, model.Pool{CIDR: p, Masquerade: w.pick(2) == 0}
	case 8:
		e.Key, e.Value = model.TierKey{Tier: one(w, "default", "t1", "t2", "t/3", "empty")}, w.tier()
	case 9:
		e.Key, e.Value = model.NetworkSetKey{Name: one(w, "n1", "n2", "p1/n1", "p2/n3")}, w.networkSet()
	case 10:
		e.Key, e.Value = model.ProfileLabelsKey{Profile: one(w, "k8s_ns.p1", "k8s_ns.p2")}, model.Labels(w.labels())
		if w.pick(2) == 0 {
			e.Key, e.Value = model.ProfileTagsKey{Profile: "k8s_ns.p1"}, model.Tags(some(w, 2, "a", "t"))
		}
	}
	e.Path = e.Key.Path()
	if k, ok := e.Key.(model.PolicyKey); ok && k.Policy == "odd one" && w.pick(2) == 0 {
		e.Path = strings.TrimSuffix(e.Path, "odd%20one") + "odd" + one(w, " ", "%20") + "one"
	}
	_, tier := e.Key.(model.TierKey)
	if _, set := e.Key.(model.NetworkSetKey); tier && w.pick(2) == 0 || set && w.pick(4) == 0 {
		e.Path = strings.Replace(e.Path, "%2F", "%2f", 1)
	}
	e.Revision, e.Created = 1, int64(1+w.pick(3))
	switch w.pick(8) {
	case 0, 1:
		e.Value, e.Revision, e.Created = nil, 0, 0
	case 2:
		if e.Err = errBad; w.pick(2) == 0 {
			if v, ok := e.Value.(model.Policy); ok {
				e.Err = &model.InvalidPolicyError{Selector: v.Selector, Err: errBad}
			}
			if v, ok := e.Value.(model.HostEndpoint); ok {
				on := v
				if v.Name == "" { // those that can be read, of those that there are or were
					on.ExpectedIPv4Addrs = []netip.Addr{one(w, worldV4...)}
				}
				e.Err = &model.InvalidHostEndpointError{On: on, Partly: v.Name == "", Err: errBad}
			}
		}
		switch e.Value.(type) {
		case model.Pool, model.HostEndpoint, model.Policy, model.Tags, model.Labels, model.NetworkSet: // the value from before may be known
		default:
			e.Value = nil
		}
		if w.pick(2) == 0 {
			e.Value = nil
		}
	}
	return e
}

// edit changes one thing of something that is there.
func (w world) edit(e model.Entry) model.Entry {
	e.Revision++
	switch v := e.Value.(type) {
	case model.Policy:
		switch w.pick(5) {
		case 0:
			v.Order = new(float64)
			*v.Order = float64(w.pick(3) - 1)
		case 1:
			v.Untracked = !v.Untracked && !v.PreDNAT
		case 2:
			v.Forward, v.PreDNAT = !v.Forward, false
			v.Types = one(w, nil, []model.Direction{model.Inbound}, []model.Direction{model.Outbound})
		case 3:
			v.Inbound = w.rules()
		case 4:
			v.Selector = w.selector()
		}
		e.Value = v
	case model.WorkloadEndpoint:
		switch o := w.workload(); w.pick(6) {
		case 0:
			v.Labels = o.Labels
		case 1:
			v.IPv4Nets, v.IPv4NAT = o.IPv4Nets, o.IPv4NAT
		case 2:
			v.Ports = o.Ports
		case 3:
			v.ProfileIDs = o.ProfileIDs
		case 4:
			v.State = o.State
		case 5:
			v.Name = o.Name
		}
		e.Value = v
	case model.HostEndpoint:
		v.Labels = w.labels()
		e.Value = v
	case model.NetworkSet:
		if w.pick(2) == 0 {
			v.Nets = w.nets()
		} else {
			v.Labels = w.labels()
		}
		e.Value = v
	case model.Tier:
		if o := w.tier(); w.pick(2) == 0 {
			v.Order = o.Order
		} else {
			v.DefaultAction = o.DefaultAction
		}
		e.Value = v
	}
	return e
}

func (w world) interfaces() []Interface {
	return []Interface{{"eth1", some(w, 2, worldV4...)}, {"lo", some(w, 2, worldV4...)}, {"eth0", some(w, 2, worldV4...)}}
}
