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

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
)

// TestStraysJudged: what is said of an interface without an endpoint, and when.
func TestStraysJudged(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	named := map[string]bool{"cali1": true}
	x := strays{found: []hostpath.Stray{{Interface: "cali1", Alias: "calico net.c1.eth0"}, {Interface: "cali2", Alias: "calico net.c2.eth0"}, {Interface: "cali3", Alias: "somebody's"}}}
	expect := func(after time.Duration, want ...string) map[string]string {
		t.Helper()
		x.read = noon.Add(after)
		say := x.judge(func(f hostpath.Stray) bool { return named[f.Interface] }, false, x.read)
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

// TestStraysBetween: what comes and goes in etcd between two readings says nothing new of interfaces, which may be gone.
func TestStraysBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) {
			c.first = append(c.first, put(model.GlobalConfigKey{Name: "RouteRefreshInterval"}, model.Text("60"), 1))
			c.strays = []hostpath.Stray{{Interface: "cali8", Alias: "calico net.c8.eth0"}}
		})
		said := func(want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, p := range c.problems.All() {
				got = append(got, p.Path)
			}
			if !slices.Equal(got, want) {
				t.Errorf("after %v it is said of %v, want %v", time.Since(c.start), got, want)
			}
		}
		time.Sleep(time.Minute + time.Second)
		said("interface cali8")
		// The ADD that has just made it fails, which nobody reads.
		c.with(func() {
			c.strays = append(c.strays, hostpath.Stray{Interface: "cali9", Alias: "calico net.c9.eth0"})
		})
		time.Sleep(time.Minute)
		for revision := int64(2); revision < 4; revision++ {
			time.Sleep(20 * time.Second)
			c.updates <- model.Update{Revision: revision, Entries: []model.Entry{put(testKey("b"), testSpec("cali2", "10.0.0.2"), revision)}}
			said("interface cali8")
		}
		time.Sleep(time.Minute)
		said("interface cali8", "interface cali9") // it is there still
	})
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
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{put(testKey("a"), spec, 2)}}
		if said() {
			t.Error("it has its endpoint again, and is said to be cut off")
		}
	})
}
