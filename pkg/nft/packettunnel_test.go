// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

const (
	vxlanPort = 4789
	noVXLAN   = "VXLAN from no host of the cluster"
	noIPIP    = "IPIP from no host of the cluster"
)

// TestTunnels sends packets through real VXLAN devices, and IPIP packets, from a
// host of the cluster, from a stranger, and from a workload of this host.
func TestTunnels(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		pod, other := newSpace(t, 1, "cali1"), newSpace(t, 2, "eth0")
		own := []netip.Addr{ip("10.9.9.9"), ip("fd09::9")}
		inner := make([]netip.Addr, len(own))
		for v, o := range own {
			addAddrs(t, "eth0", o)
			inner[v] = netip.AddrFrom4([4]byte{10, 70, byte(v), 1})
			vxlan(t, v, o, netip.Addr{}, inner[v], 1)
			for _, s := range []space{pod, other} {
				s.do(func() { vxlan(t, v, s.ep.Addrs[v], o, netip.AddrFrom4([4]byte{10, 70, byte(v), 2}), 2) })
			}
		}
		f := open(t)
		s := settings()
		s.EndpointToHost = policy.ToHostAccept
		f.Configure(s)
		pod.ep.Inbound, pod.ep.Outbound = policy.Verdicts{}, policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		f.Update(policy.Changes{Endpoints: endpoints(pod.ep), Rules: rules(policy.Rules{ID: profileID("prod"), Outbound: []policy.Rule{{Action: model.ActionAllow}}})})
		at := listen(t, 80)
		ipip, err := net.ListenPacket("ip4:4", own[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer ipip.Close()
		for _, step := range []struct {
			name    string
			tunnels policy.Tunnels
			from    space
			through bool
		}{
			{"no tunnel is in use", policy.Tunnels{Hosts: other.ep.Addrs}, other, true},
			{"no host is known", policy.Tunnels{VXLANPort: vxlanPort, IPIP: true}, other, false},
			{"from a host", policy.Tunnels{VXLANPort: vxlanPort, IPIP: true, Hosts: other.ep.Addrs}, other, true},
			{"from a workload", policy.Tunnels{VXLANPort: vxlanPort, IPIP: true, Hosts: other.ep.Addrs}, pod, false},
			{"the host is gone", policy.Tunnels{VXLANPort: vxlanPort, IPIP: true, Hosts: own}, other, false},
			{"no tunnel is left", policy.Tunnels{}, other, true},
		} {
			f.Tunnels(step.tunnels)
			mustApply(t, f)
			vxlans, ipips := count(t, "filter-input", noVXLAN), count(t, "filter-input", noIPIP)
			for v := range own {
				step.from.do(func() { sendThrough(t, v, netip.AddrPortFrom(inner[v], 80)) })
			}
			step.from.do(func() { sendIPIP(t, step.from.ep.Addrs[0], own[0]) })
			if !step.through {
				waitCount(t, "filter-input", noVXLAN, vxlans+2)
				waitCount(t, "filter-input", noIPIP, ipips+1)
				continue
			}
			buf := make([]byte, 100)
			for range own {
				if _, _, err := readWithin(at, buf); err != nil {
					t.Errorf("%s: VXLAN: %v", step.name, err)
				}
			}
			if _, _, err := readWithin(ipip, buf); err != nil {
				t.Errorf("%s: IPIP: %v", step.name, err)
			}
		}
		if n := len(f.desired.ruleset.sets["hosts4"].elems) + len(f.desired.ruleset.sets["hosts6"].elems); n != 0 {
			t.Errorf("without a tunnel the firewall still knows %d hosts", n)
		}
	})
}

