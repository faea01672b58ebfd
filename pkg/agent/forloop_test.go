// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// TestForLoop: what concerns the router alone is kept from the loop.
func TestForLoop(t *testing.T) {
	entry := func(key model.Key) model.Entry {
		return model.Entry{Path: key.Path(), Key: key, Value: model.Text("x"), Revision: 2}
	}
	endpoint := entry(model.WorkloadEndpointKey{Host: "h", Orchestrator: "k8s", Workload: "a", Endpoint: "eth0"})
	block := entry(model.BlockKey{CIDR: netip.MustParsePrefix("10.1.0.0/26")})
	filter := model.Entry{Path: model.BGPFilterKey{Name: "f"}.Path(), Key: model.BGPFilterKey{Name: "f"}, Value: model.BGPFilter{Meta: model.Meta{Owner: "k8s:u"}}, Revision: 2}
	for _, c := range []struct {
		name string
		in   model.Update
		want []model.Entry
		ok   bool
	}{
		{"both", model.Update{Revision: 2, Entries: []model.Entry{block, endpoint}}, []model.Entry{endpoint}, true},
		{"the loop's", model.Update{Revision: 2, Entries: []model.Entry{endpoint}}, []model.Entry{endpoint}, true},
		{"the router's", model.Update{Revision: 2, Entries: []model.Entry{block}}, []model.Entry{}, false},
		{"the router's, of an object of the API", model.Update{Revision: 2, Entries: []model.Entry{filter}}, []model.Entry{}, true},
		{"a snapshot", model.Update{Revision: 2, Resync: true, Entries: []model.Entry{block}}, []model.Entry{}, true},
		{"nothing but a revision", model.Update{Revision: 2}, nil, true},
	} {
		got, ok := forLoop(c.in)
		if diff := cmp.Diff(c.want, got.Entries); diff != "" || ok != c.ok || got.Revision != 2 || got.Resync != c.in.Resync {
			t.Errorf("%s: %v, revision %d:\n%s", c.name, ok, got.Revision, diff)
		}
	}
}
