// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestCutFailsafe: a cut flow closes no fail-safe port of the host.
func TestCutFailsafe(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		far := newSpace(t, 3, "far0")
		own := []netip.Addr{ip("10.9.9.9"), ip("fd09::9")}
		addAddrs(t, "lo", own...)
		all := policy.Rule{Action: model.ActionAllow}
		asks := policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		s := settings()
		s.FailsafeInbound = []policy.ProtoPort{{Protocol: model.ProtocolUDP, Port: 68}}
		s.FailsafeOutbound = []policy.ProtoPort{{Protocol: model.ProtocolUDP, Port: 53}}
		f := open(t)
		f.Configure(s)
		f.Update(policy.Changes{Endpoints: endpoints(&policy.Endpoint{Path: "/h", Interface: "far0", Inbound: asks, Outbound: asks}),
			Rules: rules(policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}})})
		mustApply(t, f)
		at := map[int]net.PacketConn{53: far.listen(53), 54: far.listen(54), 68: listen(t, 68), 69: listen(t, 69)}
		for v, a := range own {
			there := far.ep.Addrs[v]
			for _, way := range []struct {
				in       func(func())
				from, to netip.Addr
				open     int
			}{{far.do, there, a, 68}, {here, a, there, 53}} {
				ports := []int{way.open + 1, way.open}
				for _, port := range ports {
					if err := f.Cut([]Cut{{Flow: Flow{Protocol: model.ProtocolUDP, Src: way.from, Dst: way.to, SrcPort: 1000, DstPort: uint16(port)}, Lasts: time.Hour}}); err != nil {
						t.Fatal(err)
					}
				}
				for _, port := range ports {
					way.in(func() {
						c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(way.from, 1000)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(way.to, uint16(port))))
						if err != nil {
							t.Fatal(err)
						}
						defer c.Close()
						if _, err := c.Write([]byte("x")); err != nil && !isPerm(err) {
							t.Error(err)
						}
					})
				}
				if _, _, err := readWithin(at[way.open], make([]byte, 10)); err != nil {
					t.Errorf("to port %d of %s: %v", way.open, way.to, err)
				}
				if waits(t, at[way.open+1]) {
					t.Errorf("port %d of %s is not fail-safe, and was reached", way.open+1, way.to)
				}
			}
		}
	})
}
