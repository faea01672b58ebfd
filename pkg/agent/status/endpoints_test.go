// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

func TestReportChanges(t *testing.T) {
	want, stored := map[string]endpoint{}, map[string]model.EndpointStatus{}
	key := func(n int) model.WorkloadStatusKey {
		return model.WorkloadStatusKey{Host: "h", Orchestrator: "k8s", Workload: "w" + string(rune('a'+n%26)) + strings.Repeat("x", n/26), Endpoint: "eth0"}
	}
	for n := range 150 {
		want[key(n).Path()] = endpoint{key(n), key(n).Path(), model.EndpointUp}
		stored[key(n+100).Path()] = model.EndpointDown // 50 of them are the same keys
	}
	puts, deletes := map[string]bool{}, map[string]bool{}
	for _, c := range changes(want, stored) {
		if n := len(c.Puts) + len(c.Deletes); n == 0 || n > batch {
			t.Errorf("%d writes in one transaction", n)
		}
		for _, p := range c.Puts {
			puts[p.Key.Path()] = true
			stored[p.Key.Path()] = p.Value.(model.EndpointStatus)
		}
		for _, k := range c.Deletes {
			deletes[k.Path()] = true
			delete(stored, k.Path())
		}
	}
	if len(puts) != 150 || len(deletes) != 100 {
		t.Errorf("%d puts, %d deletes", len(puts), len(deletes))
	}
	if changes := changes(want, stored); len(changes) != 0 {
		t.Errorf("once written, there is more: %v", changes)
	}
}
