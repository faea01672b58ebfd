// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/calico-go/calico/pkg/plan"
)

// TestReturned: some paths have been here, others haven't.
func TestReturned(t *testing.T) {
	t.Parallel()
	us, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")
	r := &running{speaker: plan.Speaker{AS: 64512, RouterID: us}}
	originator := func(a netip.Addr) bgp.PathAttributeInterface {
		o, err := bgp.NewPathAttributeOriginatorId(a)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for what, c := range map[string]struct {
		attrs []bgp.PathAttributeInterface
		want  bool
	}{
		"nothing":             {nil, false},
		"reflected":           {[]bgp.PathAttributeInterface{path(65001), originator(us)}, true},
		"reflected of others": {[]bgp.PathAttributeInterface{path(65001), originator(other)}, false},
		"by way of our AS":    {[]bgp.PathAttributeInterface{path(65001, 64512)}, true},
	} {
		if got := r.returned(c.attrs); got != c.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}

// TestRefusedOnWire sends refused prefixes, and ends the session.
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
	// A path that has been here is fine if it is ours.
	ofOurs := []bgp.PathAttributeInterface{w.attrs[0], path(65001, 64512), w.attrs[2]}
	w.send(bgp.NewBGPUpdateMessage(nil, ofOurs, nlri(t, ours)))
	refused(0)
	if strings.Contains(s.log.String(), "AS number in their path") {
		t.Errorf("an alarm for what is ours:\n%s", s.log)
	}
	w.send(bgp.NewBGPUpdateMessage(nil, ofOurs, nlri(t, prefix("10.1.3.0/26"))))
	becomes(t, "how often the log says that others' routes have our number", 1, func() int {
		return strings.Count(s.log.String(), `AS number in their path: they are not taken from it" neighbour=10.0.0.2 as=65001 routes=1 advice=`)
	})
	w.send(bgp.NewBGPUpdateMessage(nil, w.attrs, nlri(t, ours)))
	refused(1)
	// A prefix that is no longer ours doesn't matter.
	delete(da.Advertisements, ours)
	s.apply(da)
	refused(0)
	a.has(da, "10.1.1.0/26")
	s.apply(da)
	w.send(bgp.NewBGPUpdateMessage(nil, w.attrs, nlri(t, ours)))
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
