// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// TestDamaged lists all errors in the data of a cluster that other tools have repaired, including an affinity without a
// block.
func TestDamaged(t *testing.T) {
	block := model.Block{CIDR: netip.MustParsePrefix("10.0.1.0/26"), Affinity: "h1", Attributes: []model.Attributes{{HandleID: "net.c9\r\neth0"}, {HandleID: "h4"}}}
	for i := range 64 {
		n := model.Free
		switch i {
		case 3, 4:
			n = i - 3
		default:
			block.Unallocated = append(block.Unallocated, i)
		}
		block.Allocations = append(block.Allocations, n)
	}
	d := tree{}
	d.put(model.PoolKey{CIDR: netip.MustParsePrefix("10.0.0.0/16")}, model.Pool{CIDR: netip.MustParsePrefix("10.0.0.0/16"), IPAM: true})
	d.put(model.BlockKey{CIDR: block.CIDR}, block)
	d.put(model.AffinityKey{Host: "h1", CIDR: block.CIDR}, model.Affinity{})
	d.put(model.AffinityKey{Host: "h1", CIDR: netip.MustParsePrefix("10.0.9.0/26")}, model.Affinity{})
	d.put(model.HandleKey{ID: "h5"}, model.Handle{ID: "h5", Blocks: map[netip.Prefix]int{netip.MustParsePrefix("10.0.8.0/26"): 1}})
	d.put(model.WorkloadEndpointKey{Host: "h1", Orchestrator: "k8s", Workload: "a.b", Endpoint: "eth0"}, model.WorkloadEndpoint{
		State: model.StateActive, IPv4Nets: []netip.Prefix{netip.MustParsePrefix("10.0.1.9/32")}})
	var got []string
	for _, r := range Repairs(d.view(), d.entries()) {
		got = append(got, r.String())
	}
	list := strings.Join(got, "\n")
	t.Log(list)
	for _, want := range []string{"c9", `"h4"`, "handle/h5", "host/h1/ipv4/block/10.0.9.0-26: there is no such block", "its address 10.0.1.9 is free"} {
		if !strings.Contains(list, want) {
			t.Errorf("nothing is said of %s", want)
		}
	}
}
