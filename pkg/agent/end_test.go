// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// TestStopWhileFlushing stops the loop while connections are being deleted for
// it: it ends when they are, and whoever deletes them does not wait for it. A
// bubble in which both wait fails by itself.
func TestStopWhileFlushing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		c.with(func() { c.tracked = time.Minute })
		c.updates <- store.Update{Revision: 2, Entries: []model.Entry{gone(testKey("a"))}}
		synctest.Wait()
		began := time.Now()
		c.cancel()
		<-c.stopped
		if took := time.Since(began); took != 0 {
			t.Errorf("the loop ended after %v", took)
		}
		c.flushes.Wait()
		if took := time.Since(began); took != time.Minute {
			t.Errorf("connections were deleted after %v", took)
		}
	})
}

// TestStatusLeaseLost revokes the lease of the host's status: the agent takes
// another, and writes the status again.
func TestStatusLeaseLost(t *testing.T) {
	for name, felix := range map[string]map[string]string{
		"found by the keepalive": {"reportingttlsecs": "5", "reportingintervalsecs": "3600"},
		"found by a report":      {"reportingttlsecs": "5", "reportingintervalsecs": "1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.put(model.ReadyKey{}, model.Ready(true))
			h.felix = felix
			h.start()
			h.ready()
			key := model.StatusKey{Host: h.name}
			h.until("status", func() bool { return h.get(key) != nil })
			first := h.leaseOf(key)
			if first == 0 {
				t.Fatal("the status has no lease")
			}
			h.client(func(ctx context.Context, c *clientv3.Client) error {
				_, err := c.Revoke(ctx, clientv3.LeaseID(first))
				return err
			})
			h.until("status under another lease", func() bool { return h.get(key) != nil && h.leaseOf(key) != first })
			h.ready()
		})
	}
}

// leaseOf is the lease that a key hangs on, 0 for none.
func (h *host) leaseOf(key model.Key) (id int64) {
	h.Helper()
	h.client(func(ctx context.Context, c *clientv3.Client) error {
		got, err := c.Get(ctx, key.Path())
		if err == nil && len(got.Kvs) > 0 {
			id = got.Kvs[0].Lease
		}
		return err
	})
	return id
}
