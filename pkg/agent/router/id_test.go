// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/model"
)

// TestRouterIDOutlivesAddress has the host's IPv4 address change, go and come: the
// identifier of its BGP sessions stays until another host has that address.
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
			c.Hear(model.Update{Revision: revision, Entries: []model.Entry{put(step.key, model.Text(step.addr), revision)}})
			synctest.Wait()
			c.with(func() {
				if want := netip.MustParseAddr(step.want); c.routerID != want || c.notedID != want {
					t.Errorf("%s: the router id is %s, and %s is noted; want %s", step.name, c.routerID, c.notedID, want)
				}
			})
		}
	})
}

// TestRouterIDOutlivesAgent: neighbours that keep the routes of an agent that restarts know it again, though the
// host's address is another. Not so where another host has the former by now.
func TestRouterIDOutlivesAgent(t *testing.T) {
	for former, want := range map[string]string{"192.0.2.9": "192.0.2.9", "192.0.2.2": "192.0.2.1"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrossroads(t, func(c *crossroads) { c.formerID = netip.MustParseAddr(former) })
			synctest.Wait()
			c.with(func() {
				if c.routerID != netip.MustParseAddr(want) {
					t.Errorf("after %s: the router id is %s, want %s", former, c.routerID, want)
				}
			})
		})
	}
}

// TestRouterIDUnwritten: an identifier that can't be written is when that can be done, though nothing else changes;
// and again when it is gone.
func TestRouterIDUnwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(c *crossroads) { c.noNote = unix.ENOSPC })
		synctest.Wait()
		for _, step := range []struct {
			name string
			err  error
			want netip.Addr
		}{
			{"no room", unix.ENOSPC, netip.Addr{}},
			{"room again", nil, netip.MustParseAddr("192.0.2.1")},
		} {
			c.with(func() { c.noNote = step.err })
			time.Sleep(2 * c.params.RefreshInterval)
			synctest.Wait()
			c.with(func() {
				if c.notedID != step.want {
					t.Errorf("%s: %s is noted, want %s", step.name, c.notedID, step.want)
				}
				c.notedID = netip.Addr{}
			})
		}
		time.Sleep(2 * c.params.RefreshInterval)
		c.with(func() {
			if want := netip.MustParseAddr("192.0.2.1"); c.notedID != want {
				t.Errorf("deleted: %s is noted, want %s", c.notedID, want)
			}
		})
	})
}

// TestUnheard: an agent whose BGP can't listen isn't ready where pods need that, and takes pods all the same.
func TestUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(c *crossroads) {
			c.health.SetUnready("")
			c.refuse = &bgp.ListenError{Port: 179, Err: unix.EADDRINUSE}
		})
		synctest.Wait()
		want := "BGP doesn't run: listen for BGP: address already in use: another program listens at port 179, which `ss -ltnp 'sport = :179'` names: stop it, or set another BGPListenPort for all hosts"
		if ready, gate := reply(c.health, "/readiness"), c.health.Unready(); ready != want || gate != "" {
			t.Errorf("readiness %q, gate %q", ready, gate)
		}
		c.Hear(model.Update{Revision: 2, Entries: []model.Entry{testPool("10.2.0.0/16", model.EncapAlways, 2)}})
		time.Sleep(20 * time.Second) // longer than the pause between tries
		c.health.Turn()
		if got := reply(c.health, "/readiness"); got != "" {
			t.Errorf("where all is encapsulated: %q", got)
		}
		c.Hear(model.Update{Revision: 3, Entries: []model.Entry{testPool("10.2.0.0/16", model.EncapNever, 3)}})
		time.Sleep(20 * time.Second) // longer than the pause between tries
		c.health.Turn()
		if got := reply(c.health, "/readiness"); got != want {
			t.Errorf("again: %q", got)
		}
		c.with(func() { c.refuse = nil })
		time.Sleep(20 * time.Second) // longer than the pause between tries
		c.health.Turn()
		if got := reply(c.health, "/readiness"); got != "" {
			t.Errorf("the port is free: %q", got)
		}
	})
}

func TestRouterIDFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "var")
	f := newIDFile(dir, "h")
	expect := func(what string, f idFile, want netip.Addr) {
		t.Helper()
		if got, err := f.read(); got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", what, got, err, want)
		}
	}
	expect("no file", f, netip.Addr{})
	id := netip.MustParseAddr("192.0.2.1")
	if err := f.write(id); err != nil {
		t.Fatal(err)
	}
	expect("what was written", f, id)
	expect("of another host, by a copied disk", idFile{f.path, "o"}, netip.Addr{})
	for _, text := range []string{"", "h", "h 0.0.0.0", "h fd00::1", "h\x00 192.0.2.1", "192.0.2.1"} {
		if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		expect(text, f, netip.Addr{})
	}
	if _, err := (idFile{t.TempDir(), "h"}).read(); err == nil {
		t.Error("a directory is read")
	}
}

// reply is why the agent isn't well as a page of its health has it, "" = it is.
func reply(h *health.Monitor, page string) string {
	w := httptest.NewRecorder()
	h.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", page, nil))
	return strings.TrimPrefix(strings.TrimSpace(w.Body.String()), "ok")
}
