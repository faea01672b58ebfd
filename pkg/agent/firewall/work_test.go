// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"context"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
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

// TestNetworksChange: when a set's networks change all connections are judged, and the networks are counted as members.
func TestNetworksChange(t *testing.T) {
	r := New(Config{Host: "h"})
	put := func(key model.Key, value any) {
		r.engine.Update(model.Entry{Path: key.Path(), Key: key, Value: value, Revision: 1, Created: 1})
	}
	pod, set := model.WorkloadEndpointKey{Host: "h", Orchestrator: "k8s", Workload: "w", Endpoint: "e"}, model.NetworkSetKey{Name: "office"}
	put(pod, model.WorkloadEndpoint{State: model.StateActive, Name: "cali1", IPv4Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}})
	put(model.PolicyKey{Tier: model.DefaultTier, Policy: "p"}, model.Policy{Inbound: []model.Rule{{Action: model.ActionAllow, Match: model.Match{SrcSelector: "all()"}}}})
	r.verdicts[pod.Path()] = Verdict{Connect: true}
	for _, step := range []struct {
		nets    []string
		all     bool
		members int
	}{
		{nil, false, 1}, // the set of the rule is new
		{[]string{"192.0.2.0/24", "192.0.2.0/25", "2001:db8::/32"}, true, 3},
		{[]string{"192.0.2.0/24", "2001:db8::/32"}, false, 3}, // that makes no difference
		{[]string{"192.0.2.0/25"}, true, 2},
		{nil, true, 1},
	} {
		r.work = newWork()
		var nets []netip.Prefix
		for _, p := range step.nets {
			nets = append(nets, netip.MustParsePrefix(p))
		}
		put(set, model.NetworkSet{Nets: nets})
		r.follow(nil)
		if r.work.All != step.all || r.counts.members != step.members || r.misfit != nil {
			t.Errorf("%v: all connections %t, %d members: want %t and %d: %v", step.nets, r.work.All, r.counts.members, step.all, step.members, r.misfit)
		}
	}
}
