// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// TestDenied: an endpoint that policy drops is not reported as up, although the rest of the agent accepts it.
func TestDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		older := put(testKey("older"), testSpec("cali2", "10.0.0.2"), 1)
		c.firewall.Update(older) // only the firewall gets it
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
		if got := c.reports.status(c.workload.Target(b.Path())); got != model.EndpointError {
			t.Errorf("status %s, want error", got)
		}
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		if err := (gatekeeper{loop: c.loop}).Wait(ctx, gate.Request{Endpoint: b, Revision: 3}); !isNotYet(err, want) {
			t.Errorf("the gate: %v", err)
		}
		synctest.Wait()
		older.Revision, older.Value = 0, nil
		c.firewall.Update(older)
		c.updates <- model.Update{Revision: 4}
		synctest.Wait()
		if got, status := reason(), c.reports.status(c.workload.Target(b.Path())); got != "" || status != model.EndpointUp {
			t.Errorf("without the older one: listed %q, status %s", got, status)
		}
	})
}

// TestUnmadeProfile: a Kubernetes pod starts when the controllers have created its profiles. A pod of another orchestrator, or one that
// lacks a profile of another kind, doesn't wait.
func TestUnmadeProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		revision := int64(1)
		tell := func(entries ...model.Entry) {
			revision++
			c.updates <- model.Update{Revision: revision, Entries: entries}
			synctest.Wait()
		}
		endpoint := func(orchestrator string, profiles ...string) gate.Request {
			key, spec := testKey("b"), testSpec("cali2", "10.0.0.2")
			key.Orchestrator, spec.ProfileIDs = orchestrator, profiles
			tell(put(key, spec, revision+1))
			return gate.Request{Endpoint: key, Revision: revision}
		}
		wait := func(r gate.Request) error {
			ctx, cancel := context.WithTimeout(c.ctx, time.Second)
			defer cancel()
			return gatekeeper{loop: c.loop}.Wait(ctx, r)
		}
		r := endpoint("k8s", "k8s_ns.b", "ksa.b.default")
		lacks := func(name string) {
			t.Helper()
			if err := wait(r); !isNotYet(err, "profile "+name+" does not exist, which calico-controllers make: look at kubectl ") {
				t.Errorf("without %s: %v", name, err)
			}
		}
		lacks("k8s_ns.b")
		tell(put(model.ProfileRulesKey{Profile: "k8s_ns.b"}, model.Rules{}, revision+1))
		lacks("k8s_ns.b") // by whose labels policies pick it
		tell(put(model.ProfileLabelsKey{Profile: "k8s_ns.b"}, model.Labels{}, revision+1))
		lacks("ksa.b.default")
		done := make(chan error, 1)
		go func() { done <- wait(r) }()
		synctest.Wait()
		labels := model.ProfileLabelsKey{Profile: "ksa.b.default"}
		tell(put(labels, model.Labels{}, revision+1))
		if err := <-done; err != nil {
			t.Errorf("with its profiles: %v", err)
		}
		tell(gone(labels))
		lacks("ksa.b.default")
		tell(gone(r.Endpoint))
		for _, r := range []gate.Request{endpoint("k8s", "net"), endpoint("cni", "k8s_ns.c")} {
			if err := wait(r); err != nil {
				t.Errorf("endpoint %s: %v", r.Endpoint.Path(), err)
			}
			tell(gone(r.Endpoint))
		}
	})
}
