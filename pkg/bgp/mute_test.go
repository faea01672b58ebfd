// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// TestMute has a neighbour that takes connections and doesn't answer, and one that connects and
// says no more than OPEN: the connection is given up within seconds, and the next comes.
func TestMute(t *testing.T) {
	t.Parallel()
	t.Run("takes", func(t *testing.T) {
		t.Parallel()
		a, b, da, _ := twoHosts(t)
		var l net.Listener
		in(t, b.ns, func() (err error) {
			l, err = net.Listen("tcp", netip.AddrPortFrom(b.v4, 179).String())
			return err
		})
		defer l.Close()
		s := a.start(t)
		s.apply(da)
		first, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		second, err := l.Accept() // in 4 minutes, if it were left to the library
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		mustSay(t, s)
	})
	t.Run("connects", func(t *testing.T) {
		t.Parallel()
		a, b, da, _ := twoHosts(t)
		s := a.start(t)
		s.apply(da)
		s.mustBe("10.0.0.2 connecting")
		var conn net.Conn
		in(t, b.ns, func() (err error) {
			conn, err = net.Dial("tcp", netip.AddrPortFrom(a.v4, 179).String())
			return err
		})
		defer conn.Close()
		open, err := bgp.NewBGPOpenMessage(64512, 90, b.v4, nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := open.Serialize()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(data); err != nil {
			t.Fatal(err)
		}
		s.mustBe("10.0.0.2 open-confirm")
		s.mustBe("10.0.0.2 connecting")
		mustSay(t, s)
	})
}

func mustSay(t *testing.T, s *speaker) {
	t.Helper()
	eventually(t, "the reason", true, func() bool { return strings.Contains(s.log.String(), noAnswer) })
	eventually(t, "an error is kept", true, func() bool { return s.peer(netip.MustParseAddr("10.0.0.2")).Error != "" })
}

// TestLateNews has a speaker that isn't told in time that a session is up, as where it has much to
// send: it doesn't take its neighbour for mute.
func TestLateNews(t *testing.T) {
	t.Parallel()
	a, b, da, db := twoHosts(t)
	sa, sb := a.start(t), b.start(t)
	sb.apply(db)
	sa.apply(da)
	sa.mustBe("10.0.0.2 established")
	sb.mustBe("10.0.0.1 established")
	before := sb.look().Status
	if err := sa.ask(order{Do: "doubt", Prefix: netip.PrefixFrom(b.v4, 32)}).Err; err != "" {
		t.Fatal(err)
	}
	b.has(db, "10.1.2.0/26") // the session is of use still
	sb.apply(db)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2")
	sameSessions(t, before, sb.look().Status)
}

// TestLeaveAndReturn has a neighbour go and come back at once, again and again: no connection
// stays open that nobody reads, which the other side would take for a mute neighbour.
func TestLeaveAndReturn(t *testing.T) {
	t.Parallel()
	a, b, da, db := twoHosts(t)
	alone := a.desired()
	b.has(db, "10.1.2.0/26")
	sa, sb := a.start(t), b.start(t)
	sb.apply(db)
	for range 4 {
		for range 5 {
			sa.apply(da)
			sa.apply(alone)
		}
		sa.mustLearn()
		sa.apply(da)
		sa.mustLearn("10.1.2.0/26 via 10.0.0.2")
		sb.mustBe("10.0.0.1 established")
	}
	for _, s := range []*speaker{sa, sb} {
		if strings.Contains(s.log.String(), noAnswer) {
			t.Errorf("%s waited for an answer:\n%s", s.name, s.log)
		}
		s.close()
	}
}
