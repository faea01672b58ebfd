// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// ShrinkMTU is of hostPath.
func (c *clockwork) ShrinkMTU(_ context.Context, mtu int) (changed int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("shrink %d %v", mtu, time.Since(c.start)))
	return 0, cmp.Or(c.unshrunk, c.fail)
}

// TestMTU follows what the router says: for the plugin, and for workloads that run.
func TestMTU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written []int
		c := startClockwork(t, func(c *clockwork) {
			c.system.writeMTU = func(mtu int) error {
				written = append(written, mtu)
				return nil
			}
		})
		c.expect(t, "nothing is known", "whole 0s")
		c.handover.Tell(router.News{MTU: 1500})
		c.expect(t, "at the start", "shrink 1500 0s")
		time.Sleep(125 * time.Second)
		c.did()
		c.handover.Tell(router.News{MTU: 1500})
		c.expect(t, "as before")
		c.handover.Tell(router.News{MTU: 1450})
		c.expect(t, "it shrinks", "shrink 1450 2m5s")
		time.Sleep(10 * time.Second)
		c.expect(t, "once more, for what was made meanwhile", "look 2m10s", "shrink 1450 2m10s")
		time.Sleep(time.Minute)
		c.did()
		c.handover.Tell(router.News{MTU: 1500})
		c.expect(t, "it grows")
		c.handover.Tell(router.News{})
		c.expect(t, "it isn't known any more")
		c.with(func() { c.fail = errors.New("no") })
		live := func(is string, revision int64) {
			c.updates <- store.Update{Revision: revision, Entries: []model.Entry{put(model.GlobalConfigKey{Name: "MTULiveUpdate"}, model.Text(is), revision)}}
		}
		live("false", 2)
		c.handover.Tell(router.News{MTU: 1400})
		c.expect(t, "workloads shall keep it")
		live("true", 3)
		c.expect(t, "they shan't any more", "shrink 1400 3m15s")
		if got := fmt.Sprint(slices.Compact(written)); got != "[1500 1450 1500 1400]" {
			t.Errorf("written: %s", got)
		}
	})
}

// TestMTUAgain has a workload that could not be given its MTU: it is tried again.
func TestMTUAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		c.expect(t, "nothing is known", "whole 0s")
		time.Sleep(time.Second)
		c.with(func() { c.unshrunk = errors.New("no") })
		c.handover.Tell(router.News{MTU: 1500})
		c.expect(t, "at the start", "shrink 1500 1s")
		time.Sleep(20 * time.Second)
		c.expect(t, "again and again", "look 10s", "shrink 1500 10s", "look 20s", "shrink 1500 20s")
		c.with(func() { c.unshrunk = nil })
		time.Sleep(20 * time.Second)
		c.expect(t, "until it works", "look 30s", "shrink 1500 30s", "look 40s")
	})
}

// TestFenceAwaitsRoutes has a router that says nothing: the firewall waits for it, but
// not for ever.
func TestFenceAwaitsRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) { c.route.attached = true })
		time.Sleep(time.Second)
		c.expect(t, "it waits")
		time.Sleep(5 * time.Second)
		c.expect(t, "not for ever", "whole 2s")
	})
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) { c.route.attached = true })
		time.Sleep(time.Second)
		c.handover.Tell(router.News{})
		c.expect(t, "it is told", "whole 1s")
	})
}
