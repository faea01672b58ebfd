// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// finder is an identity that only finds, with a clock.
type finder struct {
	*Host
	clock time.Time
	note  note
}

func newFinder(t *testing.T, method4 string) *finder {
	f := &finder{clock: time.Unix(0, 0)}
	f.Host = &Host{host: "a", methods: chosenMethods([2]plan.Method{method(t, 0, method4)}), now: func() time.Time { return f.clock },
		members: func() []netip.Addr { return nil }}
	return f
}

// see finds addresses on these links, after a while, and adopts them.
func (f *finder) see(after time.Duration, links plan.Links) finding {
	f.clock = f.clock.Add(after)
	f.note.links, f.note.sight = links, f.note.sight+1
	found := f.find(context.Background(), f.note)
	f.note.own = found.own
	return found
}

// down sets the first link down.
func down(l plan.Links) plan.Links {
	l.Links[0].Up = false
	return l
}

// both returns two links, the first of them down unless firstUp.
func both(firstUp bool) plan.Links {
	l := eth0("172.18.0.1/24")
	l.Links[0].Up = firstUp
	l.Links = append(l.Links, plan.Link{Name: "eth1", Up: true, Addrs: []netip.Prefix{netip.MustParsePrefix("172.19.0.1/24")}})
	return l
}

// bare removes the first link's addresses.
func bare(l plan.Links) plan.Links {
	l.Links[0].Addrs = nil
	return l
}

// TestFindPatience: a link or an address that goes for a moment changes nothing. One that stays away does, and one that is replaced is not
// waited for.
func TestFindPatience(t *testing.T) {
	type step struct {
		after time.Duration
		links plan.Links
		want  string // the address, and what else there is to say
	}
	tests := map[string]struct {
		method string
		stored string // with a subnet, that is stored too
		steps  []step
	}{
		"flaps": {"", "", []step{
			{0, eth0("172.18.0.1/24"), "172.18.0.1/24"},
			{time.Second, down(eth0("172.18.0.1/24")), "172.18.0.1/24 keep 10s"},
			{9 * time.Second, down(eth0("172.18.0.1/24")), "172.18.0.1/24 keep 1s"},
			{0, eth0("172.18.0.1/24"), "172.18.0.1/24"},
			{time.Second, down(eth0("172.18.0.1/24")), "172.18.0.1/24 keep 10s"},
		}},
		"goes for good": {"", "", []step{
			{0, eth0("172.18.0.1/24"), "172.18.0.1/24"},
			{time.Second, plan.Links{}, "172.18.0.1/24 keep 10s"},
			{10 * time.Second, plan.Links{}, "finds no IPv4 address"},
			{0, eth0("172.18.0.2/24"), "172.18.0.2/24"},
		}},
		"another link takes over when the first stays down": {"", "", []step{
			{0, both(true), "172.18.0.1/24"},
			{0, both(false), "172.18.0.1/24 keep 10s"},
			{10 * time.Second, both(false), "172.19.0.1/24"},
			{0, both(true), "172.19.0.1/24"}, // it came back; there is no point in moving again
			{10 * time.Second, both(true), "172.19.0.1/24"},
			{0, down(both(true)), "172.19.0.1/24"},
		}},
		"after a boot, when the first link has none yet": {"", "172.18.0.1/24", []step{
			{0, bare(both(true)), "keep 10s"},
			{time.Second, both(true), "172.18.0.1/24"},
		}},
		"after a restart with another interface": {"interface=eth1", "172.18.0.1/24", []step{
			{0, both(true), "keep 10s"},
			{10 * time.Second, both(true), "172.19.0.1/24"},
		}},
		"is told": {"172.18.0.7", "172.18.0.9", []step{
			{0, eth0("172.18.0.9/24"), "172.18.0.7/32 no link has 172.18.0.7"},
			{0, eth0("172.18.0.9/24", "172.18.0.7/24"), "172.18.0.7/24"},
		}},
		"is told none": {"none", "172.18.0.9", []step{{0, eth0("172.18.0.9/24"), ""}}},
	}
	for name, tt := range tests {
		f := newFinder(t, tt.method)
		f.reach = func(context.Context, string, bool) (netip.Addr, error) { return netip.MustParseAddr("172.19.0.1"), nil }
		if tt.stored != "" {
			f.note.stored = map[string]model.Entry{}
			put := func(field model.BGPHostField, text string) {
				key := model.BGPHostKey{Host: "a", Field: field}
				f.note.stored[key.Path()] = model.Entry{Path: key.Path(), Key: key, Value: model.Text(text), Revision: 1}
			}
			addr, _, hasSubnet := strings.Cut(tt.stored, "/")
			put(model.BGPHostIPv4, addr)
			if hasSubnet {
				put(model.BGPHostNetworkV4, netip.MustParsePrefix(tt.stored).Masked().String())
			}
		}
		for n, s := range tt.steps {
			got := f.see(s.after, s.links)
			var words []string
			if a := got.own[0].Addr; a.IsValid() {
				words = append(words, a.String())
			}
			if got.keep[0] {
				words = append(words, "keep "+got.again.String())
			}
			if got.errs[0] != nil {
				words = append(words, got.errs[0].Error())
			}
			text := strings.Join(words, " ")
			if text != s.want && (got.errs[0] == nil || s.want == "" || !strings.Contains(text, s.want)) {
				t.Errorf("%s, step %d: %q, want %q", name, n+1, text, s.want)
			}
		}
	}
}

