// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// TestConnectBeside slows the firewall down to a second: meanwhile only a workload that it never knew is connected, and the gate waits for
// both.
func TestConnectBeside(t *testing.T) {
	a, b := testKey("a"), testKey("b")
	for _, test := range []struct {
		name    string
		before  error // of the firewall, when it was applied last
		entries []model.Entry
		want    string
	}{
		{"a new workload", nil, []model.Entry{put(b, testSpec("cali2", "10.0.0.2"), 2)}, "some 1s"},
		{"the firewall failed before", errors.New("no"), []model.Entry{put(b, testSpec("cali2", "10.0.0.2"), 2)}, "some 2s"},
		{"another label", nil, []model.Entry{put(a, labelled(testSpec("cali1", "10.0.0.1")), 2)}, "some 1s"},
		{"another address", nil, []model.Entry{put(a, testSpec("cali1", "10.0.0.9"), 2)}, "some 2s"},
		{"another's interface", nil, []model.Entry{put(a, nil, 2), put(b, testSpec("cali1", "10.0.0.2"), 2)}, "some 2s"},
		{"a new one, and another address", nil, []model.Entry{put(a, testSpec("cali1", "10.0.0.9"), 2), put(b, testSpec("cali2", "10.0.0.2"), 2)}, "some 2s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClockwork(t)
				c.expect(t, "at the start", "whole 0s")
				if test.before != nil {
					c.kernelTable.Do(func() { c.kernelTable.Fail = test.before })
					c.updates <- model.Update{Revision: 2, Entries: []model.Entry{put(model.ReadyKey{}, model.Ready(true), 2)}}
					synctest.Wait()
					c.did()
				}
				time.Sleep(time.Second - time.Since(c.start))
				c.kernelTable.Do(func() { c.kernelTable.Fail, c.kernelTable.Hold = nil, time.Second })
				c.updates <- model.Update{Revision: 3, Entries: test.entries}
				key := test.entries[len(test.entries)-1].Key.(model.WorkloadEndpointKey)
				if err := (gatekeeper{loop: c.loop}).Wait(c.ctx, gate.Request{Endpoint: key, Revision: 2}); err != nil {
					t.Error(err)
				}
				if took := time.Since(c.start); took < 2*time.Second {
					t.Errorf("the gate answered after %v", took)
				}
				c.expect(t, "the host's data path", test.want)
			})
		})
	}
}

func labelled(w model.WorkloadEndpoint) model.WorkloadEndpoint {
	w.Labels = model.Labels{"role": "web"}
	return w
}
