// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// testToHost: a workload's way to the host is closed, except to DNS if that is configured, until the action says otherwise.
func testToHost(t *testing.T, f *Firewall, a space, own []netip.Addr, at map[int]net.PacketConn) {
	s := settings()
	for _, c := range []struct {
		name   string
		action policy.EndpointToHost
		want   bool
	}{
		{"RETURN", policy.ToHostReturn, true},
		{"ACCEPT", policy.ToHostAccept, true},
		{"DROP", policy.ToHostDrop, false},
	} {
		s.EndpointToHost = c.action
		f.Configure(s)
		mustApply(t, f)
		for v, to := range own {
			dropped := count(t, "workload-to-host", "endpoint to host action DROP")
			send(t, a, netip.AddrPortFrom(a.ep.Addrs[v], 0), netip.AddrPortFrom(to, 200))
			if !c.want {
				waitCount(t, "workload-to-host", "endpoint to host action DROP", dropped+1)
				continue
			}
			if _, _, err := readWithin(at[200], make([]byte, 10)); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

// TestToLoopback: packets that rules of others translate to the host's loopback arrive there, and packets sent there directly don't.
func TestToLoopback(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		pod := newSpace(t, 1, "cali1")
		own := ip("10.9.9.9")
		run(t, "ip", "addr", "add", "10.9.9.9/32", "dev", "lo")
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/cali1/route_localnet", []byte("1"), 0o644); err != nil {
			t.Fatal(err)
		}
		run(t, "nft", "add table ip nat; add chain ip nat in { type nat hook prerouting priority -100; }; add rule ip nat in ip daddr 10.9.9.9 udp dport 8080 dnat to 127.0.0.1:200")
		pod.do(func() {
			run(t, "ip", "rule", "add", "pref", "5", "lookup", "local")
			run(t, "ip", "rule", "add", "pref", "1", "to", "127.0.0.0/8", "lookup", "9")
			run(t, "ip", "rule", "del", "pref", "0")
			run(t, "ip", "route", "add", "127.0.0.0/8", "via", "169.254.1.1", "dev", "eth0", "onlink", "src", "10.65.0.1", "table", "9")
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/eth0/route_localnet", []byte("1"), 0o644); err != nil {
				t.Fatal(err)
			}
		})
		f := open(t)
		s := settings()
		s.EndpointToHost = policy.ToHostAccept
		f.Configure(s)
		pod.ep.Outbound = policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		f.Update(policy.Changes{Endpoints: endpoints(pod.ep), Rules: rules(policy.Rules{ID: profileID("prod"), Outbound: []policy.Rule{{Action: model.ActionAllow}}})})
		mustApply(t, f)
		at := listen(t, 200)
		send(t, pod, netip.AddrPortFrom(pod.ep.Addrs[0], 1000), netip.AddrPortFrom(own, 8080))
		if _, _, err := readWithin(at, make([]byte, 10)); err != nil {
			t.Errorf("translated: %v", err)
		}
		send(t, pod, netip.AddrPortFrom(pod.ep.Addrs[0], 1001), netip.AddrPortFrom(ip("127.0.0.1"), 200))
		waitCount(t, "workload-to-host", "the host's loopback, by its own address", 1)
		if waits(t, at) {
			t.Error("what was sent to the loopback as it is came there")
		}
	})
}

// testGone: an interface whose endpoint is removed or inactive has no access.
func testGone(t *testing.T, f *Firewall, a, b space, at map[int]net.PacketConn) {
	inactive := *a.ep
	inactive.Dropped = "inactive"
	for _, ep := range []*policy.Endpoint{&inactive, nil} {
		f.Update(policy.Changes{Endpoints: map[string]*policy.Endpoint{a.ep.Path: ep}})
		mustApply(t, f)
		for v := range a.ep.Addrs {
			before := count(t, "workload-source", "no endpoint has the interface")
			send(t, a, netip.AddrPortFrom(a.ep.Addrs[v], 0), netip.AddrPortFrom(b.ep.Addrs[v], markerPort))
			waitCount(t, "workload-source", "no endpoint has the interface", before+1)
		}
	}
	f.Update(policy.Changes{Endpoints: endpoints(a.ep)})
	mustApply(t, f)
	for v := range a.ep.Addrs {
		send(t, a, netip.AddrPortFrom(a.ep.Addrs[v], 0), netip.AddrPortFrom(b.ep.Addrs[v], markerPort))
		if _, _, err := readWithin(at[markerPort], make([]byte, 10)); err != nil {
			t.Errorf("back again: %v", err)
		}
	}
}

// send sends one UDP packet from a namespace.
func send(tb testing.TB, s space, from, to netip.AddrPort) {
	tb.Helper()
	s.do(func() { sendUDP(tb, from, to) })
}

func sendUDP(tb testing.TB, from, to netip.AddrPort) {
	tb.Helper()
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		tb.Fatal(err)
	}
}

// waitCount waits until the rules of a chain have counted so many packets.
func waitCount(tb testing.TB, chain, comment string, want uint64) {
	tb.Helper()
	eventually.Nil(tb, fmt.Sprintf("chain %s, %q: %d packets", chain, comment, want), func() error {
		if got := count(tb, chain, comment); got != want {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
}

var counted = regexp.MustCompile(`(?m)counter packets (\d+) bytes .*?(?: comment "([^"]*)")?$`)

// count returns how many packets the rules of a chain with the comment have counted.
func count(tb testing.TB, chain, comment string) uint64 {
	tb.Helper()
	n := uint64(0)
	for _, m := range counted.FindAllStringSubmatch(run(tb, "nft", "list", "chain", "inet", TableName, chain), -1) {
		if more, err := strconv.ParseUint(m[1], 10, 64); err == nil && m[2] == comment {
			n += more
		}
	}
	return n
}

// TestLoopback: an endpoint on the loopback is reported as not enforced, and not programmed.
func TestLoopback(t *testing.T) {
	d := newDesired()
	d.configure(settings())
	ep := &policy.Endpoint{Path: "/calico/v1/host/h/endpoint/1", Interface: policy.Loopback, UntrackedInbound: []policy.RulesID{policyID("p")}}
	d.update(policy.Changes{Endpoints: endpoints(ep)})
	for _, name := range [...]string{render.MapHostIn, render.MapHostOut, render.MapUntrackIn, render.MapUntrackOut} {
		if n := len(d.ruleset.sets[name].elems); n > 0 {
			t.Errorf("%s has %d elements, want none", name, n)
		}
	}
	want := "interface lo: what a host sends to itself is not policed: it is not enforced"
	if err := d.interfaces.problem(ep.Path); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
