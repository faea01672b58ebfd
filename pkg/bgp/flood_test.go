// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// TestFloodSingly has a neighbour send many prefixes, one with each message, which is as costly
// as it can make it.
func TestFloodSingly(t *testing.T) {
	t.Parallel()
	a, b, da, _ := pair(t)
	n := da.Neighbours[b.v4]
	n.MaxPrefixes = 20000
	da.Neighbours[b.v4] = n
	s := a.start(t)
	s.apply(da)
	var conn net.Conn
	in(t, b.ns, func() (err error) {
		conn, err = net.Dial("tcp", netip.AddrPortFrom(a.v4, 179).String())
		return err
	})
	defer conn.Close()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		_, _ = io.Copy(io.Discard, conn) // until it is cut off
	}()
	var open error
	send := func(m *bgp.BGPMessage) {
		data, err := m.Serialize()
		if err != nil {
			t.Fatal(err)
		}
		if open == nil {
			_, open = conn.Write(data)
		}
	}
	hello, err := bgp.NewBGPOpenMessage(65001, 90, b.v4, []bgp.OptionParameterInterface{bgp.NewOptionParameterCapability([]bgp.ParameterCapabilityInterface{
		bgp.NewCapMultiProtocol(bgp.RF_IPv4_UC), bgp.NewCapFourOctetASNumber(65001),
	})})
	if err != nil {
		t.Fatal(err)
	}
	send(hello)
	send(bgp.NewBGPKeepAliveMessage())
	s.mustBe("10.0.0.2 established")
	hop, err := bgp.NewPathAttributeNextHop(b.v4)
	if err != nil {
		t.Fatal(err)
	}
	attrs := []bgp.PathAttributeInterface{
		bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP),
		bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{65001})}),
		hop,
	}
	for i := range 100000 {
		nlri, err := bgp.NewIPAddrPrefix(netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
		if err != nil {
			t.Fatal(err)
		}
		send(bgp.NewBGPUpdateMessage(nil, attrs, []bgp.PathNLRI{{NLRI: nlri}}))
	}
	s.mustBe("10.0.0.2 flooded")
	<-heard
	s.mustLearn()
}