// TestFindApart: an address that isn't on the way to any other host is a problem, unless it was chosen by a setting.
func TestFindApart(t *testing.T) {
	links := func(first string) plan.Links {
		l := eth0("172.31.0.11/24")
		l.Links = append(l.Links, plan.Link{Name: first, Up: true, Loopback: first == "lo", Addrs: []netip.Prefix{netip.MustParsePrefix("10.88.0.1/16")}})
		return l
	}
	other := [2][]netip.Addr{{netip.MustParseAddr("172.31.0.12"), netip.MustParseAddr("10.88.0.2")}}
	for name, tt := range map[string]struct {
		method, first string
		others        [2][]netip.Addr
		reached       map[string]string
		apart         bool
	}{
		"by another link":          {"", "podman0", other, map[string]string{"172.31.0.12": "172.31.0.11", "10.88.0.2": "172.31.0.11"}, true},
		"to one by its own":        {"", "podman0", other, map[string]string{"172.31.0.12": "172.31.0.11", "10.88.0.2": "10.88.0.1"}, false},
		"without other hosts":      {"", "podman0", [2][]netip.Addr{}, nil, false},
		"without a route to any":   {"", "podman0", other, nil, false},
		"it was chosen":            {"interface=podman0", "podman0", other, map[string]string{"172.31.0.12": "172.31.0.11", "10.88.0.2": "172.31.0.11"}, false},
		"a loopback's":             {"", "lo", other, map[string]string{"172.31.0.12": "172.31.0.11"}, false},
		"IPv6 doesn't speak of it": {"", "podman0", [2][]netip.Addr{1: {netip.MustParseAddr("fd31::12")}}, map[string]string{"fd31::12": "fd31::11"}, false},
	} {
		f := newFinder(t, tt.method)
		f.reach = func(_ context.Context, target string, _ bool) (netip.Addr, error) {
			a, _ := netip.ParseAddr(tt.reached[target])
			return a, nil
		}
		f.note.others = tt.others
		f.note.own[0] = plan.Identity{Addr: netip.MustParsePrefix("10.88.0.1/16"), Link: tt.first}
		got := f.see(0, links(tt.first))
		if a := got.own[0].Addr.Addr().String(); tt.first != "lo" && a != "10.88.0.1" {
			t.Errorf("%s: it moved to %s", name, a)
		}
		const says = "172.31.0.11: they don't reach its pods, unless podman0 leads to them as well; start its agent with IP=172.31.0.11"
		if err := got.errs[0]; (err != nil) != tt.apart || got.apart[0] != err || tt.apart && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFindRefused: an address that the kernel doesn't use moves nothing and is reported; if it is the host's own, another is used instead.
func TestFindRefused(t *testing.T) {
	links := func(refused string, addrs ...string) plan.Links {
		l := eth0(addrs...)
		l.Links[0].Refused = []netip.Prefix{netip.MustParsePrefix(refused)}
		return l
	}
	for name, tt := range map[string]struct {
		method  string
		links   plan.Links
		want    string
		problem string // part of it, "" = none
	}{
		"one more":             {"autodetect", links("fd18::99/64", "fd18::1/64"), "fd18::1/64", "the kernel doesn't use fd18::99 on eth0, as another host there has it"},
		"its own":              {"autodetect", links("fd18::1/64", "fd18::2/64"), "fd18::2/64", "the kernel doesn't use fd18::1 on eth0"},
		"its own, without any": {"autodetect", links("fd18::1/64"), "invalid Prefix", "there are: fd18::1/64 on eth0, which another host there has"},
		"its own, as was told": {"fd18::1", links("fd18::1/64"), "fd18::1/128", "the kernel doesn't use fd18::1 on eth0"},
		"none is wished":       {"none", links("fd18::1/64"), "invalid Prefix", ""},
	} {
		f := newFinder(t, "")
		f.methods[1] = method(t, 1, tt.method)
		f.see(0, eth0("fd18::1/64"))
		f.see(0, tt.links)
		got := f.see(departure, tt.links)
		if got.own[1].Addr.String() != tt.want || got.keep[1] || (got.errs[1] == nil) != (tt.problem == "") ||
			got.errs[1] != nil && !strings.Contains(got.errs[1].Error(), tt.problem) {
			t.Errorf("%s: %+v, want %s and %q", name, got, tt.want, tt.problem)
		}
	}
}

// TestWithoutIPv4: a host in a cluster with IPv6 alone lacks nothing, unless its setting or a pool asks for IPv4.
func TestWithoutIPv4(t *testing.T) {
	for name, tt := range map[string]struct {
		method4, method6 string
		links            plan.Links
		pools            []string
		fault            bool
	}{
		"IPv6 alone":       {"", "autodetect", eth0("fd18::1/64"), []string{"fd00:1::/64"}, false},
		"without pools":    {"", "autodetect", eth0("fd18::1/64"), nil, false},
		"a bridge has one": {"", "autodetect", withBridge(eth0("fd18::1/64")), nil, false},
		"a pool of IPv4":   {"", "autodetect", eth0("fd18::1/64"), []string{"10.0.0.0/16", "fd00:1::/64"}, true},
		"IP is set":        {"first-found", "autodetect", eth0("fd18::1/64"), []string{"fd00:1::/64"}, true},
		"IP6 isn't":        {"", "", eth0("fd18::1/64"), nil, true},
		"neither is there": {"", "autodetect", eth0(), nil, true},
	} {
		f := newFinder(t, tt.method4)
		f.methods[1] = method(t, 1, tt.method6)
		f.note.pools = map[string]netip.Prefix{}
		for _, p := range tt.pools {
			f.note.pools[p] = netip.MustParsePrefix(p)
		}
		if got := f.see(0, tt.links); (got.errs[0] != nil) != tt.fault || got.own[0].Addr.IsValid() {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// withBridge adds a link that leads to no host.
func withBridge(l plan.Links) plan.Links {
	l.Links = append(l.Links, plan.Link{Name: "docker0", Up: true, Addrs: []netip.Prefix{netip.MustParsePrefix("172.17.0.1/16")}})
	return l
}

// TestHostKeys: the writes that bring etcd in line with what was found.
func TestHostKeys(t *testing.T) {
	key := func(field model.BGPHostField) model.BGPHostKey { return model.BGPHostKey{Host: "a", Field: field} }
	v4, network, v6, as := key(model.BGPHostIPv4), key(model.BGPHostNetworkV4), key(model.BGPHostIPv6), key(model.BGPHostAS)
	own := func(v4, v6 string) (f finding) {
		for family, text := range []string{v4, v6} {
			if text != "" {
				f.own[family].Addr = netip.MustParsePrefix(text)
			}
		}
		return f
	}
	entry := func(k model.Key, text string, revision int64) model.Entry {
		e := model.Entry{Path: k.Path(), Key: k, Value: model.Text(text), Revision: revision}
		if text == "?" {
			e.Value, e.Err = nil, errors.New("unreadable")
		}
		return e
	}
	for name, tt := range map[string]struct {
		want   hostKeys
		stored []model.Entry
		change model.Change
	}{
		"all new": {wantedKeys("a", own("172.18.0.1/24", "fd18::1/64"), 65001), nil, model.Change{
			Compares: []model.Compare{{Key: as}, {Key: v4}, {Key: v6}, {Key: network}},
			Puts: []model.Put{
				{Key: as, Value: model.Text("65001")}, {Key: v4, Value: model.Text("172.18.0.1")},
				{Key: v6, Value: model.Text("fd18::1")}, {Key: network, Value: model.Text("172.18.0.0/24")},
			},
		}},
		"all there": {wantedKeys("a", own("172.18.0.1/24", ""), 0),
			[]model.Entry{entry(v4, "172.18.0.1", 3), entry(network, "172.18.0.0/24", 3), entry(as, "65009", 4)}, model.Change{}},
		"one is another, one unreadable, one gone": {wantedKeys("a", own("172.18.0.1/24", ""), 0),
			[]model.Entry{entry(v4, "172.18.0.2", 3), entry(network, "?", 4), entry(v6, "fd18::1", 5)}, model.Change{
				Compares: []model.Compare{{Key: v4, Revision: 3}, {Key: v6, Revision: 5}, {Key: network, Revision: 4}},
				Puts:     []model.Put{{Key: v4, Value: model.Text("172.18.0.1")}, {Key: network, Value: model.Text("172.18.0.0/24")}},
				Deletes:  []model.Key{v6},
			}},
		"kept": {wantedKeys("a", finding{keep: [2]bool{true, true}}, 0), []model.Entry{entry(v4, "172.18.0.2", 3), entry(v6, "?", 4)}, model.Change{}},
		"refused": {wantedKeys("a", finding{}, 0), []model.Entry{entry(v4, "172.18.0.2", 3), entry(as, "65001", 3)}, model.Change{
			Compares: []model.Compare{{Key: v4, Revision: 3}}, Deletes: []model.Key{v4},
		}},
		"not set": {wantedKeys("a", finding{}, 0), []model.Entry{entry(v4, "", 3)}, model.Change{}},
	} {
		stored := map[string]model.Entry{}
		for _, e := range tt.stored {
			stored[e.Path] = e
		}
		if diff := cmp.Diff(tt.change, tt.want.change(stored)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
