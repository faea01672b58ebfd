// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// TestFirewallFirst makes the firewall fail: nothing is connected until it is in place.
func TestFirewallFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) { c.kernelTable.Fail = errors.New("no nftables") })
		time.Sleep(2500 * time.Millisecond)
		c.expect(t, "without a firewall")
		if got := c.health.Unready(); got == "" {
			t.Error("it is ready")
		}
		c.kernelTable.Do(func() { c.kernelTable.Fail = nil })
		time.Sleep(time.Second)
		c.expect(t, "once it stands", "whole 3s")
		c.kernelTable.Do(func() { c.kernelTable.Fail = errors.New("again") })
		b := testKey("b")
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{put(b, testSpec("cali2", "10.0.0.2"), 2)}}
		c.expect(t, "one that stood goes on", "some 3.5s")
		ctx, cancel := context.WithTimeout(c.ctx, 100*time.Millisecond)
		defer cancel()
		if err := (gatekeeper{loop: c.loop}).Wait(ctx, gate.Request{Endpoint: b, Revision: 2}); !isNotYet(err, "firewall: apply policy to nftables: again") {
			t.Errorf("the gate while the firewall fails: %v", err)
		}
		if got := c.health.Unready(); got != "firewall: apply policy to nftables: again" {
			t.Errorf("while the firewall fails it is unready because of %q", got)
		}
		c.kernelTable.Do(func() { c.kernelTable.Fail = nil })
		if err := (gatekeeper{loop: c.loop}).Wait(c.ctx, gate.Request{Endpoint: b, Revision: 2}); err != nil {
			t.Errorf("the gate: %v", err)
		}
		synctest.Wait()
		if got := c.health.Unready(); got != "" {
			t.Errorf("once it stands again it is unready because of %q", got)
		}
	})
}

// TestFirewallOfOne makes the firewall of one endpoint fail: the gate stays closed for that one alone.
func TestFirewallOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := testKey("a"), testKey("b")
		c := startClockwork(t, func(c *clockwork) { c.kernelTable.Refuse = map[string]error{b.Path(): errors.New("too many rules")} })
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{put(b, testSpec("cali2", "10.0.0.2"), 2)}}
		if err := (gatekeeper{loop: c.loop}).Wait(c.ctx, gate.Request{Endpoint: a, Revision: 2}); err != nil {
			t.Errorf("the other's gate: %v", err)
		}
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		if err := (gatekeeper{loop: c.loop}).Wait(ctx, gate.Request{Endpoint: b, Revision: 2}); !isNotYet(err, "firewall: too many rules") {
			t.Errorf("its gate: %v", err)
		}
		synctest.Wait()
		if got := c.report.Noted(b.Path()); got != model.EndpointError {
			t.Errorf("it is reported as %q", got)
		}
	})
}

// TestTampering runs another program that keeps changing our table.
func TestTampering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) {
			c.first[1] = put(model.GlobalConfigKey{Name: "NftablesRefreshInterval"}, model.Text("10"), 1)
		})
		audits := func() (n int) {
			c.kernelTable.Do(func() { n, c.kernelTable.Audits = c.kernelTable.Audits, 0 })
			return n
		}
		time.Sleep(time.Second)
		audits()
		for range 10 {
			c.kernelTable.Tamper()
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if n := audits(); n < 2 || n > 4 {
			t.Errorf("%d audits in 50 ms of tampering, want one each %v", n, 20*time.Millisecond)
		}
		time.Sleep(30 * time.Second)
		if n := audits(); n != 3 {
			t.Errorf("%d audits in 30 s, want 3", n)
		}
	})
}

// TestLoserIsHidden has two endpoints claim one interface: the younger is not
// shown to the firewall.
func TestLoserIsHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		b := testKey("b")
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{put(b, testSpec("cali1", "10.0.0.2"), 2)}}
		synctest.Wait()
		if c.enforced(b) != nil {
			t.Error("the younger endpoint is shown")
		}
		c.updates <- model.Update{Revision: 3, Entries: []model.Entry{gone(testKey("a"))}}
		synctest.Wait()
		if ep := c.enforced(b); ep == nil || ep.Interface != "cali1" {
			t.Errorf("after the older has gone: %+v", ep)
		}
	})
}

// enforced returns the endpoint as the firewall has it.
func (c *clockwork) enforced(key model.Key) (ep *policy.Endpoint) {
	c.firewall.Enforced(func(p board.Enforced) { ep = p.State.Endpoints[key.Path()] })
	return ep
}
