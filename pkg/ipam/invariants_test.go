// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/model"
)

func TestCheck(t *testing.T) {
	endpoint := func(s *etcd, container, v4 string) {
		s.putText("/calico/v1/host/a/workload/cni/web/endpoint/eth0",
			`{"state":"active","name":"cali1","mac":"02:00:00:00:00:01","profile_ids":[],"container_id":"`+container+`","ipv4_nets":["`+v4+`/32"],"ipv6_nets":[]}`)
	}
	cases := []struct {
		name  string
		wrong func(*etcd)
		want  []string
	}{
		{"nothing", func(*etcd) {}, nil},
		{"blocks overlap", func(s *etcd) { s.fillAll("b", 0, "10.0.0.0/29", "10.0.0.5/32") },
			[]string{"invariant 1: /calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30: overlaps block 10.0.0.0/29",
				"invariant 1: /calico/ipam/v2/assignment/ipv4/block/10.0.0.5-32: overlaps block 10.0.0.0/29",
				"invariant 1: /calico/ipam/v2/assignment/ipv4/block/10.0.0.5-32: overlaps block 10.0.0.4/30",
				"invariant 5: /calico/v1/host/a/workload/cni/web/endpoint/eth0: its address 10.0.0.4 is free in block 10.0.0.0/29"}},
		{"no pool", func(s *etcd) { s.delete(model.PoolKey{CIDR: cidr("10.0.0.0/28")}) },
			[]string{"invariant 1: /calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30: lies in no pool: its pool was deleted or changed"}},
		{"two pools", func(s *etcd) { s.pool(model.Pool{CIDR: cidr("10.0.0.0/24")}) },
			[]string{"invariant 1: /calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30: lies in 2 pools: 10.0.0.0/24, 10.0.0.0/28"}},
		{"two pools, one disabled", func(s *etcd) { s.pool(model.Pool{CIDR: cidr("10.0.0.0/24"), Disabled: true}) }, nil},
		{"no affinity key", func(s *etcd) { s.delete(model.AffinityKey{Host: "a", CIDR: cidr("10.0.0.4/30")}) },
			[]string{"invariant 2: /calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30: has affinity to a, which has no affinity key for it"}},
		{"another's affinity key", func(s *etcd) { s.putText("/calico/ipam/v2/host/b/ipv4/block/10.0.0.4-30", "") },
			[]string{"invariant 2: /calico/ipam/v2/host/b/ipv4/block/10.0.0.4-30: the block has affinity to a"}},
		{"affinity to a block of nobody", func(s *etcd) { s.edit("10.0.0.4/30", func(b *model.Block) { b.Affinity = "" }) },
			[]string{"invariant 2: /calico/ipam/v2/host/a/ipv4/block/10.0.0.4-30: the block has affinity to nobody"}},
		{"affinity to no block", func(s *etcd) { s.putText("/calico/ipam/v2/host/a/ipv6/block/fd00::4-126", "{}") },
			[]string{"invariant 2: /calico/ipam/v2/host/a/ipv6/block/fd00::4-126: there is no such block"}},
		{"no handle", func(s *etcd) { s.delete(model.HandleKey{ID: "n.c1.eth0"}) },
			[]string{"invariant 3: /calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30: has addresses of handle \"n.c1.eth0\", which does not exist"}},
		{"wrong counts", func(s *etcd) {
			s.putText("/calico/ipam/v2/handle/n.c1.eth0", `{"block":{"10.0.0.4/30":3,"10.0.0.8/30":1,"10.0.0.12/30":0}}`)
			s.putText("/calico/ipam/v2/handle/n.c2.eth0", `{"block":{"10.0.0.4/30":1}}`)
			s.putText("/calico/ipam/v2/handle/n.c3.eth0", `{"block":{}}`)
		}, []string{"invariant 3: /calico/ipam/v2/handle/n.c1.eth0: counts 0 in block 10.0.0.12/30",
			"invariant 3: /calico/ipam/v2/handle/n.c1.eth0: counts 1 in block 10.0.0.8/30, which does not exist",
			"invariant 3: /calico/ipam/v2/handle/n.c1.eth0: counts 3 in block 10.0.0.4/30, which has 2 of its addresses",
			"invariant 3: /calico/ipam/v2/handle/n.c2.eth0: counts 1 in block 10.0.0.4/30, which has 0 of its addresses",
			"invariant 3: /calico/ipam/v2/handle/n.c3.eth0: counts no addresses, and is still there"}},
		{"a block that the handle lacks", func(s *etcd) { s.putText("/calico/ipam/v2/handle/n.c1.eth0", `{"block":{"10.0.0.8/30":1}}`) },
			[]string{"invariant 3: /calico/ipam/v2/handle/n.c1.eth0: counts 0 in block 10.0.0.4/30, which has 2 of its addresses",
				"invariant 3: /calico/ipam/v2/handle/n.c1.eth0: counts 1 in block 10.0.0.8/30, which does not exist"}},
		{"a handle in its older place", func(s *etcd) {
			s.delete(model.HandleKey{ID: "n.c1.eth0"})
			s.putText("/calico/ipam/v2/assignment/handle/n.c1.eth0", `{"block":{"10.0.0.4/30":2}}`)
		}, nil},
		{"unallocated lacks one", func(s *etcd) {
			s.putText("/calico/ipam/v2/assignment/ipv4/block/10.0.0.8-30", `{"cidr":"10.0.0.8/30","allocations":[null,null,null,null],"unallocated":[0,1,2]}`)
		}, []string{"invariant 0: /calico/ipam/v2/assignment/ipv4/block/10.0.0.8-30: unallocated: 3 ordinals for 4 free addresses"}},
		{"another's address", func(s *etcd) { endpoint(s, "c9", "10.0.0.5") },
			[]string{`invariant 5: /calico/v1/host/a/workload/cni/web/endpoint/eth0: its address 10.0.0.5 is allocated to handle "n.c1.eth0", which does not end in .c9.eth0`}},
		{"a free address", func(s *etcd) { endpoint(s, "c1", "10.0.0.6") },
			[]string{"invariant 5: /calico/v1/host/a/workload/cni/web/endpoint/eth0: its address 10.0.0.6 is free in block 10.0.0.4/30"}},
		{"an address of no block", func(s *etcd) { endpoint(s, "c1", "10.0.0.9") }, nil},
		{"an endpoint of no container", func(s *etcd) { endpoint(s, "", "10.0.0.5") }, nil},
		{"an invalid handle", func(s *etcd) { s.putText("/calico/ipam/v2/handle/n.c1.eth0", `7`) },
			[]string{"invariant 0: /calico/ipam/v2/handle/n.c1.eth0: *"}},
		{"an invalid reservation", func(s *etcd) { s.reserve("r", "10.0.0.0/8"); s.putText("/calico/ipam/v2/reservation/x", `7`) },
			[]string{"invariant 0: /calico/ipam/v2/reservation/x: *"}},
		{"an invalid block", func(s *etcd) { s.putText("/calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30", `7`) },
			[]string{"invariant 0: /calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30: *"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := world(t)
			r := Request{Host: "a", Handle: "n.c1.eth0", Addrs: nil, Now: noon}
			r.Addrs = append(r.Addrs, addr("10.0.0.4"), addr("10.0.0.5"))
			if _, err := s.assign(r); err != nil {
				t.Fatal(err)
			}
			endpoint(s, "c1", "10.0.0.4")
			s.mustBeSound()
			c.wrong(s)
			var got []string
			for _, v := range invariants.Check(s.dump()) {
				got = append(got, v.String())
				if v.Note != (c.name == "no pool" || c.name == "two pools") {
					t.Errorf("note: %v", v.Note)
				}
			}
			same := len(got) == len(c.want)
			for i := range got {
				same = same && matches(c.want[i], got[i])
			}
			if !same {
				t.Errorf("-want +got\n%s", cmp.Diff(c.want, got))
			}
		})
	}
}

