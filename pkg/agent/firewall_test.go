// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// kernelTable is the kernel's side of the firewall. What it does is tested in pkg/nft.
type kernelTable struct {
	mu       sync.Mutex
	refuse   map[string]error // by endpoint
	fail     error            // of every call
	hold     time.Duration    // of every call
	updates  []policy.Changes
	links    map[string]int // their indexes, as told
	applied  map[string]int // the same, when it was applied last
	audits   int
	repairs  int // of the next call
	tampered chan nft.Event
}

// Configure is of firewall.Table.
func (w *kernelTable) Configure(policy.Settings) {}

// Update is of firewall.Table.
func (w *kernelTable) Update(c policy.Changes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !c.Empty() {
		w.updates = append(w.updates, c)
	}
}

// Tunnels is of firewall.Table.
func (w *kernelTable) Tunnels(policy.Tunnels) {}

// Links is of firewall.Table.
func (w *kernelTable) Links(indexes map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, index := range indexes {
		if w.links == nil {
			w.links = map[string]int{}
		}
		w.links[name] = index
	}
}

// Cut is of firewall.Table.
func (w *kernelTable) Cut([]nft.Cut) error { return nil }

// Uncut is of firewall.Table.
func (w *kernelTable) Uncut([]nft.Flow) error { return nil }

// ReadCuts is of firewall.Table.
func (w *kernelTable) ReadCuts() ([]nft.Flow, error) { return nil, nil }

// Apply is of firewall.Table.
func (w *kernelTable) Apply(context.Context) (nft.Report, error) {
	w.mu.Lock()
	hold := w.hold
	w.mu.Unlock()
	time.Sleep(hold)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applied = maps.Clone(w.links)
	if w.fail != nil {
		return nft.Report{}, w.fail
	}
	r := nft.Report{Programmed: map[string]error{}, Repairs: w.repairs}
	w.repairs = 0
	for _, c := range w.updates {
		for path, ep := range c.Endpoints {
			if ep != nil {
				r.Programmed[path] = w.refuse[path]
			}
		}
	}
	return r, nil
}

// Audit is of firewall.Table.
func (w *kernelTable) Audit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.audits++
}

// Subscribe is of firewall.Table.
func (w *kernelTable) Subscribe(context.Context) (<-chan nft.Event, error) { return w.tampered, nil }

// Close is of firewall.Table.
func (w *kernelTable) Close() error { return nil }

// set changes what the firewall does, or looks at it.
func (w *kernelTable) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// TestFirewallFirst has the firewall fail: nothing is connected until it stands.
func TestFirewallFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) { c.kernelTable.fail = errors.New("no nftables") })
		time.Sleep(2500 * time.Millisecond)
		c.expect(t, "without a firewall")
		if got := c.health.Unready(); got == "" {
			t.Error("it is ready")
		}
		c.kernelTable.set(func() { c.kernelTable.fail = nil })
		time.Sleep(time.Second)
		c.expect(t, "once it stands", "whole 3s")
		c.kernelTable.set(func() { c.kernelTable.fail = errors.New("again") })
		b := testKey("b")
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{put(b, testSpec("cali2", "10.0.0.2"), 2)}}
		c.expect(t, "one that stood goes on", "some 3.5s")
		ctx, cancel := context.WithTimeout(c.ctx, 100*time.Millisecond)
		defer cancel()
		if err := (gatekeeper{loop: c.loop}).Wait(ctx, gate.Request{Endpoint: b, Revision: 2}); !isNotYet(err, "firewall: again") {
			t.Errorf("the gate while the firewall fails: %v", err)
		}
		if got := c.health.Unready(); got != "firewall: again" {
			t.Errorf("while the firewall fails it is unready because of %q", got)
		}
		c.kernelTable.set(func() { c.kernelTable.fail = nil })
		if err := (gatekeeper{loop: c.loop}).Wait(c.ctx, gate.Request{Endpoint: b, Revision: 2}); err != nil {
			t.Errorf("the gate: %v", err)
		}
		synctest.Wait()
		if got := c.health.Unready(); got != "" {
			t.Errorf("once it stands again it is unready because of %q", got)
		}
	})
}

// TestFirewallOfOne has the firewall of one endpoint fail: the gate stays closed for it alone.
func TestFirewallOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := testKey("a"), testKey("b")
		c := startClockwork(t, func(c *clockwork) { c.kernelTable.refuse = map[string]error{b.Path(): errors.New("too many rules")} })
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

// TestTampering has another program fight for our table.
func TestTampering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) { c.params.FirewallInterval = 10 * time.Second })
		audits := func() (n int) {
			c.kernelTable.set(func() { n, c.kernelTable.audits = c.kernelTable.audits, 0 })
			return n
		}
		time.Sleep(time.Second)
		audits()
		for range 10 {
			c.kernelTable.tampered <- nft.Event{}
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

// enforced is what the firewall has of an endpoint.
func (c *clockwork) enforced(key model.Key) (ep *policy.Endpoint) {
	c.firewall.Enforced(func(p connections.Policy) { ep = p.State.Endpoints[key.Path()] })
	return ep
}
