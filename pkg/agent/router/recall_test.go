// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

const (
	saysFormer = "as 64512 neighbours [192.0.2.2 2001:db8::2] advertises [10.1.0.0/26 fd00:1::/122]"
	saysNow    = "as 64512 neighbours [192.0.2.2] advertises [10.1.0.0/26 10.2.0.0/26]"
)

// TestRecalls: BGP repeats what it said last while etcd is away, or isn't ready; nothing is programmed. Then it says what etcd says.
func TestRecalls(t *testing.T) {
	for name, before := range map[string]func(*crossroads){
		"etcd is away": func(*crossroads) {},
		"etcd is not ready": func(c *crossroads) {
			c.handover.Configure(defaults())
			c.Update(model.Update{Revision: 1, Resync: true, Entries: cluster()[1:]})
		},
		"etcd is empty": func(c *crossroads) { c.Update(model.Update{Revision: 1, Resync: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCrossroads(t, func(c *crossroads) { d := everything(); c.disk.former = &d })
				before(c)
				time.Sleep(time.Minute)
				c.expect(t, "the kernel")
				c.expectSaid(t, "the speaker", saysFormer+" 2s")
				c.handover.Configure(defaults())
				c.Update(model.Update{Revision: 2, Resync: true, Entries: cluster()})
				c.expect(t, "the kernel, by etcd", "whole ["+throughTun+", "+ownRoutes+"] 1m0s")
				c.expectSaid(t, "the speaker, by etcd", saysNow+" 1m0s")
			})
		})
	}
}

// TestSilent: a restarted agent reports that its BGP is silent, until it isn't.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCrossroads(t, func(c *crossroads) {
			c.former = []plan.Route{{Destination: prefix("10.2.1.0/26"), Kind: plan.Unicast}}
			c.kernel.health.SetUnready("")
		})
		time.Sleep(20 * time.Second)
		c.kernel.health.Turn()
		if got := reply(c.kernel.health, "/readiness"); !strings.Contains(got, "BGP is silent") || !strings.Contains(got, "file does not exist") {
			t.Errorf("readiness %q", got)
		}
		c.expectSaid(t, "the speaker")
		c.handover.Configure(defaults())
		c.Update(model.Update{Revision: 2, Resync: true, Entries: cluster()})
		synctest.Wait()
		if got := reply(c.kernel.health, "/readiness"); got != "" {
			t.Errorf("it speaks: readiness %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a first start
		c := startCrossroads(t, func(c *crossroads) { c.kernel.health.SetUnready("") })
		time.Sleep(20 * time.Second)
		c.kernel.health.Turn()
		if got := reply(c.kernel.health, "/readiness"); got != "" {
			t.Errorf("of a first start: readiness %q", got)
		}
	})
}

// TestRemembers: BGP's state is written seldom, and repeatedly until that works.
func TestRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(c *crossroads) { c.disk.full = errors.New("disk full") })
		time.Sleep(25 * time.Second)
		c.with(func() {
			if c.disk.kept != nil || c.disk.writes != 3 {
				t.Errorf("%d writes, %v is kept", c.disk.writes, c.disk.kept)
			}
			c.disk.full = nil
		})
		time.Sleep(saveRetry)
		c.with(func() {
			if c.disk.kept == nil || len(c.disk.kept.Advertisements) != 2 || c.disk.writes != 4 {
				t.Fatalf("%d writes, %v is kept", c.disk.writes, c.disk.kept)
			}
			c.disk.writes = 0
		})
		for i := range 30 {
			time.Sleep(100 * time.Millisecond)
			c.Update(model.Update{Revision: int64(i) + 2, Entries: []model.Entry{testBlock(fmt.Sprintf("10.2.9.%d/26", i/8*64), "h", int64(i)+2)}})
		}
		time.Sleep(time.Hour)
		c.with(func() {
			if len(c.disk.kept.Advertisements) != 6 || c.disk.writes > 4 {
				t.Errorf("%d writes, %v is kept", c.disk.writes, c.disk.kept)
			}
		})
	})
}
