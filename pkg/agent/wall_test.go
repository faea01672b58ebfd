// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// TestMisfit has what policy says of itself not fit together: it is reported,
// that part stays as it was, and the rest goes on.
func TestMisfit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		picks := model.Policy{Selector: "all()", Inbound: []model.Rule{{
			Action: model.ActionAllow, Match: model.Match{SrcSelector: "role == 'web'", HasSrcSelector: true},
		}}}
		c.updates <- model.Update{Revision: 2, Entries: []model.Entry{put(model.PolicyKey{Tier: "default", Policy: "p"}, picks, 2)}}
		synctest.Wait()
		if len(c.wall.state.Sets) != 1 {
			t.Fatalf("%d sets, want 1", len(c.wall.state.Sets))
		}
		clear(c.wall.state.Sets)
		web, b := testSpec("cali1", "10.0.0.1"), testSpec("cali2", "10.0.0.2")
		web.Labels = map[string]string{"role": "web"}
		c.updates <- model.Update{Revision: 3, Entries: []model.Entry{put(testKey("a"), web, 3), put(testKey("b"), b, 3)}}
		synctest.Wait()
		found := ""
		for _, p := range c.problems.All() {
			if p.Path == "policy of this host" {
				found = p.Reason
			}
		}
		if !strings.Contains(found, "was not there") {
			t.Errorf("reported is %q", found)
		}
		if c.wall.state.Endpoints[testKey("b").Path()] == nil {
			t.Error("another endpoint is not followed")
		}
	})
}

// TestOneJudge has endpoints that the data model refuses beside good ones that have their
// interface or address: what they claim, they don't keep from the good ones.
func TestOneJudge(t *testing.T) {
	good := testSpec("cali1", "10.0.0.1")
	for _, bad := range []string{
		`{"state":"active","name":"cali1","profile_ids":[],"ipv4_nets":["10.0.0.1/32"],"ipv6_nets":["fe80::1/128"]}`,
		`{"state":"active","name":"cali1","profile_ids":[],"ipv4_nets":["10.0.0.1/32","255.255.255.255/32"]}`,
		`{"state":"active","name":"cali1","profile_ids":[],"ipv4_nets":["10.0.0.1/32"],"ipv4_nat":[{"int_ip":"10.0.0.1","ext_ip":"169.254.1.1"}]}`,
		`{"state":"active","name":"cali%d","profile_ids":[],"ipv4_nets":["10.0.0.1/32"]}`,
	} {
		old := put(testKey("old"), nil, 1)
		old.Value, old.Err = model.ParseValue(old.Key, []byte(bad))
		s, d, w := newState("h", []string{"cali"}), newDesired(), newWall("h")
		w.engine.SetPrefixes(s.prefixes)
		e := s.fold(model.Update{Revision: 2, Resync: true, Entries: []model.Entry{old, put(testKey("new"), good, 2)}})
		w.engine.Update(e.entries...)
		d.follow(s, e.endpoints, time.Time{})
		w.follow(d, e.endpoints)
		if old := d.targets[testKey("old").Path()]; old.refused == nil || w.state.Endpoints[old.path] != nil {
			t.Errorf("not refused: %s", bad)
		}
		target := d.targets[testKey("new").Path()]
		ep := w.state.Endpoints[target.path]
		if target.refused != nil || ep == nil || ep.Dropped != "" {
			t.Errorf("beside %s: refused: %v, dropped: %+v", bad, target.refused, ep)
		}
	}
}

// TestDenied has policy drop an endpoint that the rest of the agent finds good: it is
// not said to be up.
func TestDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		older := put(testKey("older"), testSpec("cali2", "10.0.0.2"), 1)
		c.wall.engine.Update(older) // of which nobody else is told
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
		if got := c.status(c.desired.targets[b.Path()]); got != model.EndpointError {
			t.Errorf("status %s, want error", got)
		}
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		if err := (gatekeeper{c.loop}).Wait(ctx, gate.Request{Endpoint: b, Revision: 3}); !isNotYet(err, want) {
			t.Errorf("the gate: %v", err)
		}
		synctest.Wait()
		older.Revision, older.Value = 0, nil
		c.wall.engine.Update(older)
		c.updates <- model.Update{Revision: 4}
		synctest.Wait()
		if got, status := reason(), c.status(c.desired.targets[b.Path()]); got != "" || status != model.EndpointUp {
			t.Errorf("without the older one: listed %q, status %s", got, status)
		}
	})
}
