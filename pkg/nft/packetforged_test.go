// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestForged sends what looks like DHCP from another's address. It comes to the host
// alone, and opens nothing for who has that address.
func TestForged(t *testing.T) { bothWays(t, testForged) }

func testForged(t *testing.T, tell func(*Firewall)) {
	netns.Host(t, func() {
		asHost(t)
		thief, victim, sink, out := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2"), newSpace(t, 3, "cali3"), newSpace(t, 4, "eth0")
		own := []netip.Addr{ip("10.9.9.9"), ip("fd09::9")}
		addAddrs(t, "eth0", own...)
		thief.do(func() {
			for _, s := range []space{victim, out} {
				addAddrs(t, "eth0", s.ep.Addrs...)
			}
		})
		f := open(t)
		all := policy.Rule{Action: model.ActionAllow}
		host := &policy.Endpoint{Path: "/host", Interface: "eth0"}
		for _, s := range []space{thief, victim, sink} {
			s.ep.Inbound, s.ep.Outbound = policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}, policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		}
		f.Update(policy.Changes{Endpoints: endpoints(thief.ep, victim.ep, sink.ep, host), Rules: rules(policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}})})
		tell(f)
		mustApply(t, f)
		buf := make([]byte, 10)
		for v, ports := range [][2]uint16{{68, 67}, {546, 547}} {
			atSink, atHost := sink.listen(int(ports[1])), listen(t, int(ports[1]))
			from := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, ports[0]) }
			toSink, toHost := netip.AddrPortFrom(sink.ep.Addrs[v], ports[1]), netip.AddrPortFrom(own[v], ports[1])
			spoofed := count(t, "forward-calico", "spoofed source")

			send(t, thief, from(victim.ep.Addrs[v]), toSink)
			waitCount(t, "forward-calico", "spoofed source", spoofed+1)
			// Not even as part of a connection that the victim has.
			send(t, victim, from(victim.ep.Addrs[v]), toSink)
			if _, _, err := readWithin(atSink, buf); err != nil {
				t.Fatal(err)
			}
			sink.do(func() {
				if _, err := atSink.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(from(victim.ep.Addrs[v]))); err != nil {
					t.Error(err)
				}
			})
			send(t, thief, from(victim.ep.Addrs[v]), toSink)
			waitCount(t, "forward-calico", "spoofed source", spoofed+2)
			if waits(t, atSink) {
				t.Error("it came to another pod")
			}
			send(t, thief, from(thief.ep.Addrs[v]), toSink)
			if _, sender, err := readWithin(atSink, buf); err != nil || !strings.HasPrefix(sender.String(), from(thief.ep.Addrs[v]).String()) {
				t.Errorf("its own address: %v, %v", sender, err)
			}

			// The host has it, and who has the address is denied as before.
			send(t, thief, from(out.ep.Addrs[v]), toHost)
			if _, _, err := readWithin(atHost, buf); err != nil {
				t.Error(err)
			}
			if _, err := atHost.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(from(out.ep.Addrs[v]))); !isPerm(err) {
				t.Errorf("an answer to whom it claims to be from: %v, want that policy denies it", err)
			}
			denied := count(t, "host-in-eth0", "no policy or profile allows it")
			send(t, out, from(out.ep.Addrs[v]), toHost)
			waitCount(t, "host-in-eth0", "no policy or profile allows it", denied+1)
			send(t, thief, from(thief.ep.Addrs[v]), toHost)
			if _, _, err := readWithin(atHost, buf); err != nil {
				t.Errorf("to the host from its own address: %v", err)
			}
		}
	})
}
