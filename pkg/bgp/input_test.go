// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

func TestReadPassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", maxPassword)
	for _, c := range []struct{ path, want, err string }{
		{file("plain", "secret"), "secret", ""},
		{file("line", "se cret\r\n"), "se cret", ""},
		{file("longest", long+"\n"), long, ""},
		{file("too-long", long+"x"), "", "at most 80 bytes"},
		{file("huge", strings.Repeat(long, 1000)), "", "at most 80 bytes"},
		{file("empty", "\n"), "", "is empty"},
		{file("lines", "a\nb\n"), "", "want one line"},
		{filepath.Join(dir, "missing"), "", "create it"},
		{dir, "", "want a regular file"},
		{fifo, "", "want a regular file"},
	} {
		got, err := readPassword(c.path)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; want %q, %q", filepath.Base(c.path), got, err, c.want, c.err)
		}
		if err != nil && strings.Contains(err.Error(), "xxx") {
			t.Errorf("the error quotes the password: %v", err)
		}
	}
}

// TestPeerPort: a peer's own port takes precedence over that of the hosts, which takes precedence over 179.
func TestPeerPort(t *testing.T) {
	t.Parallel()
	us, them := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	for _, c := range []struct {
		listen uint16
		host   string
		port   int
		want   uint16
	}{
		{1179, "", 0, 179}, {1179, "b", 0, 1179}, {1179, "", 1790, 1790}, {1179, "b", 1790, 1790}, {1179, "b", 179, 179}, {0, "b", 0, 179},
	} {
		n := plan.Neighbour{Address: them, AS: 64512, Local: us, Host: c.host, Options: model.PeerOptions{Port: c.port}}
		s, err := newSession(plan.Speaker{ListenPort: c.listen}, n)
		if err != nil || s.peer(false).Transport.RemotePort != uint32(c.want) {
			t.Errorf("%+v: %d, %v", c, s.port, err)
		}
	}
}

// TestRefused: each impossible setting is named in the error, nothing panics, and the rest is done.
func TestRefused(t *testing.T) {
	t.Parallel()
	us, them := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	good := plan.Speaker{
		AS: 64512, RouterID: us, Listen: []netip.Addr{us}, ListenPort: 1790,
		HoldTime: 90 * time.Second, KeepaliveTime: 30 * time.Second,
	}
	sound := plan.Neighbour{Address: them, AS: 64512, Local: us}
	for name, c := range map[string]struct {
		change func(*Desired)
		want   string
	}{
		"router id":      {func(d *Desired) { d.Speaker.RouterID = netip.Addr{} }, "router id"},
		"router id v6":   {func(d *Desired) { d.Speaker.RouterID = netip.IPv6Loopback() }, "router id"},
		"hold time":      {func(d *Desired) { d.Speaker.HoldTime = time.Second }, "hold time"},
		"keepalive time": {func(d *Desired) { d.Speaker.KeepaliveTime = time.Hour }, "keepalive time"},
		"port":           {func(d *Desired) { d.Speaker.ListenPort = 0 }, "no port"},
		"listen":         {func(d *Desired) { d.Speaker.Listen = []netip.Addr{{}} }, "listen"},
		"cluster id":     {func(d *Desired) { d.Speaker.ClusterID = netip.IPv6Loopback() }, "cluster id"},
		"import":         {func(d *Desired) { d.Speaker.Import = []netip.Prefix{{}} }, "no prefix"},
	} {
		d := Desired{Speaker: good}
		c.change(&d)
		s := New(Config{})
		if err := s.Apply(t.Context(), d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error about %q", name, err, c.want)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		change func(*plan.Neighbour)
		want   string
	}{
		"no address":   {func(n *plan.Neighbour) { n.Address = netip.Addr{} }, "address"},
		"zone":         {func(n *plan.Neighbour) { n.Address = netip.MustParseAddr("fe80::1%lo") }, "zone"},
		"mapped":       {func(n *plan.Neighbour) { n.Address = netip.MustParseAddr("::ffff:10.0.0.1") }, "address"},
		"other family": {func(n *plan.Neighbour) { n.Local = netip.IPv6Loopback() }, "family"},
		"itself":       {func(n *plan.Neighbour) { n.Address = n.Local }, "this host"},
		"no AS":        {func(n *plan.Neighbour) { n.AS = 0 }, "AS number"},
		"hops":         {func(n *plan.Neighbour) { n.Multihop = 256 }, "0 to 255"},
		"limit":        {func(n *plan.Neighbour) { n.MaxPrefixes = -1 }, "prefixes"},
		"client":       {func(n *plan.Neighbour) { n.Client = true }, "cluster id"},
		"password":     {func(n *plan.Neighbour) { n.PasswordFile = "/nonexistent" }, "password_file"},
	} {
		n := sound
		c.change(&n)
		if _, err := newSession(good, n); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error about %q", name, err, c.want)
		}
	}
	for _, a := range []plan.Advertisement{
		{},
		{Prefix: netip.MustParsePrefix("10.0.0.1/8"), NextHop: us},
		{Prefix: netip.MustParsePrefix("10.0.0.0/8")},
		{Prefix: netip.MustParsePrefix("10.0.0.0/8"), NextHop: netip.IPv6Loopback()},
	} {
		if p, err := pathOf(a); err == nil {
			t.Errorf("%v is taken: %v", a, p)
		}
	}
}

