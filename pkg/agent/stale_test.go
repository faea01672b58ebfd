// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
)

// TestStaleReturns: what is said of an interface ends with what was wrong, not with the next audit.
func TestStaleReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := testSpec("cali1", "10.0.0.1")
		spec.ContainerID = "c1"
		c := startClockwork(t, func(c *clockwork) {
			c.stale = []hostpath.StaleLink{{Interface: "cali1", Alias: "calico net.c1.eth0"}}
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
