// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/model"
)

// What no reader of etcd, kernel or BGP should hand on does no harm.
func TestOddInput(t *testing.T) {
	c := &cluster{pool: model.Pool{}}
	e := newEngine("h0", Settings{RestartTime: -1})
	e.SetLinks(Links{
		Links: []Link{
			{Name: "eth0", Up: true, Uplink: true, Addrs: []netip.Prefix{{}, netip.MustParsePrefix("172.18.0.1/16"), netip.MustParsePrefix("fd18::1/64")}},
			{Name: "vxlan.calico", Up: true, MTU: 100, Uplink: true, Addrs: []netip.Prefix{netip.MustParsePrefix("10.64.0.1/10")}},
		},
		Routes: []HostRoute{{}, {Destination: netip.MustParsePrefix("10.64.0.0/10"), Device: "tunl0"}, {Destination: netip.MustParsePrefix("0.0.0.0/0")}},
	})
	e.Update(c.entries(2)...)
	block := c.block(1, 0)
	wrong := block.Value.(model.Block)
	wrong.Allocations = wrong.Allocations[1:]
	other := c.block(1, 1)
	peer := model.BGPPeerKey{IP: netip.MustParseAddr("172.18.0.99")}
	e.Update(
		model.Entry{Path: "/elsewhere", Revision: 9},
		model.Entry{Path: "/calico/v1/ipam/v4/pool/nonsense", Revision: 9},
		model.Entry{Path: "/calico/v1/ipam/v6/pool/fd00:1::-64", Revision: 9, Value: model.Pool{CIDR: netip.MustParsePrefix("fd00:1::/64")}},
		c.entry(block.Key, wrong),
		c.entry(other.Key, block.Value),
		c.entry(model.BGPMeshKey{}, model.Text("true")),
		c.entry(peer, model.BGPPeer{IP: peer.IP}),
		c.entry(model.BGPHostKey{Host: "h0", Field: model.BGPHostIPv6}, model.Text("fd18::1")),
		c.entry(model.HostMetadataKey{Host: "h1"}, model.HostMetadata{}),
		c.entry(model.BGPHostKey{Host: "h1", Field: model.BGPHostIPv6}, model.Text("fd18::2")),
	)
	peer4, peer6 := hostAddrOf(1), netip.MustParseAddr("fd18::2")
	e.Learn(
		Learned{},
		Learned{netip.MustParsePrefix("10.65.0.1/16"), []Path{{peer4, peer4, 0}}},
		Learned{netip.MustParsePrefix("10.66.0.0/16"), []Path{{netip.Addr{}, peer4, 0}, {hostAddrOf(0), peer4, 0}, {peer6, peer4, 0}, {peer4, netip.Addr{}, 0}}},
		Learned{netip.MustParsePrefix("fd00:1::/80"), []Path{{netip.MustParseAddr("fe80::9%eth0"), peer6, 0}}},
		Learned{netip.MustParsePrefix("fd00:1:0:0:1::/80"), []Path{{netip.MustParseAddr("fe80::9%eth7"), peer6, 0}}},
		Learned{netip.MustParsePrefix("fd00:1:0:0:2::/80"), []Path{{netip.MustParseAddr("fe80::9"), peer6, 0}}},
		Learned{netip.MustParsePrefix("10.67.0.0/16"), []Path{{peer6, peer6, 0}}},
	)
	e.Retain(Route{}, Route{Destination: netip.MustParsePrefix("10.68.0.0/16"), Kind: Blackhole})
	var st State
	st.Apply(e.compute())
	for p, r := range st.Routes {
		if r.Kind == Unicast && p != netip.MustParsePrefix("fd00:1::/80") {
			t.Errorf("%s is routed", r)
		}
	}
	if r := st.Routes[netip.MustParsePrefix("fd00:1::/80")]; r.String() != "fd00:1::/80 via fe80::9 dev eth0 src fd18::1" {
		t.Errorf("by a link-local next hop: %s", r)
	}
	for _, subject := range []string{block.Path, other.Path, model.BGPMeshKey{}.Path(), peer.Path()} {
		if _, ok := st.Problems[ProblemID{BadValue, subject}]; !ok {
			t.Errorf("nothing is said of %s:\n%s", subject, st)
		}
	}
	if st.Speaker.RestartTime != 0 || st.MTU != (mtu{}) {
		t.Errorf("restart time %s, MTU %+v, want none", st.Speaker.RestartTime, st.MTU)
	}
}

