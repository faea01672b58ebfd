// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/model"
)

// ShrinkMTU implements workload.Path.
func (c *clockwork) ShrinkMTU(_ context.Context, mtu int) (changed int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("shrink %d %v", mtu, time.Since(c.start)))
	return 0, cmp.Or(c.unshrunk, c.fail)
}

// TestMTU applies the router's MTU: to the plugin, and to running workloads.
func TestMTU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		written := func(want string) {
			t.Helper()
			if got, err := os.ReadFile(filepath.Join(c.system.files.dir, mtuName)); string(got) != want+"\n" {
				t.Errorf("written: %q, %v, want %s", got, err, want)
			}
		}
		c.expect(t, "nothing is known", "whole 0s")
		time.Sleep(time.Second) // what falls due at once with the audit comes before or after it
		c.handover.Tell(router.News{MTU: 1500})
		c.expect(t, "at the start it may pass")
		time.Sleep(11 * time.Second)
		c.expect(t, "it has stood", "whole 10s", "shrink 1500 11s")
		time.Sleep(113 * time.Second)
		c.did()
		c.handover.Tell(router.News{MTU: 1500})
		c.expect(t, "as before")
		written("1500")
		c.handover.Tell(router.News{MTU: 1450})
		c.expect(t, "it shrinks, which may pass")
		written("1450")
		time.Sleep(11 * time.Second)
		c.expect(t, "it has stood", "whole 2m10s", "shrink 1450 2m15s")
		time.Sleep(9 * time.Second)
		c.expect(t, "once more, for what was made meanwhile", "whole 2m20s", "shrink 1450 2m20s")
		time.Sleep(time.Minute)
		c.did()
		c.handover.Tell(router.News{MTU: 1500})
		c.expect(t, "it grows")
		written("1500")
		c.handover.Tell(router.News{})
		c.expect(t, "it isn't known any more")
		c.with(func() { c.unshrunk = errors.New("no") })
		live := func(is string, revision int64) {
			c.updates <- model.Update{Revision: revision, Entries: []model.Entry{put(model.GlobalConfigKey{Name: "MTULiveUpdate"}, model.Text(is), revision)}}
		}
		live("false", 2)
		c.handover.Tell(router.News{MTU: 1400})
		time.Sleep(12 * time.Second)
		c.expect(t, "workloads keep it", "whole 3m30s")
		live("true", 3)
		c.expect(t, "they no longer do", "shrink 1400 3m37s")
		written("1400")
	})
}

// TestMTUPasses shrinks the MTU for less than ten seconds, repeatedly: running workloads keep theirs, as they would never get it back.
func TestMTUPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		c.handover.Tell(router.News{MTU: 9000})
		time.Sleep(91 * time.Second)
		c.did()
		for _, mtu := range []int{1400, 9000, 1400, 0, 1400, 1450, 9000} {
			c.handover.Tell(router.News{MTU: mtu})
			time.Sleep(9 * time.Second)
		}
		time.Sleep(time.Minute)
		for _, call := range c.did() {
			if strings.HasPrefix(call, "shrink") {
				t.Error(call)
			}
		}
		c.handover.Tell(router.News{MTU: 1400})
		c.handover.Tell(router.News{MTU: 1450})
		time.Sleep(11 * time.Second)
		if did := c.did(); !slices.ContainsFunc(did, func(s string) bool { return strings.HasPrefix(s, "shrink 1450 ") }) {
			t.Errorf("less than 9000 has stood: %q", did)
		}
	})
}

// TestFirewallAwaitsTunnels: the firewall waits for a router that says nothing, but not for ever.
func TestFirewallAwaitsTunnels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) { c.routed = true })
		time.Sleep(time.Second)
		c.expect(t, "it waits")
		time.Sleep(5 * time.Second)
		c.expect(t, "not for ever", "whole 2s")
	})
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) { c.routed = true })
		time.Sleep(time.Second)
		c.handover.Tell(router.News{})
		c.expect(t, "it is told", "whole 1s")
	})
}