// TestRest: valid settings beside invalid ones take effect.
func TestRest(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	a, b, c := f.host(t, 1), f.host(t, 2), f.host(t, 3)
	da, db := a.desired(), b.desired()
	a.meets(da, b)
	b.meets(db, a)
	n := a.meets(da, c)
	n.PasswordFile = "/nonexistent"
	da.Neighbours[c.v4] = n
	a.has(da, "10.1.1.0/26")
	bad := prefix("10.1.1.64/26")
	da.Advertisements[bad] = plan.Advertisement{Prefix: bad}
	sa, sb := a.start(t), b.start(t)
	sb.apply(db)
	got := sa.ask(order{Do: "apply", Desired: da}).Err
	for _, want := range []string{"10.0.0.3: password_file: open /nonexistent", "advertise 10.1.1.64/26: "} {
		if !strings.Contains(got, want) {
			t.Errorf("Apply says %q, not %q", got, want)
		}
	}
	sb.mustLearn("10.1.1.0/26 via 10.0.0.1")
	sa.mustBe("10.0.0.2 established", "10.0.0.3 refused")
}

// An unreadable password is logged once and stays the reason, however often the old password is tried.
func TestMistakeInSettings(t *testing.T) {
	var log strings.Builder
	s := &sessions{log: slog.New(slog.NewTextHandler(&log, nil)), wake: func() {}}
	a := netip.MustParseAddr("10.0.0.2")
	s.setNeighbours(Desired{Neighbours: map[netip.Addr]plan.Neighbour{a: {Address: a, PasswordFile: "/missing"}}})
	for range 3 {
		s.judge(a, errors.New("password_file: open /missing: no such file"))
		s.fail(a, "connect: i/o timeout")
	}
	if got := s.status()[0]; got.Trouble != troublePassword || !strings.Contains(got.Error, "no such file") || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("trouble %q, error %q, log:\n%s", got.Trouble, got.Error, &log)
	}
	s.judge(a, nil)
	s.fail(a, "connect: connection refused")
	if got := s.status()[0]; got.Trouble != troubleOther || got.Error != "connect: connection refused" {
		t.Errorf("corrected: trouble %q, error %q", got.Trouble, got.Error)
	}
}

// TestFarNeighbour: neighbours don't answer. If one hop would be too few, the error says what to set.
func TestFarNeighbour(t *testing.T) {
	for name, c := range map[string]struct {
		neighbour plan.Neighbour
		text      string
		advice    bool
		trouble   Trouble
	}{
		"of another AS":             {plan.Neighbour{AS: 65010}, "connect: no route to host", true, troubleOther},
		"in time":                   {plan.Neighbour{AS: 65010}, "connect: i/o timeout", true, troubleOther},
		"mute":                      {plan.Neighbour{AS: 65010}, noAnswer, true, troubleNoAnswer},
		"one hop":                   {plan.Neighbour{AS: 65010, Multihop: 1}, noAnswer, true, troubleNoAnswer},
		"two hops":                  {plan.Neighbour{AS: 65010, Multihop: 2}, noAnswer, false, troubleNoAnswer},
		"of the same AS":            {plan.Neighbour{AS: 64512}, "connect: no route to host", false, troubleOther},
		"nobody listens":            {plan.Neighbour{AS: 65010}, "connect: connection refused", false, troubleOther},
		"it is there, and its word": {plan.Neighbour{AS: 65010}, wrongAS, false, troubleAS},
	} {
		s := &sessions{log: slog.New(slog.DiscardHandler), wake: func() {}}
		c.neighbour.Address = netip.MustParseAddr("10.0.0.2")
		s.setNeighbours(Desired{Speaker: plan.Speaker{AS: 64512}, Neighbours: map[netip.Addr]plan.Neighbour{c.neighbour.Address: c.neighbour}})
		s.fail(c.neighbour.Address, c.text)
		got := s.status()[0]
		if strings.HasSuffix(got.Error, nearAdvice) != c.advice || got.Trouble != c.trouble {
			t.Errorf("%s: trouble %q, error %q", name, got.Trouble, got.Error)
		}
	}
}

