// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/hostpath"
)

// TestStale: what is reported about an interface without an endpoint, and when.
func TestStale(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	named := map[string]bool{"cali1": true}
	x := stale{found: []hostpath.StaleLink{{Interface: "cali1", Alias: "calico net.c1.eth0"}, {Interface: "cali2", Alias: "calico net.c2.eth0"}, {Interface: "cali3", Alias: "somebody's"}}}
	expect := func(after time.Duration, want ...string) map[string]string {
		t.Helper()
		x.read = noon.Add(after)
		say := x.judge(func(f hostpath.StaleLink) bool { return named[f.Interface] }, false, x.read)
		if got := slices.Sorted(maps.Keys(say)); !slices.Equal(got, want) {
			t.Errorf("after %s: said of %v, want %v", after, got, want)
		}
		return say
	}
	expect(0)
	expect(stalePatience - 1)
	say := expect(stalePatience, "cali2")
	if reason := say["cali2"]; !strings.Contains(reason, " net.c2.eth0:") || !strings.Contains(reason, "delete the container") {
		t.Error(reason)
	}
	named["cali1"] = false // etcd is restored
	expect(stalePatience+1, "cali2")
	expect(2*stalePatience+1, "cali1", "cali2")
	named["cali2"] = true
	expect(2*stalePatience+2, "cali1")
	unread := x.judge(func(hostpath.StaleLink) bool { return false }, true, noon.Add(2*stalePatience+2))
	if reason := unread["cali1"]; !strings.Contains(reason, "that can be read has cali1") || !strings.Contains(reason, "correct those that can't be read") {
		t.Error(reason)
	}
	x.found = nil // it was deleted
	expect(2*stalePatience + 3)
	x.found = []hostpath.StaleLink{{Interface: "cali1", Alias: "calico net.c9.eth0"}}
	expect(2*stalePatience + 4)
}
