// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// TestInvalidHostEndpoint: what became of it is listed, and follows the interfaces.
func TestInvalidHostEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		there := []hostnet.Interface{{Name: "eth0"}}
		key := model.HostEndpointKey{Host: "h", Endpoint: "1"}
		write := func(value string, revision int64) store.Update {
			u := store.Update{Revision: revision, Entries: []model.Entry{put(key, nil, revision)}}
			if u.Entries[0].Value, u.Entries[0].Err = model.ParseValue(key, []byte(value)); u.Entries[0].Err != nil {
				u.Entries[0].Value = nil
			}
			new(readable).fill(u)
			return u
		}
		c := startClockwork(t, func(c *clockwork) {
			c.system.interfaces = func([]string) ([]hostnet.Interface, error) {
				mu.Lock()
				defer mu.Unlock()
				return there, nil
			}
			c.first = append(c.first, write(`{"expected_ipv4_addrs": ["192.0.2.10"], "labels": 5}`, 1).Entries...)
		})
		for i, step := range []struct {
			value      string // "" = as before
			interfaces []hostnet.Interface
			want       string
		}{
			{"", there, "labels: want an object, have a number; none of its expected addresses is on an interface"},
			{"", []hostnet.Interface{{Name: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}}, "labels: want an object, have a number; until it is corrected, it lets pass nothing by eth0 but"},
			{`{"name": "lo", "labels": 5}`, there, "labels: want an object, have a number; name lo: "},
			{`{"name": "lo"}`, there, "name lo: "},
			{`{"name": "eth0"}`, there, ""},
			{`{"name": "eth0"`, there, "not JSON: at byte 15: unexpected end of JSON input; until it is corrected, it has no effect"},
			{`{"name": "eth0"}`, there, ""},
		} {
			mu.Lock()
			there = step.interfaces
			mu.Unlock()
			if step.value != "" {
				c.updates <- write(step.value, int64(i+2))
			}
			c.events <- hostpath.Event{Host: true}
			time.Sleep(time.Second)
			said := ""
			for _, p := range c.problems.All() {
				if p.Path == key.Path() {
					said = p.Reason
				}
			}
			if !strings.HasPrefix(said, step.want) || (said == "") != (step.want == "") {
				t.Errorf("step %d: %q, want %q", i, said, step.want)
			}
		}
	})
}
