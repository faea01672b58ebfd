// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/model"
)

// TestRouterIDOutlivesAddress changes, removes and restores the host's IPv4 address: the identifier of its BGP sessions stays until another
// host has that address.
func TestRouterIDOutlivesAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := model.BGPHostKey{Host: "h", Field: model.BGPHostIPv4}
		other := model.BGPHostKey{Host: "o", Field: model.BGPHostIPv4}
		c := newCrossroads(t, func(*crossroads) {})
		synctest.Wait()
		for i, step := range []struct {
			name       string
			key        model.Key
			addr, want string
		}{
			{"both families", model.BGPHostKey{Host: "h", Field: model.BGPHostIPv6}, "2001:db8::1", "192.0.2.1"},
			{"another address", own, "192.0.2.11", "192.0.2.1"},
			{"none", own, "", "192.0.2.1"},
			{"one again", own, "192.0.2.12", "192.0.2.1"},
			{"another host takes the first", other, "192.0.2.1", "192.0.2.12"},
			{"which leaves it", other, "192.0.2.2", "192.0.2.12"},
		} {
			revision := int64(i + 2)
			c.Update(model.Update{Revision: revision, Entries: []model.Entry{put(step.key, model.Text(step.addr), revision)}})
			time.Sleep(2 * savePause)
			c.with(func() {
				if want := netip.MustParseAddr(step.want); c.routerID != want || c.disk.id != want {
					t.Errorf("%s: the router id is %s, and %s is noted; want %s", step.name, c.routerID, c.disk.id, want)
				}
			})
		}
	})
}

// TestUnheard: an agent whose BGP can't listen is unready if pods need that, but accepts pods all the same.
func TestUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(c *crossroads) {
			c.kernel.health.SetUnready("")
			c.refuse = &bgp.ListenError{Port: 179, Err: unix.EADDRINUSE}
		})
		synctest.Wait()
		want := "BGP doesn't run: listen for BGP: address already in use: another program listens at port 179, which `ss -ltnp 'sport = :179'` names: stop it, or set another BGPListenPort for all hosts"
		if ready, gate := reply(c.kernel.health, "/readiness"), c.kernel.health.Unready(); ready != want || gate != "" {
			t.Errorf("readiness %q, gate %q", ready, gate)
		}
		c.Update(model.Update{Revision: 2, Entries: []model.Entry{testPool("10.2.0.0/16", model.EncapAlways, 2)}})
		time.Sleep(20 * time.Second) // longer than the pause between tries
		c.kernel.health.Turn()
		if got := reply(c.kernel.health, "/readiness"); got != "" {
			t.Errorf("where all is encapsulated: %q", got)
		}
		c.Update(model.Update{Revision: 3, Entries: []model.Entry{testPool("10.2.0.0/16", model.EncapNever, 3)}})
		time.Sleep(20 * time.Second) // longer than the pause between tries
		c.kernel.health.Turn()
		if got := reply(c.kernel.health, "/readiness"); got != want {
			t.Errorf("again: %q", got)
		}
		c.with(func() { c.refuse = nil })
		time.Sleep(20 * time.Second) // longer than the pause between tries
		c.kernel.health.Turn()
		if got := reply(c.kernel.health, "/readiness"); got != "" {
			t.Errorf("the port is free: %q", got)
		}
	})
}

// reply returns why a page of the agent's health fails, "" = it doesn't.
func reply(h *health.Monitor, page string) string {
	w := httptest.NewRecorder()
	h.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", page, nil))
	return strings.TrimPrefix(strings.TrimSpace(w.Body.String()), "ok")
}
