// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/long"
)

// TestMute: a neighbour connects and sends only OPEN. We give up the connection within seconds.
func TestMute(t *testing.T) {
	t.Parallel()
	a, b, da, _ := twoHosts(t)
	s := a.start(t)
	s.apply(da)
	s.mustBe("10.0.0.2 connecting")
	open, err := bgp.NewBGPOpenMessage(64512, 90, b.v4, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := open.Serialize()
	if err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	in(t, b.ns, func() (err error) {
		if conn, err = net.Dial("tcp", netip.AddrPortFrom(a.v4, 179).String()); err == nil {
			_, err = conn.Write(data)
		}
		return err
	})
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(eventually.Limit)); err != nil {
		t.Fatal(err)
	}
	// We answer, are in open-confirm, and give up there.
	if diff := cmp.Diff([]byte{bgp.BGP_MSG_OPEN, bgp.BGP_MSG_KEEPALIVE}, kindsOf(conn)); diff != "" {
		t.Errorf("messages until it was cut off (-want +got):\n%s", diff)
	}
	s.mustBe("10.0.0.2 connecting")
	mustSay(t, s)
}

// kindsOf reads messages until there are no more.
func kindsOf(conn net.Conn) (kinds []byte) {
	for {
		header := make([]byte, bgp.BGP_HEADER_LENGTH)
		if _, err := io.ReadFull(conn, header); err != nil {
			return kinds
		}
		kinds = append(kinds, header[18])
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint16(header[16:]))-bgp.BGP_HEADER_LENGTH); err != nil {
			return kinds
		}
	}
}

func mustSay(t *testing.T, s *speaker) {
	t.Helper()
	becomes(t, "the reason", true, func() bool { return strings.Contains(s.log.String(), noAnswer) })
	becomes(t, "an error is kept", true, func() bool { return s.peer(netip.MustParseAddr("10.0.0.2")).Error != "" })
}

// TestMuteListener: a neighbour accepts connections and doesn't answer. We give up each within seconds, not gobgp's 4 minutes.
func TestMuteListener(t *testing.T) {
	t.Parallel()
	a, b, da, _ := twoHosts(t)
	var l net.Listener
	in(t, b.ns, func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(b.v4, 179).String())
		return err
	})
	defer l.Close()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(eventually.Limit)); err != nil {
		t.Fatal(err)
	}
	s := a.start(t)
	s.apply(da)
	for range 2 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	mustSay(t, s)
}

// TestLateNews: a speaker learns late that a session is up, as when it has much to send. It doesn't take its neighbour for
// mute.
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

// TestLeaveAndReturn: a neighbour goes and comes back at once, again and again. No connection stays open unread, which the
// other side would take for a mute neighbour.
func TestLeaveAndReturn(t *testing.T) {
	long.Test(t)
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

// TestCloses: a neighbour accepts connections and closes them, at once or after our OPEN, as routers do with unknown hosts.
func TestCloses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		take func(net.Conn) error
	}{
		{"at once", func(net.Conn) error { return nil }},
		{"when it has read", func(conn net.Conn) error {
			header := make([]byte, bgp.BGP_HEADER_LENGTH)
			if _, err := io.ReadFull(conn, header); err != nil {
				return err
			}
			_, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint16(header[16:]))-bgp.BGP_HEADER_LENGTH)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b, da, db := twoHosts(t)
			var l net.Listener
			in(t, b.ns, func() (err error) {
				l, err = net.Listen("tcp", netip.AddrPortFrom(b.v4, 179).String())
				return err
			})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					if err := c.take(conn); err != nil {
						t.Error(err)
					}
					if err := conn.Close(); err != nil {
						t.Error(err)
					}
				}
			}()
			s := a.start(t)
			s.apply(da)
			want := "it closes the connection: is 10.0.0.1 with AS 64512 set as its neighbour there?"
			becomes(t, "the error", want, func() string { return s.peer(b.v4).Error })
			if got := s.peer(b.v4).Trouble; got != troubleOther {
				t.Errorf("trouble %q", got)
			}
			becomes(t, "the log", 1, func() int { return strings.Count(s.log.String(), want) })
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			<-ended
			sb := b.start(t)
			sb.applied(db)
			s.mustBe("10.0.0.2 established")
		})
	}
}

// TestClosings: connections are closed among other events. It is reported only after many closings in a row, and not if a
// better reason is known.
func TestClosings(t *testing.T) {
	t.Parallel()
	const (
		closes = "it closes"
		down   = "connect: connection refused"
	)
	a := netip.MustParseAddr("10.0.0.2")
	for name, c := range map[string]struct {
		what []string // "" = it closes many connections, but one
		want string   // how the error begins
	}{
		"again and again":       {[]string{"", "close"}, closes},
		"some":                  {[]string{""}, ""},
		"down between":          {[]string{"", down, "", down}, down},
		"then down":             {[]string{"", "close", down}, down},
		"begun anew between":    {[]string{"", "begin", ""}, ""},
		"with a reason":         {[]string{refused, "", refused, ""}, refused},
		"with a reason of once": {[]string{refused, "", "close", "close"}, closes},
		"of a session":          {[]string{"up", "", "close"}, ""},
	} {
		s := sessions{log: slog.New(slog.NewTextHandler(t.Output(), nil)), wake: func() {}}
		s.setNeighbours(Desired{Neighbours: map[netip.Addr]plan.Neighbour{a: {Address: a, AS: 64512}}})
		for _, what := range c.what {
			switch what {
			case "":
				for range tooManyCloses - 1 {
					s.update(a, s.closed)
				}
			case "close":
				s.update(a, s.closed)
			case "begin":
				s.begin(a)
			case "up":
				s.update(a, func(e *sessionState) { e.state = Established })
			default:
				s.fail(a, what)
			}
		}
		if got := s.status()[0].Error; !strings.HasPrefix(got, c.want) || got != "" && c.want == "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
