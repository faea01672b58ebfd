// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestPreDNAT: policy before DNAT closes a port that rules of others translate to a workload, and opens one of the host's; what it doesn't
// decide goes on. So does the policy of the host endpoint for all interfaces.
func TestPreDNAT(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		pod, out := newSpace(t, 1, "cali1"), newSpace(t, 2, "eth0")
		own := ownAddrs(t)
		run(t, "nft", `add table inet proxy; add chain inet proxy in { type nat hook prerouting priority -100; };
			add rule inet proxy in udp dport 30080-30081 ip daddr 10.9.9.9 dnat ip to 10.65.0.1:80;
			add rule inet proxy in udp dport 30080-30081 ip6 daddr fd09::9 dnat ip6 to [fd00::1]:80`)
		anybody, all := policy.Verdicts{Profiles: []policy.RulesID{profileID("open")}}, []policy.Rule{{Action: model.ActionAllow}}
		pod.ep.Inbound, pod.ep.Outbound = anybody, anybody
		early := []policy.RulesID{policyID("early")}
		f := open(t)
		for _, host := range []*policy.Endpoint{
			{Path: "/host", Interface: "eth0", PreDNAT: early},
			{Path: "/host", Wildcard: true, PreDNAT: early, Inbound: anybody, Outbound: anybody},
		} {
			f.Update(policy.Changes{Endpoints: endpoints(pod.ep, host), Rules: rules(
				policy.Rules{ID: policyID("early"), Inbound: []policy.Rule{udpTo(model.ActionDeny, 30080), udpTo(model.ActionAllow, 200)}},
				policy.Rules{ID: profileID("open"), Inbound: all, Outbound: all},
			)})
			mustApply(t, f)
			run(t, "conntrack", "-F")
			at := map[string]net.PacketConn{"pod": pod.listen(80), "200": listen(t, 200), "201": listen(t, 201)}
			for v, a := range own {
				for _, c := range []struct {
					port int
					at   string // "" = it is dropped
				}{
					{30080, ""}, {30081, "pod"}, {200, "200"},
				} {
					send(t, out, netip.AddrPortFrom(out.ep.Addrs[v], 1000), netip.AddrPortFrom(a, uint16(c.port)))
					if c.at == "" {
						continue
					}
					if _, _, err := readWithin(at[c.at], make([]byte, 10)); err != nil {
						t.Errorf("IPv%d, to port %d: %v", []int{4, 6}[v], c.port, err)
					}
				}
				send(t, out, netip.AddrPortFrom(out.ep.Addrs[v], 1000), netip.AddrPortFrom(a, 201))
			}
			if waits(t, at["pod"]) {
				t.Error("what is denied before DNAT came to the pod")
			}
			if closed := !host.Wildcard; closed == waits(t, at["201"]) {
				t.Errorf("what no policy before DNAT decides: the host endpoint, which denies it: %t, was not asked as it should", closed)
			}
			for _, c := range at {
				_ = c.Close()
			}
		}
		f.Update(policy.Changes{Endpoints: endpoints(pod.ep, &policy.Endpoint{Path: "/host", Interface: "eth0", Inbound: anybody, Outbound: anybody})})
		mustApply(t, f)
		at := pod.listen(80)
		send(t, out, netip.AddrPortFrom(out.ep.Addrs[0], 1000), netip.AddrPortFrom(own[0], 30080))
		if _, _, err := readWithin(at, make([]byte, 10)); err != nil {
			t.Errorf("without a policy before DNAT: %v", err)
		}
	})
}

// TestApplyOnForward: policy of a host endpoint on packets forwarded through its interface, in and out, beside that of workloads.
func TestApplyOnForward(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		pod, out, other := newSpace(t, 1, "cali1"), newSpace(t, 2, "eth0"), newSpace(t, 3, "eth1")
		anybody, all := policy.Verdicts{Profiles: []policy.RulesID{profileID("open")}}, []policy.Rule{{Action: model.ActionAllow}}
		pod.ep.Inbound, pod.ep.Outbound = anybody, anybody
		web := policy.Verdicts{Policies: []policy.RulesID{policyID("web")}}
		passing := policy.Verdicts{Policies: []policy.RulesID{policyID("web")}, Passing: []string{model.DefaultTier}}
		f := open(t)
		for _, c := range []struct {
			name    string
			in, out policy.Verdicts
			want    map[string]bool // by sender, receiver and port
		}{
			{"none", policy.Verdicts{}, policy.Verdicts{}, map[string]bool{"out-pod-80": true, "out-pod-81": true, "pod-out-81": true, "out-other-81": true, "other-pod-81": true}},
			{"inbound", web, policy.Verdicts{}, map[string]bool{"out-pod-80": true, "out-pod-81": false, "out-other-80": true, "out-other-81": false, "pod-out-81": true, "other-pod-81": true}},
			{"outbound", policy.Verdicts{}, web, map[string]bool{"out-pod-81": true, "pod-out-80": true, "pod-out-81": false, "other-out-80": true, "other-out-81": false}},
			{"of a tier that passes", passing, passing, map[string]bool{"out-pod-80": true, "out-pod-81": true, "pod-out-81": true}},
		} {
			host := &policy.Endpoint{Path: "/host", Interface: "eth0", Inbound: anybody, Outbound: anybody, ForwardInbound: c.in, ForwardOutbound: c.out}
			f.Update(policy.Changes{Endpoints: endpoints(pod.ep, host), Rules: rules(
				policy.Rules{ID: policyID("web"), Inbound: []policy.Rule{udpTo(model.ActionAllow, 80)}, Outbound: []policy.Rule{udpTo(model.ActionAllow, 80)}},
				policy.Rules{ID: profileID("open"), Inbound: all, Outbound: all},
			)})
			mustApply(t, f)
			run(t, "conntrack", "-F")
			spaces := map[string]space{"pod": pod, "out": out, "other": other}
			at := map[string]map[int]net.PacketConn{}
			for name, s := range spaces {
				at[name] = map[int]net.PacketConn{80: s.listen(80), 81: s.listen(81)}
			}
			for what, passes := range c.want {
				from, to, port := parts(what)
				for v := range pod.ep.Addrs {
					send(t, spaces[from], netip.AddrPortFrom(spaces[from].ep.Addrs[v], 1000), netip.AddrPortFrom(spaces[to].ep.Addrs[v], uint16(port)))
					if !passes {
						if waits(t, at[to][port]) {
							t.Errorf("%s: %s passes", c.name, what)
						}
					} else if _, _, err := readWithin(at[to][port], make([]byte, 10)); err != nil {
						t.Errorf("%s: %s: %v", c.name, what, err)
					}
				}
			}
			for _, ports := range at {
				for _, c := range ports {
					_ = c.Close()
				}
			}
		}
	})
}

// parts splits "sender-receiver-port".
func parts(what string) (from, to string, port int) {
	all := strings.Split(what, "-")
	port, _ = strconv.Atoi(all[2])
	return all[0], all[1], port
}
