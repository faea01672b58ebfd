// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// faultCase is a change, and what is wrong after it.
type faultCase struct {
	change model.Change
	want   []string
}

func put(pairs ...model.Put) model.Change { return model.Change{Puts: pairs} }

const (
	blockPath    = "/calico/ipam/v2/assignment/ipv4/block/192.168.0.0-30"
	endpointPath = "/calico/v1/host/a/workload/cni/c1/endpoint/eth0"
)

// faultCases has one thing wrong each, and one with nothing wrong.
func faultCases() []faultCase {
	cidr := netip.MustParsePrefix("192.168.0.0/30")
	first := netip.PrefixFrom(cidr.Addr(), 32)
	attributes := map[string]string{"network": "net", "node": "a", "orchestrator": "cni", "workload": "c1"}
	block := model.Block{
		CIDR: cidr, Affinity: "a", Allocations: []int{0, -1, -1, -1}, Unallocated: []int{1, 2, 3},
		Attributes: []model.Attributes{{HandleID: "net.c1.eth0", Secondary: attributes}},
	}
	blockPut := model.Put{Key: model.BlockKey{CIDR: cidr}, Value: block}
	affinity := model.Put{Key: model.AffinityKey{Host: "a", CIDR: cidr}, Value: model.Affinity{}}
	handle := model.Put{Key: model.HandleKey{ID: "net.c1.eth0"}, Value: model.Handle{ID: "net.c1.eth0", Blocks: map[netip.Prefix]int{cidr: 1}}}
	endpoint := func(workload, container string) model.Put {
		return model.Put{
			Key:   model.WorkloadEndpointKey{Host: "a", Orchestrator: "cni", Workload: workload, Endpoint: "eth0"},
			Value: model.WorkloadEndpoint{State: model.StateActive, Name: "cali1", ContainerID: container, IPv4Nets: []netip.Prefix{first}},
		}
	}
	of := func(change func(*model.Block)) model.Put {
		b := block
		b.Allocations, b.Unallocated = slices.Clone(b.Allocations), slices.Clone(b.Unallocated)
		b.Attributes = slices.Clone(b.Attributes)
		change(&b)
		return model.Put{Key: blockPut.Key, Value: b}
	}
	forHost := func(host, network string) model.Put {
		return of(func(b *model.Block) {
			b.Attributes[0].Secondary = map[string]string{"network": network, "node": host, "orchestrator": "cni", "workload": "c1"}
		})
	}
	elsewhere := endpoint("c1", "c1")
	elsewhere.Value = model.WorkloadEndpoint{
		State: model.StateActive, Name: "cali1", ContainerID: "c1", IPv4Nets: []netip.Prefix{netip.MustParsePrefix("10.99.0.1/32")},
	}
	return []faultCase{
		{change: put(blockPut, affinity, handle, endpoint("c1", "c1"))},
		{change: put(elsewhere)}, // another plugin's address
		{put(blockPut, affinity, handle), []string{
			"192.168.0.0 is allocated to handle net.c1.eth0, for workload c1 on a, which does not have it",
		}},
		{put(blockPut, handle, endpoint("c1", "c1")), []string{"invariant 2: " + blockPath + ": has affinity to a, which has no affinity key for it"}},
		{put(blockPut, affinity, endpoint("c1", "c1")), []string{"invariant 3: " + blockPath + ": has addresses of handle \"net.c1.eth0\", which does not exist"}},
		{put(endpoint("c1", "c1")), []string{endpointPath + ": its address 192.168.0.0 is in a pool and is not allocated"}},
		{put(blockPut, affinity, handle, endpoint("c1", "c2")), []string{
			"invariant 5: " + endpointPath + `: its address 192.168.0.0 is allocated to handle "net.c1.eth0", which does not end in .c2.eth0`,
			endpointPath + ": its address 192.168.0.0 is allocated to net.c1.eth0, not to net.c2.eth0",
		}},
		{put(forHost("b", "net"), affinity, handle, endpoint("c1", "c1")), []string{
			endpointPath + ": its address 192.168.0.0 is allocated for host b",
			"192.168.0.0 is allocated to handle net.c1.eth0, for workload c1 on b, which does not have it",
		}},
		{put(blockPut, affinity, handle, endpoint("c1", "c1"), endpoint("d", "c1")), []string{
			"/calico/v1/host/a/workload/cni/d/endpoint/eth0: " + endpointPath + " has its address 192.168.0.0 too",
			"192.168.0.0 is allocated to handle net.c1.eth0, for workload c1 on a, which does not have it",
		}},
	}
}
