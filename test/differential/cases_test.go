// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

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
			if err := inNamespace(func() error { return fareAs(w, tt.probes, tt.want) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// fareAs sends probes through a world of its own.
func fareAs(w world, probes []probe, want policy.Verdict) error {
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
		if what != "" || result.Verdict != want {
			return fmt.Errorf("%s: %s; want %s; Evaluate: %s %v\n%s", p, what, want, result.Verdict, result.Trail, table())
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