// A route that BGP made before a restart stays while nothing better is known.
func TestRetain(t *testing.T) {
	c := &cluster{}
	e := newEngine("h0", Settings{})
	e.SetLinks(benchLinks())
	e.Update(c.entries(3)...)
	l := c.learned(1)[0]
	was := Route{Destination: l.Prefix, Kind: Unicast, Hops: []Hop{{hostAddrOf(7), "eth0", false}}}
	hop := func() string {
		e.told.Apply(e.compute())
		return e.told.Routes[l.Prefix].String()
	}
	e.Retain(was)
	if got := hop(); got != l.Prefix.String()+" via "+hostAddrOf(7).String()+" dev eth0" {
		t.Errorf("retained: %s", got)
	}
	e.Learn(l)
	learned := hop()
	if learned != l.Prefix.String()+" via "+hostAddrOf(1).String()+" dev eth0 src 172.18.0.1" {
		t.Errorf("learned: %s", learned)
	}
	e.Retain()
	if got := hop(); got != learned {
		t.Errorf("no longer retained: %s, want %s", got, learned)
	}
	e.Learn(Learned{Prefix: l.Prefix})
	if hop(); len(e.told.Routes) != blocksPerHost {
		t.Errorf("withdrawn: %s", e.told)
	}
}

// TestReflectorPassword: a reflector follows the password by which its clients have it.
func TestReflectorPassword(t *testing.T) {
	e, w := tellGolden(t, "reflector")
	var st State
	st.Apply(e.compute())
	reflector := netip.MustParseAddr("172.18.203.125")
	for _, step := range []struct{ host, file, want string }{
		{"", "/etc/calico/new", "/etc/calico/three"},
		{"host-3", "/etc/calico/other", "/etc/calico/other"},
		{"host-3", "", ""},
		{"host-3", "-", "/etc/calico/new"}, // it is gone
		{"", "", ""},
	} {
		key := model.BGPPeerKey{Host: step.host, IP: reflector}
		entry := model.Entry{Path: key.Path(), Key: key}
		if step.file != "-" {
			entry.Revision, entry.Created = 99, 9
			entry.Value = model.BGPPeer{IP: reflector, AS: 65001, PasswordFile: step.file}
		}
		w.put(entry)
		e.Update(entry)
		st.Apply(e.compute())
		check(t, w, Settings{}, st)
		if got := st.Neighbours[netip.MustParseAddr("172.18.203.127")].PasswordFile; got != step.want {
			t.Errorf("after %+v: %q", step, got)
		}
	}
}

// TestClusterID: a cluster id is a number; that no host could have it as an address is nothing against it.
func TestClusterID(t *testing.T) {
	e, w := tellGolden(t, "reflector")
	key := model.BGPHostKey{Host: "host-1", Field: model.BGPHostReflector}
	for i, id := range []string{"224.0.0.1", "127.0.0.1", "169.254.0.1", "255.255.255.255"} {
		entry := model.Entry{Path: key.Path(), Key: key, Value: model.Text(id), Revision: int64(90 + i), Created: 9}
		w.put(entry)
		e.Update(entry)
		e.told.Apply(e.compute())
		check(t, w, Settings{}, e.told)
		if got := e.told.Speaker.ClusterID.String(); got != id {
			t.Errorf("%s: host-1 reflects as %s", id, got)
		}
	}
}

