// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// More than the links take is named and not used: the greatest of the uplinks is what
// can be meant, as the least may be that of a link which no packet of workloads goes by.
func TestLargeMTU(t *testing.T) {
	links := Links{Links: []Link{
		{Name: "lo", Up: true, MTU: 65536, Loopback: true, Addrs: []netip.Prefix{single(hostAddrOf(0))}}, // the host's address may be there
		{Name: "eth0", Up: true, MTU: 9000, Addrs: []netip.Prefix{netip.MustParsePrefix("172.18.0.1/16"), netip.MustParsePrefix("fd18::1/64")}},
		{Name: "eth1", Up: true, Uplink: true, MTU: 1500},
		{Name: "eth2", Up: true, MTU: 65535},
	}}
	for _, c := range []struct {
		name          string
		settings      Settings
		mode          model.EncapMode
		uplink, inner int
		named         []string
	}{
		{"as the links have it", Settings{}, model.EncapAlways, 1500, 1450, nil},
		{"the greatest", Settings{MTU: 9000}, model.EncapAlways, 9000, 8950, nil},
		{"too much", Settings{MTU: 9001}, model.EncapAlways, 9000, 8950, []string{"UplinkMTU"}},
		{"all that is left", Settings{TunnelMTU: map[TunnelKind]int{VXLAN4: 8950}}, model.EncapAlways, 1500, 8950, nil},
		{"more than that", Settings{TunnelMTU: map[TunnelKind]int{VXLAN4: 8951}}, model.EncapAlways, 1500, 8950, []string{"VXLANMTU"}},
		{"all that what is set leaves", Settings{MTU: 1400, TunnelMTU: map[TunnelKind]int{VXLAN4: 1350}}, model.EncapAlways, 1400, 1350, nil},
		{"more than what is set leaves", Settings{MTU: 1400, TunnelMTU: map[TunnelKind]int{VXLAN4: 1351}}, model.EncapAlways, 1400, 1350, []string{"VXLANMTU"}},
		{"of no tunnel that is used", Settings{TunnelMTU: map[TunnelKind]int{VXLAN4: 8951, VXLAN6: 9000, IPIP: 9000}}, model.EncapNever, 1500, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := &cluster{pool: model.Pool{VXLANMode: c.mode}}
			e := newEngine("h0", c.settings)
			e.SetLinks(links)
			e.Update(cl.entries(2)...)
			var st State
			st.Apply(e.compute())
			if st.MTU.Uplink != c.uplink {
				t.Errorf("the uplinks have %d, want %d", st.MTU.Uplink, c.uplink)
			}
			for _, tunnel := range st.Tunnels {
				if tunnel.MTU != c.inner {
					t.Errorf("%s has %d, want %d", tunnel.Device, tunnel.MTU, c.inner)
				}
			}
			if diff := cmp.Diff(c.named, st.subjects(largeMTU)); diff != "" {
				t.Errorf("named (-want +got):\n%s\n%s", diff, st)
			}
			e.SetSettings(Settings{})
			st.Apply(e.compute())
			if left := st.subjects(largeMTU); left != nil {
				t.Errorf("still named: %q", left)
			}
		})
	}
}

func (st *State) subjects(kind ProblemKind) (list []string) {
	for id := range st.Problems {
		if id.Kind == kind {
			list = append(list, id.Subject)
		}
	}
	return list
}

// BGP keeps the identifier that it has, whatever becomes of the host's address, unless
// another host has that address now.
func TestRouterIDStays(t *testing.T) {
	c := &cluster{}
	own := model.BGPHostKey{Host: "h0", Field: model.BGPHostIPv4}
	first, second, other := hostAddrOf(0), netip.MustParseAddr("172.18.9.9"), hostAddrOf(1)
	for _, test := range []struct {
		name    string
		inUse   netip.Addr
		entries []model.Entry
		want    netip.Addr
	}{
		{"none is in use", netip.Addr{}, nil, first},
		{"another address", first, []model.Entry{c.entry(own, model.Text(second.String()))}, first},
		{"an address after none", routerID("h0"), nil, routerID("h0")},
		{"no address any more", first, []model.Entry{c.entry(own, model.Text(""))}, first},
		{"another host has it", other, nil, first},
		{"no address, and another host has it", other, []model.Entry{c.entry(own, model.Text(""))}, routerID("h0")},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEngine("h0", Settings{})
			e.SetLinks(benchLinks())
			e.Update(c.entries(3)...)
			e.Update(c.entry(model.BGPHostKey{Host: "h0", Field: model.BGPHostIPv6}, model.Text("fd18::1")))
			var st State
			st.Apply(e.compute())
			e.SetSettings(Settings{RouterID: test.inUse})
			e.Update(test.entries...)
			st.Apply(e.compute())
			if st.Speaker.RouterID != test.want || st.Speaker.AS == 0 {
				t.Errorf("router id %s in AS %d, want %s", st.Speaker.RouterID, st.Speaker.AS, test.want)
			}
		})
	}
}

// An AS number that can't be read ends no session: it counts as not set, for all alike.
func TestUnreadableAS(t *testing.T) {
	c := &cluster{}
	all, own := model.BGPGlobalASKey{}, model.BGPHostKey{Host: "h0", Field: model.BGPHostAS}
	bad := func(key model.Key) model.Entry {
		return model.Entry{Path: key.Path(), Key: key, Revision: 9, Err: errors.New("not an AS number")}
	}
	for _, test := range []struct {
		name     string
		entries  []model.Entry
		want     model.ASNumber
		problems int
	}{
		{"all", []model.Entry{bad(all)}, defaultAS, 1},
		{"one host", []model.Entry{bad(own), c.entry(all, model.ASNumber(65001))}, 65001, 1},
		{"text of one host", []model.Entry{c.entry(own, model.Text("a lot"))}, defaultAS, 0}, // which is not parsed so
		{"both", []model.Entry{bad(own), bad(all)}, defaultAS, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEngine("h0", Settings{})
			e.SetLinks(benchLinks())
			e.Update(c.entries(3)...)
			e.Update(test.entries...)
			var st State
			st.Apply(e.compute())
			if st.Speaker.AS != test.want || len(st.Neighbours) != 2 || len(st.subjects(BadValue)) != test.problems {
				t.Errorf("AS %d with %d neighbours, want %d with 2\n%s", st.Speaker.AS, len(st.Neighbours), test.want, st)
			}
		})
	}
}
