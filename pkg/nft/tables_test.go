// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"flag"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file of testdata.
func golden(tb testing.TB, name, got string) {
	tb.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		tb.Errorf("%s (-update writes it): -want +got:\n%s", path, diff)
	}
}

// TestTables compares whole tables.
func TestTables(t *testing.T) {
	accept := settings()
	accept.EndpointToHost, accept.EndpointDNS, accept.Prefixes = policy.ToHostAccept, true, []string{"cali", "tap"}
	bounded := settings()
	bounded.MaxConnections, bounded.FlowLogGroup, bounded.EndpointDNS = 20000, 5, true
	less, more := workload(1, "web"), workload(2, "web")
	less.MaxConnections, more.MaxConnections = 300, 30000
	metadata := settings()
	metadata.Prefixes, metadata.Metadata = []string{"ca", "cali", "tap"}, netip.MustParseAddrPort("127.0.0.1:8775")
	for name, c := range map[string]struct {
		settings policy.Settings
		changes  policy.Changes
	}{
		"empty.nft":    {settings(), policy.Changes{}},
		"sample.nft":   {settings(), sample()},
		"accept.nft":   {accept, policy.Changes{}},
		"bounded.nft":  {bounded, policy.Changes{Endpoints: endpoints(less, more, workload(3, "web")), Rules: sample().Rules, Sets: sample().Sets}},
		"metadata.nft": {metadata, policy.Changes{Pools: masqueradesFirst()}},
		"workload.nft": {settings(), policy.Changes{Endpoints: endpoints(workload(1, "web", "tier")), Rules: sample().Rules, Sets: sample().Sets}},
		"shut.nft": {settings(), policy.Changes{Endpoints: endpoints(&policy.Endpoint{
			Path: "/calico/v1/host/here/workload/k8s/w/endpoint/e", Workload: true, Interface: "tap1", Dropped: "no prefix covers it",
		}, &policy.Endpoint{Path: "/calico/v1/host/here/endpoint/tap1", Interface: "tap1", UntrackedInbound: []policy.RulesID{policyID("fast")}})}},
		"forward.nft": {settings(), policy.Changes{Endpoints: endpoints(&policy.Endpoint{
			Path: "/calico/v1/host/here/endpoint/eth0", Interface: "eth0", PreDNAT: []policy.RulesID{policyID("early"), policyID("next")},
			ForwardInbound: policy.Verdicts{Policies: []policy.RulesID{policyID("web")}}, ForwardOutbound: policy.Verdicts{Policies: []policy.RulesID{policyID("web")}, Passing: []string{model.DefaultTier}},
		}, &policy.Endpoint{Path: "/calico/v1/host/here/endpoint/all", Wildcard: true, PreDNAT: []policy.RulesID{policyID("early")}})}},
		"tunnels.nft": {settings(), policy.Changes{}},
		"tunnels-closed.nft": {settings(), policy.Changes{Endpoints: endpoints(&policy.Endpoint{
			Path: "/calico/v1/host/here/endpoint/eth0", Interface: "eth0",
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Firewall{desired: newDesired()}
			f.Configure(c.settings)
			f.Update(c.changes)
			f.Links(sampleLinks())
			if strings.HasPrefix(name, "tunnels") {
				f.Tunnels(policy.Tunnels{VXLANPort: 4789, IPIP: true, Hosts: []netip.Addr{ip("192.0.2.1"), ip("2001:db8::1")}})
			}
			golden(t, name, f.Table().String())
		})
	}
}

// TestUncountable: if the kernel can't count connections the rest of the table works.
func TestUncountable(t *testing.T) {
	table := func(most, own int, unbounded bool) string {
		f, s, ep := &Firewall{desired: newDesired()}, settings(), workload(1, "web")
		f.desired.interfaces.unbounded = unbounded
		s.MaxConnections, ep.MaxConnections = most, own
		f.Configure(s)
		f.Update(policy.Changes{Endpoints: endpoints(ep), Rules: sample().Rules, Sets: sample().Sets})
		return f.Table().String()
	}
	if diff := cmp.Diff(table(0, 0, false), table(20000, 300, true)); diff != "" {
		t.Errorf("without a bound (-) and where there can be none (+):\n%s", diff)
	}
}

// Table returns the desired table.
func (f *Firewall) Table() table.Table {
	f.mu.Lock()
	defer f.mu.Unlock()
	rs := f.desired.ruleset
	t := table.Table{Name: TableName}
	for _, name := range slices.Sorted(maps.Keys(rs.sets)) {
		if s := rs.sets[name]; s.wanted {
			t.Sets = append(t.Sets, s.value())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rs.chains)) {
		if c := rs.chains[name]; c.render != nil {
			t.Chains = append(t.Chains, c.render())
		}
	}
	return t
}

// value returns the set with its elements.
func (s *set) value() table.Set {
	out := s.def
	for _, e := range s.all() {
		if e.End {
			out.Elements[len(out.Elements)-1].End = e.Key
		} else {
			out.Elements = append(out.Elements, table.Element{Key: e.Key, Data: e.Data})
		}
	}
	return out
}