// TestTimers: the times that are shown are those that BGP uses, whole seconds.
func TestTimers(t *testing.T) {
	c := &cluster{}
	for want, settings := range map[string]Settings{
		"hold time 4; keepalive time 1; graceful restart time 1;":     {HoldTime: 4 * time.Second, RestartTime: 1900 * time.Millisecond},
		"hold time 3; keepalive time 1; graceful restart time 120;":   {HoldTime: 3500 * time.Millisecond, KeepaliveTime: 1100 * time.Millisecond},
		"hold time 90; keepalive time 30; graceful restart time 120;": {},
	} {
		e := newEngine("h0", settings)
		e.SetLinks(benchLinks())
		e.Update(c.entries(2)...)
		var st State
		st.Apply(e.compute())
		if got := st.Speaker.String(); !strings.Contains(got, want) {
			t.Errorf("%s: want %s", got, want)
		}
	}
}

// Of what neighbours send, only what became a route is used.
func TestUsed(t *testing.T) {
	e, _ := tellGolden(t, "taken-over")
	e.compute()
	want := map[netip.Addr]int{
		netip.MustParseAddr("172.18.203.2"): 2, netip.MustParseAddr("172.18.203.126"): 1, netip.MustParseAddr("172.18.203.127"): 1,
	}
	if diff := cmp.Diff(want, e.Used(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("routes by neighbour (-want +got):\n%s", diff)
	}
}

// TestPendingAddress: an address of another host that a link is given ends no session with
// that host, and no route by it: in a moment the kernel refuses it.
func TestPendingAddress(t *testing.T) {
	e, w := tellGolden(t, "bgp")
	var st State
	st.Apply(e.compute())
	before := st.String()
	theirs := netip.MustParsePrefix("172.18.203.126/24")
	w.links = clone(w.links)
	eth0 := &w.links.Links[len(w.links.Links)-1]
	eth0.Addrs, eth0.Pending = append(eth0.Addrs, theirs), []netip.Addr{theirs.Addr()}
	e.SetLinks(w.links)
	st.Apply(e.compute())
	check(t, w, Settings{}, st)
	if got := st.String(); got != before {
		t.Errorf("pending: %s", got)
	}
	// Whose it is may become known meanwhile, and a third host names it as a next hop.
	l := Learned{netip.MustParsePrefix("10.65.1.0/26"), []Path{{NextHop: theirs.Addr(), Peer: netip.MustParseAddr("172.18.203.127")}}}
	w.learned[l.Prefix] = l.Paths
	e.Learn(l)
	key := model.BGPHostKey{Host: "host-2", Field: model.BGPHostIPv4}
	says := w.entries[key.Path()]
	for _, entry := range []model.Entry{{Path: key.Path(), Key: key}, says} {
		w.put(entry)
		e.Update(entry)
		st.Apply(e.compute())
		check(t, w, Settings{}, st)
	}
	before = st.String()
	w.links = clone(w.links)
	eth0 = &w.links.Links[len(w.links.Links)-1]
	eth0.Addrs, eth0.Pending, eth0.Refused = eth0.Addrs[:1], nil, []netip.Prefix{theirs}
	e.SetLinks(w.links)
	st.Apply(e.compute())
	check(t, w, Settings{}, st)
	if got := st.String(); got != before {
		t.Errorf("refused: %s", got)
	}
}

// TestPassedWithoutCarrier: where the best paths' link has none, worse ones are asked for.
func TestPassedWithoutCarrier(t *testing.T) {
	e, w := tellGolden(t, "bgp")
	for _, step := range []struct {
		silent bool
		want   int
	}{{false, 0}, {true, 1}, {false, 0}} {
		w.links = clone(w.links)
		for i := range w.links.Links {
			w.links.Links[i].NoCarrier = step.silent
		}
		e.SetLinks(w.links)
		e.compute()
		if got := e.Passed(10); len(got) == 0 != (step.want == 0) {
			t.Errorf("without carrier %t: %v", step.silent, got)
		}
	}
}
