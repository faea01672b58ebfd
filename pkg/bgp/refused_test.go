// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/calico-go/calico/pkg/plan"
)

// TestRefusedPrefixes has what a neighbour may send, and when it is noted.
func TestRefusedPrefixes(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	them, us := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")
	s := sessions{log: slog.New(slog.NewTextHandler(&log, nil)), wake: func() {}}
	s.want(plan.Neighbour{Address: them, AS: 65001})
	d := Desired{Speaker: plan.Speaker{AS: 64512, RouterID: us}, Advertisements: make(map[netip.Prefix]plan.Advertisement)}
	for _, p := range []string{"10.1.1.0/26", "fd01:0:0:1::/122"} {
		d.Advertisements[prefix(p)] = plan.Advertisement{Prefix: prefix(p)}
	}
	s.setUs(d)
	originator := func(a netip.Addr) bgp.PathAttributeInterface {
		o, err := bgp.NewPathAttributeOriginatorId(a)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	list := func(prefixes ...string) []bgp.PathNLRI {
		var all []netip.Prefix
		for _, p := range prefixes {
			all = append(all, prefix(p))
		}
		return nlri(t, all...)
	}
	reach, err := bgp.NewPathAttributeMpReachNLRI(bgp.RF_IPv6_UC, list("fd01:0:0:1::/122", "::/0", "fd01::/122"), netip.MustParseAddr("fd00::2"))
	if err != nil {
		t.Fatal(err)
	}
	unreach, err := bgp.NewPathAttributeMpUnreachNLRI(bgp.RF_IPv6_UC, list("fd01:0:0:1::/122", "::/0"))
	if err != nil {
		t.Fatal(err)
	}
	attrs := func(list ...bgp.PathAttributeInterface) []bgp.PathAttributeInterface { return list }
	for _, step := range []struct {
		what                 string
		announced, withdrawn []bgp.PathNLRI
		attrs                []bgp.PathAttributeInterface
		want, warned         int // noted now; reasons logged by now
	}{
		{"others' blocks, and parts of ours", list("10.1.2.0/26", "10.1.1.7/32", "10.1.0.0/16"), nil, attrs(path(65001)), 0, 0},
		{"ours, reflected", list("10.1.1.0/26"), nil, attrs(originator(us)), 0, 0},
		{"ours, from a switch that sends to all", list("10.1.1.0/26"), nil, attrs(path(65001, 64512)), 0, 0},
		{"ours, of another origin", list("10.1.1.0/26"), nil, attrs(originator(them)), 1, 1},
		{"again", list("10.1.1.0/26"), nil, attrs(path(65001)), 1, 1},
		{"a default route", list("0.0.0.0/0"), nil, attrs(path(65001, 65002)), 2, 2},
		{"IPv6", nil, nil, attrs(path(65001), reach), 4, 2},
		{"withdrawn", nil, list("0.0.0.0/0", "10.9.0.0/16"), nil, 3, 2},
		{"IPv6, withdrawn", nil, nil, attrs(unreach), 1, 2},
		{"in place of what was noted, our own", list("10.1.1.0/26"), nil, attrs(path(65001, 64512)), 0, 2},
		{"once more, which is known", list("10.1.1.0/26", "0.0.0.0/0"), nil, attrs(path(65001)), 2, 2},
	} {
		r := slog.NewRecord(time.Time{}, slog.LevelDebug, "received update", 0)
		r.AddAttrs(slog.Any("nlri", step.announced), slog.Any("withdrawals", step.withdrawn), slog.Any("path_attributes", step.attrs))
		s.heard(them, updateOf(r))
		warned := strings.Count(log.String(), `level=WARN msg="BGP neighbour sends a route that is not taken" neighbour=10.0.0.2 as=65001 prefix=`)
		if got := s.status()[0].Refused; got != step.want || warned != step.warned {
			t.Errorf("%s: %d are noted, want %d; %d were logged, want %d", step.what, got, step.want, warned, step.warned)
		}
	}

	// Others' with our number are no alarm either, but said once in a session.
	for range 2 {
		s.heard(them, update{announced: list("10.1.1.0/26", "10.1.3.0/26", "10.1.4.0/26"), attrs: attrs(path(65001, 64512))})
	}
	if got := strings.Count(log.String(), `AS number in their path: they are not taken from it" neighbour=10.0.0.2 as=65001 first=10.1.3.0/26 advice=`); got != 1 {
		t.Errorf("that others' routes have our number was said %d times, want once:\n%s", got, &log)
	}
	s.heard(them, update{announced: list("10.1.1.0/26"), attrs: attrs(path(65001))})

	// What isn't ours any more is nobody's business; a new session begins with nothing.
	delete(d.Advertisements, prefix("10.1.1.0/26"))
	s.setUs(d)
	if got := s.status()[0].Refused; got != 1 {
		t.Errorf("%d are noted after the block was given up, want the default route", got)
	}
	s.begin(them)
	if got := s.status()[0].Refused; got != 0 {
		t.Errorf("%d are noted in a new session", got)
	}

	var many []bgp.PathNLRI
	for i := range 2 * maxNoted {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), 32)
		d.Advertisements[p] = plan.Advertisement{Prefix: p}
		many = append(many, nlri(t, p)...)
	}
	s.setUs(d)
	s.heard(them, update{announced: many})
	if got := s.status()[0].Refused; got != maxNoted {
		t.Errorf("%d are noted, want no more than %d", got, maxNoted)
	}
}

// TestRefusedOnWire sends them, and ends the session.
func TestRefusedOnWire(t *testing.T) {
	t.Parallel()
	a, b, da, _ := pair(t)
	a.has(da, "10.1.1.0/26")
	s := a.start(t)
	s.apply(da)
	w := dial(t, s, a, b)
	s.mustBe("10.0.0.2 established")
	refused := func(want int) {
		t.Helper()
		becomes(t, "refused", want, func() int { return s.peer(b.v4).Refused })
	}
	ours, any := prefix("10.1.1.0/26"), prefix("0.0.0.0/0")
	w.send(bgp.NewBGPUpdateMessage(nil, w.attrs, nlri(t, ours, any, prefix("10.1.2.0/26"))))
	refused(2)
	s.mustLearn("10.1.2.0/26 via 10.0.0.2")
	w.send(bgp.NewBGPUpdateMessage(nlri(t, any), nil, nil))
	refused(1)
	for _, want := range []string{`prefix=10.1.1.0/26 reason="this host`, `prefix=0.0.0.0/0 reason="a default`} {
		becomes(t, "how often the log says "+want, 1, func() int { return strings.Count(s.log.String(), want) })
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	refused(0)
	s.close()
}
