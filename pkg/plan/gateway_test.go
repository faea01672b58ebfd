// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// The gateway that a link has may be reserved in another host's block, and be so after the link
// is there. The blackhole of this host's block gives way to it, and to nothing else of that link.
func TestGatewayComesAndGoes(t *testing.T) {
	e, w := tellGolden(t, "bridge")
	mine := netip.MustParsePrefix("10.67.0.64/26")
	tell := func(p, value string) {
		entry := parseEntry(t, "/calico/ipam/v2/assignment/ipv4/block/"+p+" = "+value, 99)
		w.put(entry)
		e.Update(entry)
	}
	tell("10.67.0.64-26", "host-1")
	var st State
	for _, step := range []struct {
		block     string
		up        bool
		blackhole bool
	}{
		{"host-2", true, true},
		{"host-2 1::gateway.10.67.0.1", true, false},
		{"host-2 1::gateway.10.67.0.1", false, true},
		{"host-2 1::gateway.10.67.0.1", true, false},
		{"host-2 2::gateway.10.67.0.1", true, true},
	} {
		tell("10.67.0.0-26", step.block)
		w.links = clone(w.links)
		w.links.Links[len(w.links.Links)-1].Up = step.up
		e.SetLinks(w.links)
		st.Apply(e.compute())
		check(t, w, Settings{}, st)
		if _, ok := st.Routes[mine]; ok != step.blackhole {
			t.Errorf("block %q, link up %v: the host's block has a blackhole: %v", step.block, step.up, ok)
		}
		if _, ok := st.Advertisements[mine]; !ok {
			t.Errorf("block %q, link up %v: the host's block is not announced", step.block, step.up)
		}
	}
}

// A workload that comes or goes beside a gateway has nothing to do with the host's configuration.
func TestAllocationBesideGateway(t *testing.T) {
	e, _ := tellGolden(t, "bridge")
	e.compute()
	path := model.BlockKey{CIDR: netip.MustParsePrefix("10.65.0.0/26")}.Path()
	e.Update(parseEntry(t, path+" = host-1 1::gateway.10.65.0.1 2:host-1 3:host-1", 99))
	if e.changed {
		t.Error("one more address of a block with a gateway has the host's configuration worked out again")
	}
	e.Update(parseEntry(t, path+" = host-1 2:host-1 3:host-1", 100))
	if !e.changed {
		t.Error("a gateway has gone, and the pool's overlap with its link is not looked at")
	}
}
