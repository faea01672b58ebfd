// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/agent/problems"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// TestStraysJudged: what is said of an interface without an endpoint, and when.
func TestStraysJudged(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	named := map[string]bool{"cali1": true}
	x := strays{found: []hostpath.Stray{{Interface: "cali1", Alias: "calico net.c1.eth0"}, {Interface: "cali2", Alias: "calico net.c2.eth0"}, {Interface: "cali3", Alias: "somebody's"}}}
	expect := func(after time.Duration, want ...string) map[string]string {
		t.Helper()
		say := x.judge(func(f hostpath.Stray) bool { return named[f.Interface] }, false, noon.Add(after))
		if got := slices.Sorted(maps.Keys(say)); !slices.Equal(got, want) {
			t.Errorf("after %s: said of %v, want %v", after, got, want)
		}
		return say
	}
	expect(0)
	expect(strayPatience - 1)
	say := expect(strayPatience, "cali2")
	if reason := say["cali2"]; !strings.Contains(reason, " net.c2.eth0:") || !strings.Contains(reason, "delete the container") {
		t.Error(reason)
	}
	named["cali1"] = false // etcd is restored
	expect(strayPatience+1, "cali2")
	expect(2*strayPatience+1, "cali1", "cali2")
	named["cali2"] = true
	expect(2*strayPatience+2, "cali1")
	unread := x.judge(func(hostpath.Stray) bool { return false }, true, noon.Add(2*strayPatience+2))
	if reason := unread["cali1"]; !strings.Contains(reason, "that can be read has cali1") || !strings.Contains(reason, "correct those that can't be read") {
		t.Error(reason)
	}
	x.found = nil // it was deleted
	expect(2*strayPatience + 3)
	x.found = []hostpath.Stray{{Interface: "cali1", Alias: "calico net.c9.eth0"}}
	expect(2*strayPatience + 4)
}

// TestStrayReturns: what is said of an interface ends with what was wrong, not with the next audit.
func TestStrayReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := testSpec("cali1", "10.0.0.1")
		spec.ContainerID = "c1"
		c := startClockwork(t, func(c *clockwork) {
			c.strays = []hostpath.Stray{{Interface: "cali1", Alias: "calico net.c1.eth0"}}
			c.first[1] = put(testKey("a"), errors.New("cut short"), 1)
		})
		said := func() bool {
			synctest.Wait()
			return slices.ContainsFunc(c.problems.All(), func(p problems.Problem) bool { return p.Kind == problems.Notice && p.Path == "interface cali1" })
		}
		time.Sleep(21 * time.Second)
		if !said() {
			t.Fatalf("nothing is said of it: %v", c.problems.All())
		}
		c.updates <- store.Update{Revision: 2, Entries: []model.Entry{put(testKey("a"), spec, 2)}}
		if said() {
			t.Error("it has its endpoint again, and is said to be cut off")
		}
	})
}
