// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/health"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/model"
)

// TestLeases: while another lease is to come in the place of the one that the status hangs
// on, the file names both, and a host that objects does so under the one by which it lives.
func TestLeases(t *testing.T) {
	c := newFleet(t)
	m := machine{disk: t.TempDir()}
	r := newReporter(slog.New(slog.DiscardHandler), c.store, "a", health.New())
	r.life = &life{path: filepath.Join(m.disk, LeasesName)}
	r.ask(func() {})
	defer r.takeBack()
	status := model.StatusKey{Host: "a"}
	report := func(ttl time.Duration, p permission) {
		t.Helper()
		params := params.Resolve().Params
		params.ReportTTL = ttl
		r.configure(params)
		r.permit(p, 1<<40, true)
		if err := r.reportHost(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	named := func(want ...int64) {
		t.Helper()
		all, err := parseLeases([]byte(c.disk(t, m)))
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, l := range all {
			got = append(got, l.id)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("on disk (-want +got):\n%s", diff)
		}
	}
	report(time.Minute, permission{})
	first := r.lease.ID()
	if got := c.leaseOf(status); got != first {
		t.Fatalf("the status hangs on %x, want %x", got, first)
	}
	named(first)

	revision := c.put(status, model.Status{Time: time.Now()}) // another claims the name
	report(2*time.Minute, permission{revision: revision - 1})
	named(r.lease.ID(), first)
	r.fresh = 0 // all is heard
	report(3*time.Minute, permission{revision: revision - 1})
	named(r.lease.ID(), first)
	r.fresh = 0
	alive, _ := r.standing()
	report(3*time.Minute, permission{revision: revision, lease: alive})
	if got := c.leaseOf(status); got != first || r.former != nil {
		t.Errorf("it objects under %x, want %x", got, first)
	}
	alive, wrote := r.standing()
	report(3*time.Minute, permission{revision: wrote})
	if got := c.leaseOf(status); got == first || got != r.lease.ID() || alive != first {
		t.Errorf("afterwards the status hangs on %x, want %x", got, r.lease.ID())
	}
}
