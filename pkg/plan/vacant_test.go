// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/model"
)

// checkVacant looks for the addresses of this host's blocks that nobody has, by looking through all.
func checkVacant(t *testing.T, e *Engine, w world, told State) {
	t.Helper()
	s := &slow{world: w, objects: map[model.Key]model.Entry{}}
	for path, entry := range w.entries {
		if path == entry.Key.Path() {
			s.objects[entry.Key] = entry
		}
	}
	var want []netip.Addr
	for _, b := range s.blocks() {
		if b.Affinity != w.self || told.Routes[b.CIDR].Kind != Blackhole {
			continue
		}
		for a := b.CIDR.Addr(); b.CIDR.Contains(a); a = a.Next() {
			if at, _ := s.block(single(a)); at.CIDR == b.CIDR && s.owner(a) == "" && !s.narrower(a, b.CIDR) {
				want = append(want, a)
			}
		}
	}
	slices.SortFunc(want, netip.Addr.Compare)
	if diff := cmp.Diff(want, e.Vacant(), cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("the vacant addresses, worked out anew (-) and as the engine says (+):\n%s", diff)
	}
}

// narrower says that a link has an address, or leads to it, or another program's route, whatever the block's does.
func (s *slow) narrower(a netip.Addr, block netip.Prefix) bool {
	inside := func(p netip.Prefix) bool { return p.Contains(a) && p.Bits() >= block.Bits() }
	return slices.ContainsFunc(s.links.Links, func(l Link) bool {
		return !isTunnelDevice(l.Name) && slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool {
			return p.IsValid() && (p.Addr() == a || l.Up && inside(p.Masked()))
		})
	}) || slices.ContainsFunc(s.links.Routes, func(r HostRoute) bool {
		return r.Destination.IsValid() && !isTunnelDevice(r.Device) && inside(r.Destination.Masked())
	})
}

func TestVacant(t *testing.T) {
	e, _ := tell1(t, `
-- etcd --
/calico/v1/ipam/v4/pool/10.65.0.0-16 = {"cidr":"10.65.0.0/16"}
/calico/v1/ipam/v4/pool/172.18.0.0-16 = {"cidr":"172.18.0.0/16"}
/calico/v1/ipam/v6/pool/fd00:1::-64 = {"cidr":"fd00:1::/64"}
/calico/v1/host/host-1/metadata = {}
/calico/bgp/v1/host/host-1/ip_addr_v4 = 172.18.0.1
/calico/v1/host/host-2/metadata = {}
/calico/bgp/v1/host/host-2/ip_addr_v4 = 172.18.0.2
/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-29 = host-1 1:host-1 2:host-2 3:host-1:vxlan-tunnel-addr-host-1
/calico/ipam/v2/assignment/ipv4/block/10.65.0.8-29 = host-2 0:host-1
/calico/ipam/v2/assignment/ipv4/block/172.18.0.0-29 = host-1
/calico/ipam/v2/assignment/ipv4/block/10.66.0.0-29 = host-1
/calico/ipam/v2/assignment/ipv6/block/fd00:1::-125 = host-1 0:host-1 1:host-1 2:host-1 3:host-1 4:host-1
/calico/v1/host/host-1/workload/k8s/default.a/endpoint/eth0 = {"state":"active","name":"cali1","mac":"02:00:00:00:00:01","profile_ids":[],"ipv4_nets":["10.65.0.1/32"],"ipv6_nets":[]}
/calico/v1/host/host-2/workload/k8s/default.b/endpoint/eth0 = {"state":"active","name":"cali2","mac":"02:00:00:00:00:02","profile_ids":[],"ipv4_nets":["10.65.0.4/32"],"ipv6_nets":[]}
-- links --
eth0 up uplink mtu 1500 172.18.0.1/24
eth1 up mtu 1500 10.65.0.5/32
route 10.65.0.6/32 dev eth0
`)
	e.Flush()
	// Others are allocated, an endpoint's without that, a link's, and another program's; in a block of the
	// hosts' subnet or of no pool, which have no blackhole, anything may have any.
	want := []netip.Addr{
		netip.MustParseAddr("10.65.0.0"), netip.MustParseAddr("10.65.0.7"),
		netip.MustParseAddr("fd00:1::5"), netip.MustParseAddr("fd00:1::6"), netip.MustParseAddr("fd00:1::7"),
	}
	if diff := cmp.Diff(want, e.Vacant(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
