// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

// TestLeases: while another lease is to come in the place of the one that the status hangs
// on, both are kept, and a host that objects does so under the one by which it lives.
func TestLeases(t *testing.T) {
	e := etcd.New(t)
	r := New(slog.New(slog.DiscardHandler), e.Store, "a", health.New())
	var kept []int64
	r.Ask(func() {}, func(lease, beside int64) error {
		kept = []int64{lease}
		if beside != 0 {
			kept = append(kept, beside)
		}
		return nil
	})
	defer r.takeBack()
	status := model.StatusKey{Host: "a"}
	report := func(ttl time.Duration, p Permission) {
		t.Helper()
		params := params.Resolve().Params
		params.ReportTTL = ttl
		r.Configure(params)
		r.Permit(p, 1<<40, true)
		if err := r.reportHost(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	named := func(want ...int64) {
		t.Helper()
		if diff := cmp.Diff(want, kept); diff != "" {
			t.Errorf("kept (-want +got):\n%s", diff)
		}
	}
	report(time.Minute, Permission{})
	first := r.lease.ID()
	if got := e.LeaseOf(status); got != first {
		t.Fatalf("the status hangs on %x, want %x", got, first)
	}
	named(first)

	revision := e.Put(status, model.Status{Time: time.Now()}) // another claims the name
	report(2*time.Minute, Permission{Revision: revision - 1})
	named(r.lease.ID(), first)
	r.fresh = 0 // all is heard
	report(3*time.Minute, Permission{Revision: revision - 1})
	named(r.lease.ID(), first)
	r.fresh = 0
	alive, _ := r.Standing()
	report(3*time.Minute, Permission{Revision: revision, Lease: alive})
	if got := e.LeaseOf(status); got != first || r.former != nil {
		t.Errorf("it objects under %x, want %x", got, first)
	}
	alive, wrote := r.Standing()
	report(3*time.Minute, Permission{Revision: wrote})
	if got := e.LeaseOf(status); got == first || got != r.lease.ID() || alive != first {
		t.Errorf("afterwards the status hangs on %x, want %x", got, r.lease.ID())
	}
}

// TestEndedLease: that the lease has ended is said once, in one line and for all of an outage.
func TestEndedLease(t *testing.T) {
	e := etcd.New(t)
	var log bytes.Buffer
	r := New(slog.New(slog.NewTextHandler(&log, nil)), e.Store, "a", health.New())
	r.Ask(func() {}, nil)
	defer r.leave()
	r.Configure(params.Resolve().Params)
	r.Permit(Permission{}, 1<<40, true)
	if err := r.reportHost(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Store.Revoke(t.Context(), r.lease.ID()); err != nil {
		t.Fatal(err)
	}
	host := &task{log: r.log, timer: time.NewTimer(0)}
	report := func(want string, patience time.Duration) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r.Permit(Permission{}, 1<<40, true) // the status went with the lease
		err := r.lapses(r.reportHost(ctx))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "lease of the host's status") != 1 {
			t.Errorf("reported: %v, want %s", err, want)
		}
		host.done(t.Context(), err)
	}
	const ended = "the lease of the host's status has ended, so that others may take this host for dead"
	report(ended, etcd.Patience)
	e.Stop()
	for range 2 {
		report(ended+": write the host's status: grant lease: ", time.Second)
	}
	if got := strings.Count(log.String(), "lease of the host's status"); got != 1 {
		t.Errorf("said %d times:\n%s", got, &log)
	}
}