// TestImitations: a workload sends VXLAN and IPIP packets of its own, which would be masqueraded, to another host, and to an address of a
// pool.
func TestImitations(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		pod, other, pooled := newSpace(t, 1, "cali1"), newSpace(t, 2, "eth0"), newSpace(t, 3, "eth1")
		own := ownAddrs(t)
		for _, s := range []space{other, pooled} {
			s.do(func() { // so that no answer comes, after which the flow is established
				run(t, "nft", "add table inet t; add chain inet t out { type filter hook output priority 0; policy drop; }")
			})
		}
		f := open(t)
		pod.ep.Inbound, pod.ep.Outbound = policy.Verdicts{}, policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		pools := &policy.Pools{All: cidrs("10.65.0.1/32", "10.65.0.3/32", "fd00::1/128", "fd00::3/128"), Masquerade: cidrs("10.65.0.1/32", "fd00::1/128")}
		f.Update(policy.Changes{Endpoints: endpoints(pod.ep), Pools: pools,
			Rules: rules(policy.Rules{ID: profileID("prod"), Outbound: []policy.Rule{{Action: model.ActionAllow}}})})
		at := map[string]net.PacketConn{"eth0": other.listen(vxlanPort), "eth1": pooled.listen(vxlanPort)}
		ipip := map[string]net.PacketConn{}
		for _, s := range []space{other, pooled} {
			s.do(func() {
				c, err := net.ListenPacket("ip4:4", "0.0.0.0")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				ipip[s.iface] = c
			})
		}
		buf := make([]byte, 100)
		arrives := func(what string, c net.PacketConn, from netip.Addr) {
			t.Helper()
			if _, sender, err := readWithin(c, buf); err != nil {
				t.Errorf("%s: %v", what, err)
			} else if host, _, _ := net.SplitHostPort(sender.String()); host != from.String() && sender.String() != from.String() {
				t.Errorf("%s: from %s, want %s", what, sender, from)
			}
		}
		both := policy.Tunnels{VXLANPort: vxlanPort, IPIP: true, Hosts: other.ep.Addrs}
		for n, step := range []struct {
			name    string
			tunnels policy.Tunnels
			to      space
			passes  bool
		}{
			{"no tunnel", policy.Tunnels{}, other, true},
			{"to another host", both, other, false},
			{"to one that isn't known", policy.Tunnels{VXLANPort: vxlanPort, IPIP: true}, other, false},
			{"to an address of a pool", both, pooled, true},
			{"no tunnel any more", policy.Tunnels{}, other, true},
		} {
			f.Tunnels(step.tunnels)
			mustApply(t, f)
			run(t, "conntrack", "-F")
			const noVXLAN, noIPIP = "VXLAN of a workload's own, to outside of all pools", "IPIP of a workload's own, to outside of all pools"
			vxlans, ipips := count(t, "forward-calico", noVXLAN), count(t, "forward-calico", noIPIP)
			for v, a := range step.to.ep.Addrs {
				send(t, pod, netip.AddrPortFrom(pod.ep.Addrs[v], uint16(2000+n)), netip.AddrPortFrom(a, vxlanPort))
			}
			pod.do(func() { sendIPIP(t, pod.ep.Addrs[0], step.to.ep.Addrs[0]) })
			if !step.passes {
				waitCount(t, "forward-calico", noVXLAN, vxlans+2)
				waitCount(t, "forward-calico", noIPIP, ipips+1)
				continue
			}
			from := own
			if step.to.iface == pooled.iface {
				from = pod.ep.Addrs
			}
			for v := range own {
				arrives(step.name+", VXLAN", at[step.to.iface], from[v])
			}
			arrives(step.name+", IPIP", ipip[step.to.iface], from[0])
		}
		for iface, c := range at {
			if waits(t, c) {
				t.Errorf("more arrived at %s", iface)
			}
		}
	})
}

// vxlan creates a VXLAN device in the current namespace, with the entries for the other end.
func vxlan(t *testing.T, v int, local, remote, inner netip.Addr, n int) {
	t.Helper()
	name := fmt.Sprintf("vxlan%d", v)
	args := []string{"ip", "link", "add", name, "address", fmt.Sprintf("02:02:00:00:0%d:0%d", v, n), "type", "vxlan",
		"id", fmt.Sprint(4096 + v), "local", local.String(), "dstport", fmt.Sprint(vxlanPort), "nolearning"}
	if remote.IsValid() {
		args = append(args, "remote", remote.String())
	}
	run(t, args...)
	// So that it sends nothing of itself.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "ip", "link", "set", name, "up")
	run(t, "ip", "addr", "add", netip.PrefixFrom(inner, 24).String(), "dev", name)
	run(t, "ip", "neigh", "add", fmt.Sprintf("10.70.%d.%d", v, 3-n), "lladdr", fmt.Sprintf("02:02:00:00:0%d:0%d", v, 3-n), "dev", name, "nud", "permanent")
}

func sendThrough(t *testing.T, v int, to netip.AddrPort) {
	t.Helper()
	c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(10, 70, byte(v), 2)}, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

func sendIPIP(t *testing.T, from, to netip.Addr) {
	t.Helper()
	c, err := net.DialIP("ip4:4", &net.IPAddr{IP: from.AsSlice()}, &net.IPAddr{IP: to.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, 40)); err != nil {
		t.Fatal(err)
	}
}