// A block as model does not make it: Check is safe for those too.
func TestCheckOrdinals(t *testing.T) {
	good := newBlock(cidr("10.0.0.0/30"), "a")
	take(&good, 1, model.Attributes{HandleID: "h"})
	for name, spoil := range map[string]func(*model.Block){
		"unallocated has 1, which is allocated":        func(b *model.Block) { b.Unallocated[0] = 1 },
		"unallocated has 2 twice":                      func(b *model.Block) { b.Unallocated[0] = 2 },
		"unallocated has 4, the block has 4 addresses": func(b *model.Block) { b.Unallocated[0] = 4 },
		"unallocated lacks 3, which is free":           func(b *model.Block) { b.Unallocated = b.Unallocated[:2] },
		"allocation 1 names attributes 1, there are 1": func(b *model.Block) { b.Allocations[1] = 1 },
		"allocations has 3 entries for 4 addresses":    func(b *model.Block) { b.Allocations = b.Allocations[:3] },
	} {
		b := clone(good)
		spoil(&b)
		found := invariants.Check([]model.Entry{{Key: model.BlockKey{CIDR: b.CIDR}, Value: b, Revision: 1}})
		if !slices.ContainsFunc(found, func(v invariants.Violation) bool { return v.Invariant == 4 && v.Text == name }) {
			t.Errorf("want %s, got %v", name, found)
		}
	}
}
