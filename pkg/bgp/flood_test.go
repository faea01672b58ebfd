// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/long"
)

// wire is a neighbour in AS 65001 whose messages the test writes.
type wire struct {
	net.Conn
	t     *testing.T
	heard chan struct{} // closed when it was cut off
	err   error         // of the first message that couldn't be sent
	attrs []bgp.PathAttributeInterface
}

// dial opens a session from b's host to a's speaker, which refuses connections at first. The session has no hold time, as
// nothing here keeps it alive.
func dial(t *testing.T, s *speaker, a, b *host) *wire {
	t.Helper()
	s.mustBe(b.v4.String() + " connecting")
	w := &wire{t: t, heard: make(chan struct{})}
	in(t, b.ns, func() (err error) {
		w.Conn, err = net.Dial("tcp", netip.AddrPortFrom(a.v4, 179).String())
		return err
	})
	t.Cleanup(func() { _ = w.Close() })
	go func() {
		defer close(w.heard)
		_, _ = io.Copy(io.Discard, w) // until it is cut off
	}()
	open, err := bgp.NewBGPOpenMessage(65001, 0, b.v4, []bgp.OptionParameterInterface{bgp.NewOptionParameterCapability([]bgp.ParameterCapabilityInterface{
		bgp.NewCapMultiProtocol(bgp.RF_IPv4_UC), bgp.NewCapFourOctetASNumber(65001),
	})})
	if err != nil {
		t.Fatal(err)
	}
	w.send(open)
	w.send(bgp.NewBGPKeepAliveMessage())
	hop, err := bgp.NewPathAttributeNextHop(b.v4)
	if err != nil {
		t.Fatal(err)
	}
	w.attrs = []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP), path(65001), hop}
	return w
}

func path(as ...uint32) bgp.PathAttributeInterface {
	return bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, as)})
}

// send sends a message, unless the connection was cut off.
func (w *wire) send(m *bgp.BGPMessage) {
	w.t.Helper()
	data, err := m.Serialize()
	if err != nil {
		w.t.Fatal(err)
	}
	if w.err == nil {
		_, w.err = w.Write(data)
	}
}

func (w *wire) mustBeCutOff() {
	w.t.Helper()
	eventually.Receive(w.t, "its connection to be cut off", w.heard)
}

func nlri(t testing.TB, prefixes ...netip.Prefix) (list []bgp.PathNLRI) {
	t.Helper()
	for _, p := range prefixes {
		n, err := bgp.NewIPAddrPrefix(p)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, bgp.PathNLRI{NLRI: n})
	}
	return list
}

// flood sends n prefixes, as many as each in one message.
func (w *wire) flood(n, each int) {
	w.t.Helper()
	var list []netip.Prefix
	for i := range n {
		a := [4]byte{10, 1}
		binary.BigEndian.PutUint32(a[:], 10<<24+uint32(i))
		list = append(list, netip.PrefixFrom(netip.AddrFrom4(a), 32))
		if len(list) == each || i == n-1 {
			w.send(bgp.NewBGPUpdateMessage(nil, w.attrs, nlri(w.t, list...)))
			list = nil
		}
	}
}

// TestFloodOnWire: a neighbour sends more prefixes than it may, one per message, which costs us most, and as many as fit,
// which arrive while it is being cut off. They are accepted, and none stays.
func TestFloodOnWire(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		limit, each int
		rounds      int
	}{{"singly", 10000, 1, 1}, {"by hundreds", 5000, 700, 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for round := range c.rounds {
				a, b, da, _ := pair(t)
				n := da.Neighbours[b.v4]
				n.MaxPrefixes = c.limit
				n.Import = filterList("accept 10.0.0.0/8")
				da.Neighbours[b.v4] = n
				s := a.start(t)
				s.apply(da)
				w := dial(t, s, a, b)
				s.mustBe("10.0.0.2 established")
				w.flood(50000, c.each)
				s.mustBe("10.0.0.2 flooded")
				w.mustBeCutOff()
				// Begin again with another limit, which gives messages in flight the time to arrive.
				n.MaxPrefixes += round + 1
				da.Neighbours[b.v4] = n
				s.apply(da)
				s.mustBe("10.0.0.2 connecting")
				s.mustLearn()
				s.close()
			}
		})
	}
}

// TestFloodPassword: another password in the file doesn't end a flooding neighbour's pause; it is used afterwards.
func TestFloodPassword(t *testing.T) {
	long.Test(t)
	t.Parallel()
	a, b, da, db := pair(t)
	b.has(db, "10.1.2.0/26")
	b.has(db, "10.1.3.0/26")
	file := passwordFile(t, "former")
	na, nb := da.Neighbours[b.v4], db.Neighbours[a.v4]
	na.PasswordFile, na.MaxPrefixes, nb.PasswordFile = file, 1, passwordFile(t, "former")
	da.Neighbours[b.v4], db.Neighbours[a.v4] = na, nb
	sa, sb := a.start(t), b.start(t)
	sa.apply(da)
	sb.apply(db)
	sa.mustBe("10.0.0.2 flooded")
	sb.mustBe("10.0.0.1 connecting") // it is cut off
	for _, f := range []string{file, nb.PasswordFile} {
		if err := os.WriteFile(f, []byte("latter"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sb.apply(db)
	sa.apply(da)
	if got := sa.states(); len(got) != 1 || got[0] != "10.0.0.2 flooded" {
		t.Errorf("after another password: %s", got)
	}
	na.MaxPrefixes = 2
	da.Neighbours[b.v4] = na
	sa.apply(da)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2", "10.1.3.0/26 via 10.0.0.2")
}
