// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"context"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// reporting is a table whose next Apply returns a given report.
type reporting struct {
	Table
	next nft.Report
}

func (t *reporting) Apply(context.Context) (nft.Report, error) { return t.next, nil }

// TestTakeWork: connections that may not go on are ended although another's work waits. Those of an endpoint whose own policies waited are
// checked again once these are in force, whatever else still waits.
func TestTakeWork(t *testing.T) {
	table := &reporting{}
	r := New(Config{})
	r.applied, r.table = true, table
	addr, host := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	r.state.Endpoints = map[string]*policy.Endpoint{
		"pod": {Path: "pod", Workload: true, Addrs: []netip.Addr{addr}}, "host": {Path: "host", Addrs: []netip.Addr{host}},
	}
	r.work.Suspects[addr] = struct{}{}
	for _, step := range []struct {
		name     string
		report   nft.Report
		suspects int
		all      bool
	}{
		{"what changed, while something waits", nft.Report{More: true}, 1, false},
		{"nothing since", nft.Report{More: true}, 0, false},
		{"a pod's own is in force, while something waits", nft.Report{More: true, InForce: []string{"pod", "gone"}}, 1, false},
		{"a host's own", nft.Report{More: true, InForce: []string{"host"}}, 1, true},
		{"nothing waits", nft.Report{}, 0, false},
	} {
		table.next = step.report
		r.Apply(t.Context())
		if w := r.TakeWork(); len(w.Suspects) != step.suspects || w.All != step.all {
			t.Errorf("%s: %+v", step.name, w)
		}
	}
}