// TestListenInUse: another daemon has the port.
func TestListenInUse(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	h := f.host(t, 1)
	first, second := h.start(t), h.start(t)
	first.apply(h.desired())
	if got := second.ask(order{Do: "apply", Desired: h.desired()}).Err; !strings.Contains(got, "listen for BGP: ") || !strings.Contains(got, "address already in use") ||
		!strings.Contains(got, "`ss -ltnp 'sport = :179'`") {
		t.Errorf("Apply says %q", got)
	}
	first.apply(Desired{})
	second.apply(h.desired())
	second.close()
}

func TestLibraryLog(t *testing.T) {
	t.Parallel()
	var out, failed bytes.Buffer
	plain := func(to io.Writer) *slog.Logger {
		return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	}
	second, third := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	s := &sessions{log: plain(&failed), wake: func() {}}
	s.setNeighbours(Desired{Neighbours: map[netip.Addr]plan.Neighbour{second: {Address: second, AS: 65001}, third: {Address: third, AS: 65001}}})
	l := slog.New(&libraryLog{Handler: plain(&out).Handler(), sessions: s})
	of := l.With("Topic", "Peer", "Key", "10.0.0.2")
	of.Debug("failed to connect", "Error", "dial tcp 10.0.0.1:0->10.0.0.2:179: connect: connection refused")
	of.Info("sent notification", "Code", bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, "Subcode", bgp.BGP_ERROR_SUB_BAD_PEER_AS)
	of.Info("sent notification", "Code", bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, "Subcode", 0)
	of.Info("sent notification", "Code", bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, "Subcode", bgp.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER)
	of.Info("sent notification", "Code", "x")
	of.Warn("Session will be reset due to malformed BGP update message", "Error", "a lie")
	l.Warn("failed to set md5", "Key", "10.0.0.3", "Err", "no such device")
	l.Error("what nobody expects", "State", "x")
	of.Debug("received update")
	l.Error("failed to stop BGP server", "Topic", "BgpServer", "Error", "bgp server hasn't started yet") // each time
	s.update(second, func(e *sessionState) { e.state = Established })
	of.Info("sent notification", "Code", bgp.BGP_ERROR_CEASE, "Subcode", 0) // which comes with an event
	line := func(of, text string) string {
		return "level=WARN msg=\"BGP session failed\" neighbour=" + of + " as=65001 error=\"" + text + "\"\n"
	}
	if diff := cmp.Diff(line("10.0.0.2", "connect: connection refused")+
		line("10.0.0.2", "it is not in AS 65001, which is set for it: correct it here, or there")+
		line("10.0.0.2", noAnswer+nearAdvice)+
		line("10.0.0.2", "we ended the session: code 2(open) subcode 3(bad bgp identifier)")+
		line("10.0.0.2", "it sent what is no BGP message: a lie")+
		line("10.0.0.3", "set the password of its connections: no such device"), failed.String()); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	if s.get(second).lookAt.IsZero() {
		t.Error("what it sent isn't looked at")
	}
	if diff := cmp.Diff("level=WARN msg=\"BGP library\" text=\"what nobody expects\" State=x\n", out.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// TestEnded: sessions end for each reason that events give.
func TestEnded(t *testing.T) {
	t.Parallel()
	for why, want := range map[api.PeerState_DisconnectReason]string{
		api.PeerState_DISCONNECT_REASON_NOTIFICATION_RECEIVED: "the neighbour ended the session: code 6(cease) subcode 4(administrative reset)",
		api.PeerState_DISCONNECT_REASON_NOTIFICATION_SENT:     "we ended the session: code 3(update message error) subcode 1(malformed attribute list)",
		api.PeerState_DISCONNECT_REASON_ADMIN_DOWN:            "we ended the session: code 6(cease) subcode 2(administrative shutdown)",
		api.PeerState_DISCONNECT_REASON_READ_FAILED:           "the connection broke",
		api.PeerState_DISCONNECT_REASON_UNSPECIFIED:           "",
	} {
		message := map[api.PeerState_DisconnectReason]string{
			api.PeerState_DISCONNECT_REASON_NOTIFICATION_RECEIVED: "notification-received code 6(cease) subcode 4(administrative reset)",
			api.PeerState_DISCONNECT_REASON_NOTIFICATION_SENT:     "notification-sent code 3(update message error) subcode 1(malformed attribute list)",
		}[why]
		if got := ended(apiutil.PeerState{DisconnectReason: why, DisconnectMessage: message}); got != want {
			t.Errorf("%s: %q, want %q", why, got, want)
		}
	}
}

// TestClosed: a closed speaker gets orders.
func TestClosed(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	for range 2 {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := s.Apply(context.Background(), Desired{}); err == nil {
		t.Error("a closed speaker takes orders")
	}
	if got, err := s.Status(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("status: %v, %v", got, err)
	}
}
