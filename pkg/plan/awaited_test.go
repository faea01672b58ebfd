// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// TestNoNeighbour ends one host's sources of IPv6 routes, and restores them in every way.
func TestNoNeighbour(t *testing.T) {
	e, w := tellGolden(t, "no-neighbour")
	var st State
	st.Apply(e.compute())
	pool, block := "/calico/v1/ipam/v6/pool/fd65::-64", "/calico/ipam/v2/assignment/ipv6/block/fd65::40-122"
	links := w.links
	put := func(line string) func() {
		return func() { e.Update(parseEntry(t, line, 100)) }
	}
	gone := func(line string) func() {
		return func() {
			entry := parseEntry(t, line, 100)
			e.Update(model.Entry{Path: entry.Path, Key: entry.Key})
		}
	}
	route := func(to string) func() {
		return func() {
			routes := append([]HostRoute{{Destination: netip.MustParsePrefix(to), Gateway: netip.MustParseAddr("fd18::9"), Device: "eth0"}}, links.Routes...)
			e.SetLinks(Links{links.Links, routes})
		}
	}
	peer := `/calico/bgp/v1/global/peer_v6/fd18::2 = {"ip":"fd18::2","as_num":"64512"}`
	mesh := `/calico/bgp/v1/global/node_mesh = {"enabled":false}`
	addr := "/calico/bgp/v1/host/host-2/ip_addr_v6 = fd18::2"
	own := "/calico/bgp/v1/host/host-1/ip_addr_v6 = fd18::1"
	for _, c := range []struct {
		name         string
		mend, unmend func()
	}{
		{"a peer", put(peer), gone(peer)},
		{"the mesh", gone(mesh), put(mesh)},
		{"a tunnel", put(pool + ` = {"cidr":"fd65::/64","vxlan_mode":"cross-subnet"}`), put(pool + ` = {"cidr":"fd65::/64"}`)},
		{"no pool", gone(pool + " = {}"), put(pool + ` = {"cidr":"fd65::/64"}`)},
		{"no block of others", gone(block + " = host-2"), put(block + " = host-2")},
		{"a block of this host", put(block + " = host-1"), put(block + " = host-2")},
		{"the other host has no address", gone(addr), put(addr)},
		{"this host has none", gone(own), put(own)},
		{"a route of the host's own", route("fd65::/64"), func() { e.SetLinks(links) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.mend()
			st.Apply(e.compute())
			if left := st.subjects(noNeighbour); left != nil {
				t.Errorf("still named: %q\n%s", left, st)
			}
			c.unmend()
			st.Apply(e.compute())
			if diff := cmp.Diff([]string{"IPv6"}, st.subjects(noNeighbour)); diff != "" {
				t.Errorf("named (-want +got):\n%s\n%s", diff, st)
			}
		})
	}
	route("::/0")()
	st.Apply(e.compute())
	if diff := cmp.Diff([]string{"IPv6"}, st.subjects(noNeighbour)); diff != "" {
		t.Errorf("with a default route (-want +got):\n%s", diff)
	}
}
