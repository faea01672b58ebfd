// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// change does something to the world, seldom to its settings.
func (c chance) change(w *world, revision int64) {
	paths := slices.Sorted(maps.Keys(w.Items))
	switch {
	case c.in(12):
		w.Settings, w.Tunnels = c.settings(), c.tunnels()
	case len(paths) > 36 || len(paths) > 0 && c.in(4):
		delete(w.Items, one(c, paths...))
	default:
		path, data := c.object(c.IntN(19))
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
		bad = []string{`{"profile_ids":[]}`, `{"name":"eth0","labels":{"a":1}}`, `{"name":"*","labels":5}`}
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
		key, value = model.PolicyKey{Tier: one(c, "default", "default", "t1", "t/2", "kube-admin"), Policy: one(c, "q1", "q2", "q3", "odd one/ä", "knp.q4")}, c.policy()
		bad = []string{`{"selector":"a == 'x'","inbound_rules":[{"src_sel":"x"}]}`, `{"selector":"==="}`, `{"selector":"all()","staged":true}`, `{"selector":"all()","untracked":true,"outbound_rules":[{"dst_ports":[80]}]}`}
	case 13, 14, 15:
		t := model.Tier{DefaultAction: one(c, model.TierDeny, model.TierPass, model.TierPass)}
		if !c.in(3) {
			order := one[float64](c, -1, 5, 999_999, 1_000_000, 1_000_001)
			t.Order = &order
		}
		key, value = model.TierKey{Tier: one(c, "default", "t1", "t1", "t/2", "t/2", "kube-admin", "kube-admin")}, t
		bad = []string{`{"order":"first"}`, `{"default_action":"drop"}`}
	case 16, 17:
		key, value = model.NetworkSetKey{Name: one(c, "n1", "n2", "p/n1")}, model.NetworkSet{Nets: c.nets(), Labels: c.labels()}
		bad = []string{`{"nets":["10.0.0.0/99"],"labels":{"a":"x"}}`}
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
			for c.in(4) {
				nat = append(nat, model.NAT{IntIP: a, ExtIP: extAddr(one(c, i, i, c.IntN(pods)), version)})
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
	h := model.HostEndpoint{Name: one(c, "", "", "eth0", "eth0", "eth1", "*", "*", "tap0", "lo", missingPort), ProfileIDs: some(c, 2, "p1", "p2", "p3"), Labels: c.labels()}
	if h.Name == "" || c.in(2) {
		h.ExpectedIPv4Addrs = []netip.Addr{one(c, hostAddr(0, 4), hostAddr(1, 4), loopback(4), gateway)}
		h.ExpectedIPv6Addrs = some(c, 2, append(hostAddrs(6), loopback(6))...)
	}
	return h
}

// many are rules most of which decide nothing about most packets.
func (c chance) many() []model.Rule {
	var out []model.Rule
	for len(out) < manyRules {
		r := c.rule()
		for range 3 {
			c.criterion(&r, one(c, &r.Match, &r.Not), 4)
		}
		out = append(out, r)
	}
	return out
}

// manyRules is more than the firewall takes for few.
const manyRules = 510

func (c chance) policy() model.Policy {
	p := model.Policy{Selector: c.selector(), Inbound: c.rules(4), Outbound: c.rules(4), Untracked: c.in(2)}
	if c.in(60) { // lists of values are rendered otherwise where rules are many
		p.Inbound, p.Outbound = c.many(), c.many()
	}
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
	if p.Forward = c.in(3); !p.Untracked && c.in(4) {
		p.PreDNAT, p.Outbound, p.Types = true, nil, nil
	}
	return p
}
