// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/model"
)

// ShrinkMTU is of workload.Path.
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
		time.Sleep(time.Second) // what falls due at once with the audit comes before or after it
		c.router.handover.Tell(router.News{MTU: 1500})
		c.expect(t, "at the start it may pass")
		time.Sleep(11 * time.Second)
		c.expect(t, "it has stood", "whole 10s", "shrink 1500 11s")
		time.Sleep(113 * time.Second)
		c.did()
		c.router.handover.Tell(router.News{MTU: 1500})
		c.expect(t, "as before")
		c.router.handover.Tell(router.News{MTU: 1450})
		c.expect(t, "it shrinks, which may pass")
		time.Sleep(11 * time.Second)
		c.expect(t, "it has stood", "whole 2m10s", "shrink 1450 2m15s")
		time.Sleep(9 * time.Second)
		c.expect(t, "once more, for what was made meanwhile", "whole 2m20s", "shrink 1450 2m20s")
		time.Sleep(time.Minute)
		c.did()
		c.router.handover.Tell(router.News{MTU: 1500})
		c.expect(t, "it grows")
		c.router.handover.Tell(router.News{})
		c.expect(t, "it isn't known any more")
		c.with(func() { c.unshrunk = errors.New("no") })
		live := func(is string, revision int64) {
			c.updates <- model.Update{Revision: revision, Entries: []model.Entry{put(model.GlobalConfigKey{Name: "MTULiveUpdate"}, model.Text(is), revision)}}
		}
		live("false", 2)
		c.router.handover.Tell(router.News{MTU: 1400})
		time.Sleep(12 * time.Second)
		c.expect(t, "workloads keep it", "whole 3m30s")
		live("true", 3)
		c.expect(t, "they shan't any more", "shrink 1400 3m37s")
		if got := fmt.Sprint(slices.Compact(written)); got != "[1500 1450 1500 1400]" {
			t.Errorf("written: %s", got)
		}
	})
}

// TestFullDisk has what is left for the plugin not be written: that is tried with each audit, and said once.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left on device")
		var said bytes.Buffer
		c := startClockwork(t, func(c *clockwork) {
			c.log = slog.New(slog.NewTextHandler(&said, nil))
			c.system.writeMTU = func(int) error { return full }
			c.system.writeNode = func() error { return full }
		})
		c.router.handover.Tell(router.News{MTU: 1400})
		time.Sleep(time.Minute)
		c.cancel()
		synctest.Wait()
		for _, want := range []string{"name is not left for the plugin", "MTU of workloads is not left for the plugin"} {
			if n := strings.Count(said.String(), want); n != 1 {
				t.Errorf("%q is said %d times:\n%s", want, n, said.String())
			}
		}
	})
}

// TestMTUPasses has the MTU shrink for less than ten seconds, again and again: workloads that run keep
// theirs, as they would never get it back.
func TestMTUPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		c.router.handover.Tell(router.News{MTU: 9000})
		time.Sleep(91 * time.Second)
		c.did()
		for _, mtu := range []int{1400, 9000, 1400, 0, 1400, 1450, 9000} {
			c.router.handover.Tell(router.News{MTU: mtu})
			time.Sleep(9 * time.Second)
		}
		time.Sleep(time.Minute)
		for _, call := range c.did() {
			if strings.HasPrefix(call, "shrink") {
				t.Error(call)
			}
		}
		c.router.handover.Tell(router.News{MTU: 1400})
		c.router.handover.Tell(router.News{MTU: 1450})
		time.Sleep(11 * time.Second)
		if did := c.did(); !slices.ContainsFunc(did, func(s string) bool { return strings.HasPrefix(s, "shrink 1450 ") }) {
			t.Errorf("less than 9000 has stood: %q", did)
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
		c.router.handover.Tell(router.News{MTU: 1500})
		time.Sleep(11 * time.Second)
		c.expect(t, "at the start", "whole 10s", "shrink 1500 11s")
		time.Sleep(20 * time.Second)
		c.expect(t, "again and again", "whole 20s", "shrink 1500 20s", "whole 30s", "shrink 1500 30s")
		c.with(func() { c.unshrunk = nil })
		time.Sleep(20 * time.Second)
		c.expect(t, "until it works", "whole 40s", "shrink 1500 40s", "whole 50s")
	})
}

// TestFirewallAwaitsTunnels has a router that says nothing: the firewall waits for it, but
// not for ever.
func TestFirewallAwaitsTunnels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) { c.router.attached = true })
		time.Sleep(time.Second)
		c.expect(t, "it waits")
		time.Sleep(5 * time.Second)
		c.expect(t, "not for ever", "whole 2s")
	})
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) { c.router.attached = true })
		time.Sleep(time.Second)
		c.router.handover.Tell(router.News{})
		c.expect(t, "it is told", "whole 1s")
	})
}
