// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
)

// TestInvalidHostEndpoint: an invalid host endpoint's state is listed, and changes with the interfaces.
func TestInvalidHostEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := []hostnet.Interface{{Name: "eth0"}}
		key := model.HostEndpointKey{Host: "h", Endpoint: "1"}
		write := func(value string, revision int64) model.Update {
			u := model.Update{Revision: revision, Entries: []model.Entry{put(key, nil, revision)}}
			if u.Entries[0].Value, u.Entries[0].Err = model.ParseValue(key, []byte(value)); u.Entries[0].Err != nil {
				u.Entries[0].Value = nil
			}
			new(readable).fill(u)
			return u
		}
		c := startClockwork(t, func(c *clockwork) {
			c.there = there
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
			c.with(func() { c.there = step.interfaces })
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

// TestAbsentInterface: a missing interface that a host endpoint names is listed until it exists, or none names it.
func TestAbsentInterface(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := []hostnet.Interface{{Name: "eth0"}}
		a, b := model.HostEndpointKey{Host: "h", Endpoint: "a"}, model.HostEndpointKey{Host: "h", Endpoint: "b"}
		var log bytes.Buffer // written by the loop, which waits while it is read
		c := startClockwork(t, func(c *clockwork) {
			c.log = slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &log), nil))
			c.there = there
			c.first = append(c.first, put(a, model.HostEndpoint{Name: "eht1"}, 1), put(model.HostEndpointKey{Host: "h", Endpoint: "c"}, model.HostEndpoint{Name: "*"}, 1))
		})
		list := func(names ...string) (all []hostnet.Interface) {
			for _, n := range names {
				all = append(all, hostnet.Interface{Name: n})
			}
			return all
		}
		named := func(key model.HostEndpointKey, has string) string {
			return "host endpoint " + key.Path() + " names it, and this host has none of this name: nothing is enforced before it has. If the name is wrong, correct it. The host has " + has
		}
		for i, step := range []struct {
			entries    []model.Entry
			interfaces []hostnet.Interface
			want       map[string]string
			logged     int
		}{
			{nil, there, map[string]string{"interface eht1": named(a, "eth0")}, 1},
			{nil, list("veth1", "eth0"), map[string]string{"interface eht1": named(a, "eth0, veth1")}, 1},
			{nil, list("eth0", "eht1"), map[string]string{}, 1},
			{nil, nil, map[string]string{"interface eht1": named(a, "none but workloads' and the loopback")}, 2},
			{[]model.Entry{gone(a), put(b, model.HostEndpoint{Name: "eht1"}, 2)}, nil, map[string]string{"interface eht1": named(b, "none but workloads' and the loopback")}, 3},
			{[]model.Entry{put(a, model.HostEndpoint{Name: "eht1"}, 3), put(b, model.HostEndpoint{Name: "eth0"}, 3)}, there, map[string]string{"interface eht1": named(a, "eth0")}, 4},
			{[]model.Entry{put(a, model.HostEndpoint{Name: "lo"}, 4)}, there, map[string]string{}, 4},
			{[]model.Entry{put(a, model.HostEndpoint{Name: "eth7"}, 5)}, there, map[string]string{"interface eth7": named(a, "eth0")}, 5},
			{[]model.Entry{gone(a)}, there, map[string]string{}, 5},
		} {
			c.with(func() { c.there = step.interfaces })
			c.events <- hostpath.Event{Host: true}
			time.Sleep(time.Second)
			if step.entries != nil {
				c.updates <- model.Update{Revision: int64(i + 2), Entries: step.entries}
			}
			synctest.Wait()
			said := map[string]string{}
			for _, p := range c.problems.All() {
				if p.Kind == problems.Notice {
					said[p.Path] = p.Reason
				}
			}
			if diff := cmp.Diff(step.want, said); diff != "" {
				t.Errorf("step %d (-want +got):\n%s", i, diff)
			}
			if got := strings.Count(log.String(), "names an interface that isn't there"); got != step.logged {
				t.Errorf("step %d: %d lines in the log, want %d", i, got, step.logged)
			}
		}
	})
}
