// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// TestDenied has policy drop an endpoint that the rest of the agent finds good: it is
// not said to be up.
func TestDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		older := put(testKey("older"), testSpec("cali2", "10.0.0.2"), 1)
		c.firewall.Update(older) // of which nobody else is told
		b := testKey("b")
		c.updates <- model.Update{Revision: 3, Entries: []model.Entry{put(b, testSpec("cali2", "10.0.0.2"), 3)}}
		synctest.Wait()
		reason := func() string {
			for _, p := range c.problems.All() {
				if p.Path == b.Path() {
					return p.Reason
				}
			}
			return ""
		}
		const want = "all its packets are dropped: interface cali2 belongs to an older endpoint, /calico/v1/host/h/workload/k8s/older/endpoint/eth0"
		if got := reason(); got != want {
			t.Errorf("listed: %q", got)
		}
		if got := c.reports.status(c.workload.Target(b.Path())); got != model.EndpointError {
			t.Errorf("status %s, want error", got)
		}
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		if err := (gatekeeper{loop: c.loop}).Wait(ctx, gate.Request{Endpoint: b, Revision: 3}); !isNotYet(err, want) {
			t.Errorf("the gate: %v", err)
		}
		synctest.Wait()
		older.Revision, older.Value = 0, nil
		c.firewall.Update(older)
		c.updates <- model.Update{Revision: 4}
		synctest.Wait()
		if got, status := reason(), c.reports.status(c.workload.Target(b.Path())); got != "" || status != model.EndpointUp {
			t.Errorf("without the older one: listed %q, status %s", got, status)
		}
	})
}
