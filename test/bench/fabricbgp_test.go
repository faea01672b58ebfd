// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// TestBGPMessages has the library that the agent has read what is made here by hand.
func TestBGPMessages(t *testing.T) {
	hop := netip.MustParseAddr("172.20.100.1")
	blocks := []netip.Prefix{netip.MustParsePrefix("10.0.0.64/26"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.0.0.7/32")}
	for _, c := range []struct {
		name            string
		message         []byte
		announced, gone []string
		attributes      []string
	}{
		{"announcement", announcement(hop, blocks...), []string{"10.0.0.64/26", "10.1.0.0/16", "10.0.0.7/32"}, nil,
			[]string{"{Origin: i}", "{AsPath: }", "{Nexthop: 172.20.100.1}", "{LocalPref: 100}"}},
		{"withdrawal", withdrawal(blocks[:2]...), nil, []string{"10.0.0.64/26", "10.1.0.0/16"}, nil},
		{"end of all", withdrawal(), nil, nil, nil},
	} {
		m, err := bgp.ParseBGPMessage(c.message)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		u := m.Body.(*bgp.BGPUpdate)
		var attributes []string
		for _, a := range u.PathAttributes {
			attributes = append(attributes, a.String())
		}
		got := [][]string{texts(u.NLRI), texts(u.WithdrawnRoutes), attributes}
		if diff := cmp.Diff([][]string{c.announced, c.gone, c.attributes}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if end, _ := u.IsEndOfRib(); end != (c.name == "end of all") {
			t.Errorf("%s: end of all that a neighbour has: %v", c.name, end)
		}
	}
	m, err := bgp.ParseBGPMessage(openOf(hop))
	if err != nil {
		t.Fatal(err)
	}
	open := m.Body.(*bgp.BGPOpen)
	as, err := bgp.ValidateOpenMsg(open, bgpAS, bgpAS, netip.MustParseAddr("172.20.1.1"))
	if err != nil || as != bgpAS || open.HoldTime != bgpHold || open.ID != hop {
		t.Errorf("open: AS %d, %v: %+v", as, err, open)
	}
}

func texts(list []bgp.PathNLRI) (all []string) {
	for _, n := range list {
		all = append(all, n.NLRI.String())
	}
	return all
}

// TestReadBGP has messages that are none.
func TestReadBGP(t *testing.T) {
	good := bgpMessage(bgpKeepalive, nil)
	short, long := slices.Clone(good), slices.Clone(good)
	short[17], long[16] = bgpHeader-1, 0xff
	for name, data := range map[string][]byte{"nothing": nil, "half a header": good[:10], "too short": short, "too long": long, "cut off": openOf(netip.IPv4Unspecified())[:25]} {
		if _, _, err := readBGP(bytes.NewReader(data), make([]byte, bgpMost)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if kind, body, err := readBGP(bytes.NewReader(good), make([]byte, bgpMost)); kind != bgpKeepalive || len(body) != 0 || err != nil {
		t.Errorf("a good one: type %d, % x, %v", kind, body, err)
	}
}

// TestNeighbour holds a session with a neighbour.
func TestNeighbour(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	n := &neighbour{addr: netip.MustParseAddr("172.20.100.1"), prefixes: map[netip.Prefix]bool{}, conn: b}
	first, second := netip.MustParsePrefix("10.0.0.0/26"), netip.MustParsePrefix("10.0.0.64/26")
	if err := n.set(first, true); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.session(b) }()
	say := func(m []byte) {
		t.Helper()
		if _, err := a.Write(m); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want []byte) {
		t.Helper()
		got := make([]byte, bgpMost)
		kind, body, err := readBGP(a, got)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, bgpMessage(kind, body)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	set := func(p netip.Prefix, there bool) {
		go func() {
			if err := n.set(p, there); err != nil {
				t.Error(err)
			}
		}()
	}
	say(openOf(netip.MustParseAddr("172.20.1.1")))
	hear(openOf(n.addr))
	hear(bgpMessage(bgpKeepalive, nil))
	say(bgpMessage(bgpKeepalive, nil))
	hear(announcement(n.addr, first))
	hear(withdrawal())
	set(second, true)
	hear(announcement(n.addr, second))
	set(first, false)
	hear(withdrawal(first))
	set(first, false) // it isn't said twice
	say(bgpMessage(bgpKeepalive, nil))
	say(bgpMessage(bgpNotification, []byte{6, 2}))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "06 02") {
		t.Errorf("it ended with %v", err)
	}
	if n.up || n.conn != nil {
		t.Errorf("after its end: %+v", n)
	}
}
