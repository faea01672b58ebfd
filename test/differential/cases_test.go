// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/explain"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// Paths of objects in cases.
const (
	hostEndpointPath = "/calico/v1/host/" + host + "/endpoint/1"
	closedPolicyPath = "/calico/v1/policy/tier/default/policy/q1"
)

// TestCases sends packets through rulesets whose meaning was once one thing to the
// kernel and another to Evaluate, and holds both to what is right.
func TestCases(t *testing.T) {
	settings := policy.Settings{Prefixes: []string{"cali"}, LogPrefix: "calico-packet"}
	untracked := `{"selector":"all()","untracked":true,"inbound_rules":[{"action":"deny"}],"outbound_rules":[{"action":"deny"}]}`
	vxlan := policy.Tunnels{VXLANPort: vxlanPort, IPIP: true, Hosts: []netip.Addr{outside(0, 4)[0]}}
	tunnel := toItself(4)[1]
	tunnel.DstPort = vxlanPort
	stranger := probe{In: "eth0", MAC: macOf("eth0", true), Src: outside(0, 4)[1], Dst: hostAddr(0, 4), Protocol: model.ProtocolUDP, SrcPort: 1024, DstPort: vxlanPort}
	pod := model.WorkloadEndpointKey{Host: host, Orchestrator: "k8s", Workload: "w1", Endpoint: "eth0"}.Path()
	const podSpec = `{"state":"active","name":"cali1","mac":"","profile_ids":[],"ipv4_nets":["10.65.1.1/32"],"ipv6_nets":["fd65::1:1/128"]}`
	var forged, forgedToHost []probe
	for _, version := range [...]int{4, 6} {
		p := probe{In: "cali1", MAC: macOf("cali1", true), Src: podAddrs(2, version)[0], Dst: podAddrs(3, version)[0], Protocol: model.ProtocolUDP, SrcPort: 68, DstPort: 67}
		if version == 6 {
			p.SrcPort, p.DstPort = 546, 547
		}
		forged = append(forged, p)
		p.Dst = hostAddr(0, version)
		forgedToHost = append(forgedToHost, p)
	}
	asking := forgedToHost[1]
	asking.Src = addr("fe80::1:2")
	toServers, toMany := asking, asking
	toServers.Dst, toMany.Dst = addr("ff02::1:2"), addr("ff02::1")
	other := stranger
	other.Src = outside(0, 4)[0]
	for _, tt := range []struct {
		name    string
		tunnels policy.Tunnels
		items   map[string]string
		probes  []probe
		want    policy.Verdict
	}{
		{"a host endpoint named lo", policy.Tunnels{}, map[string]string{hostEndpointPath: `{"name":"lo"}`, closedPolicyPath: untracked}, append(toItself(4), toItself(6)...), policy.Accept},
		{"one with the loopback's addresses", policy.Tunnels{}, map[string]string{hostEndpointPath: `{"expected_ipv4_addrs":["127.0.0.1","169.254.1.1"],"expected_ipv6_addrs":["::1"]}`, closedPolicyPath: untracked},
			append(toItself(4), toItself(6)...), policy.Accept},
		{"one on the interface that has the address", policy.Tunnels{}, map[string]string{hostEndpointPath: `{"name":"eth0"}`, closedPolicyPath: untracked}, append(toItself(4), toItself(6)...), policy.Accept},
		{"one named *", policy.Tunnels{}, map[string]string{hostEndpointPath: `{"name":"*"}`, closedPolicyPath: untracked}, append(toItself(4), toItself(6)...), policy.Accept},
		{"a tunnel's packet of the host to itself", vxlan, nil, []probe{tunnel}, policy.Drop},
		{"a tunnel's packet from a stranger", vxlan, nil, []probe{stranger}, policy.Drop},
		{"a tunnel's packet from another host, past a host endpoint", vxlan, map[string]string{hostEndpointPath: `{"name":"eth0"}`}, []probe{other}, policy.Accept},
		{"and past its untracked policy", vxlan, map[string]string{hostEndpointPath: `{"name":"eth0"}`, closedPolicyPath: untracked}, []probe{other}, policy.Accept},
		{"a forged DHCP packet to another pod", policy.Tunnels{}, map[string]string{pod: podSpec}, forged, policy.Drop},
		{"a forged DHCP packet to the host", policy.Tunnels{}, map[string]string{pod: podSpec}, forgedToHost, policy.Drop},
		{"DHCPv6 from a link-local address", policy.Tunnels{}, map[string]string{pod: podSpec}, []probe{asking, toServers}, policy.Accept},
		{"and to another group", policy.Tunnels{}, map[string]string{pod: podSpec}, []probe{toMany}, policy.Drop},
	} {
		w := world{settings, tt.tunnels, map[string]item{}}
		for path, data := range tt.items {
			w.Items[path] = item{path, data, 1}
		}
		t.Run(strings.ReplaceAll(tt.name, "*", "everything"), func(t *testing.T) {
			fares := map[policy.Verdict][]probe{tt.want: tt.probes}
			if err := inNamespace(func() error { return fareAs(w, fares) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHostEndpointForms holds each form of a host endpoint to each kind of policy: on what comes to the host, what leaves it and
// what is forwarded.
func TestHostEndpointForms(t *testing.T) {
	settings := policy.Settings{Prefixes: []string{"cali"}, LogPrefix: "calico-packet",
		FailsafeInbound: []policy.ProtoPort{{Protocol: model.ProtocolTCP, Port: 22}}, FailsafeOutbound: []policy.ProtoPort{{Protocol: model.ProtocolTCP, Port: 2379}}}
	const profile = "/calico/v1/policy/profile/open/rules"
	pod := model.WorkloadEndpointKey{Host: host, Orchestrator: "k8s", Workload: "w1", Endpoint: "eth0"}.Path()
	tcp := func(in string, src, dst netip.Addr, port uint16) probe {
		var mac model.MAC
		if in != "" {
			mac = macOf(in, true)
		}
		return probe{In: in, MAC: mac, Src: src, Dst: dst, Protocol: model.ProtocolTCP, DstPort: port, TCPFlags: flagSYN}
	}
	for name, form := range map[string]string{
		"by name": `"name":"eth0"`, "by address": `"expected_ipv4_addrs":["10.0.0.1"]`, "everywhere": `"name":"*"`,
	} {
		for kind, rules := range map[string]string{
			"normal":           `"inbound_rules":[{"action":"deny","protocol":"tcp","dst_ports":[80,22]},{}],"outbound_rules":[{"action":"deny","protocol":"tcp","dst_ports":[80,2379]},{}]`,
			"untracked":        `"untracked":true,"inbound_rules":[{"action":"deny","protocol":"tcp","dst_ports":[80,22]}],"outbound_rules":[{"action":"deny","protocol":"tcp","dst_ports":[80,2379]}]`,
			"pre-DNAT":         `"pre_dnat":true,"inbound_rules":[{"action":"deny","protocol":"tcp","dst_ports":[80,22]}]`,
			"apply_on_forward": `"apply_on_forward":true,"inbound_rules":[{"action":"deny","protocol":"tcp","dst_ports":[80,22]},{}],"outbound_rules":[{"action":"deny","protocol":"tcp","dst_ports":[80,2379]},{}]`,
		} {
			fares := map[policy.Verdict][]probe{}
			for version := 4; version <= 6; version += 2 {
				own, near, far, podAddr := hostAddr(0, version), outside(0, version)[0], outside(1, version)[0], podAddrs(1, version)[0]
				isForward := kind == "apply_on_forward" // on what is forwarded, those ports don't count
				forwarded := isForward || kind == "pre-DNAT"
				add := func(denied bool, p probe) {
					verdict := policy.Accept
					if denied {
						verdict = policy.Drop
					}
					p.SrcPort = uint16(2000 + len(fares[policy.Accept]) + len(fares[policy.Drop]))
					fares[verdict] = append(fares[verdict], p)
				}
				add(true, tcp("eth0", near, own, 80))
				add(false, tcp("eth0", near, own, 22))
				add(false, tcp("eth0", near, own, 81))
				add(kind != "pre-DNAT", tcp("", own, near, 80))
				add(false, tcp("", own, near, 2379))
				add(forwarded, tcp("eth0", near, podAddr, 80))
				add(isForward, tcp("eth0", near, podAddr, 22))
				add(isForward, tcp("cali1", podAddr, near, 80))
				add(forwarded, tcp("eth0", near, far, 80))
				add(isForward || kind == "pre-DNAT" && name == "everywhere", tcp("eth1", far, near, 80))
				// The other interface is nobody's, or that of *.
				add(name == "everywhere", tcp("eth1", far, hostAddr(1, version), 80))
				add(name == "everywhere" && kind != "pre-DNAT", tcp("", hostAddr(1, version), far, 80))
			}
			w := world{settings, policy.Tunnels{}, map[string]item{}}
			for path, data := range map[string]string{
				hostEndpointPath: `{` + form + `,"labels":{"side":"outer"},"profile_ids":["open"]}`,
				closedPolicyPath: `{"selector":"has(side)",` + rules + `}`,
				profile:          `{"inbound_rules":[{}],"outbound_rules":[{}]}`,
				pod:              `{"state":"active","name":"cali1","mac":"","profile_ids":["open"],"ipv4_nets":["10.65.1.1/32"],"ipv6_nets":["fd65::1:1/128"]}`,
			} {
				w.Items[path] = item{path, data, 1}
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				if err := inNamespace(func() error { return fareAs(w, fares) }); err != nil {
					t.Error(err)
				}
				explainsAs(t, w, fares)
			})
		}
	}
}

// explainsAs has explain say the same of those probes that have an end in the cluster: by eth0, or by another interface, where that differs.
func explainsAs(t *testing.T, w world, fares map[policy.Verdict][]probe) {
	var entries []model.Entry
	add := func(path, data string) { entries = append(entries, item{path, data, 1}.entry()) }
	for _, i := range w.Items {
		add(i.Path, i.Data)
	}
	add("/calico/v1/host/"+host+"/metadata", "{}")
	add("/calico/bgp/v1/host/"+host+"/ip_addr_v4", hostAddr(0, 4).String())
	add("/calico/bgp/v1/host/"+host+"/ip_addr_v6", hostAddr(0, 6).String())
	add("/calico/v1/config/FailsafeInboundHostPorts", "tcp:22")
	add("/calico/v1/config/FailsafeOutboundHostPorts", "tcp:2379")
	c := explain.New(entries)
	end := func(a netip.Addr) explain.End {
		for _, uplink := range [...]int{0, 1} {
			if a == hostAddr(uplink, versionOf(a)) {
				return explain.End{Host: host, Addrs: []netip.Addr{a}}
			}
		}
		e, err := c.Find(a.String(), "")
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for want, probes := range fares {
		for _, p := range probes {
			f := explain.Flow{From: end(p.Src), To: end(p.Dst), Protocol: p.Protocol, Port: p.DstPort}
			if f.From.Host == "" && f.To.Host == "" {
				continue // from outside to outside
			}
			hops, err := c.Follow(f)
			if err != nil {
				t.Fatal(err)
			}
			by := "eth0"
			if p.In == "eth1" || p.Src == hostAddr(1, versionOf(p.Src)) {
				by = "any other"
			}
			i := slices.IndexFunc(hops, func(h explain.Hop) bool { return h.Interface == "" || strings.Contains(h.Interface, by) })
			if i < 0 || hops[i].Verdict != want {
				t.Errorf("%s: explain: %+v, want %s", p, hops, want)
			}
		}
	}
}

// fareAs sends probes through a world of its own, and wants each to fare so.
func fareAs(w world, fares map[policy.Verdict][]probe) error {
	var probes []probe
	var wants []policy.Verdict
	for verdict, ps := range fares {
		for _, p := range ps {
			probes, wants = append(probes, p), append(wants, verdict)
		}
	}
	l, err := newLab()
	if err != nil {
		return fmt.Errorf("make the lab: %w", err)
	}
	n, err := newNode()
	if err != nil {
		return err
	}
	defer n.firewall.Close()
	if err := n.become(w); err != nil {
		return err
	}
	fates, err := l.send(probes)
	if err != nil {
		return err
	}
	for i, p := range probes {
		what, result, err := compare(w.Settings, &n.state, p, fates[i])
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if what != "" || result.Verdict != wants[i] {
			return fmt.Errorf("%s: %s; want %s; Evaluate: %s %v\n%s", p, what, wants[i], result.Verdict, result.Trail, table())
		}
	}
	return nil
}

// toItself are packets that the host sends to itself, over the loopback's address
// and over another of its own.
func toItself(version int) []probe {
	icmp := probe{Protocol: model.ProtocolICMP, ICMPType: 8, SrcPort: 1}
	if version == 6 {
		icmp.Protocol, icmp.ICMPType = model.ProtocolICMPv6, 128
	}
	var out []probe
	for i, a := range []netip.Addr{loopback(version), hostAddr(0, version)} {
		for _, p := range []probe{
			{Protocol: model.ProtocolTCP, SrcPort: 1024, DstPort: 2379, TCPFlags: flagSYN},
			{Protocol: model.ProtocolUDP, SrcPort: 1024, DstPort: 53},
			icmp,
		} {
			p.Src, p.Dst = a, a
			p.SrcPort += uint16(i)
			out = append(out, p)
		}
	}
	return out
}
