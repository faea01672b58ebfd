// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"

	"github.com/calico-go/calico/pkg/gate"
)

// Permission is to write the host's status in the place of what is there.
type Permission struct {
	Revision int64 // of what is there, 0 = nothing
	Lease    int64 // under which alone, 0 = any
	Snapshot int   // since which of etcd's snapshots it holds, see Forget
}

// Ask has the host's status written only as Permit says; asks is called where what was
// permitted is not any more. keeps is called with each lease before anything is written under it; beside is another
// that the status may hang on yet, 0 for none. Ask is to be called before Run.
func (r *Reporter) Ask(asks func(), keeps func(lease, beside int64) error) {
	r.keeps = keeps
	r.mu.Lock()
	r.asks, r.withheld = asks, true
	r.mu.Unlock()
	r.Naming.Set(NotNamed)
}

// Permit has the status written in the place of a revision: now, or with the next report,
// unless that is due already. heard is the revision as of which etcd was known; what is
// known to be there since is about to be heard, and then Permit is called again.
func (r *Reporter) Permit(p Permission, heard int64, now bool) {
	r.mu.Lock()
	if p.Snapshot != r.snapshot || heard < r.fresh {
		r.mu.Unlock()
		return
	}
	now = r.due || (now || r.withheld) && (r.may == nil || *r.may != p)
	r.may, r.withheld, r.heard, r.due = &p, false, heard, false
	r.mu.Unlock()
	if now {
		r.changed.Send()
	}
}

// Withhold has nothing said of the host, and that it lives taken back.
func (r *Reporter) Withhold() {
	r.mu.Lock()
	before := r.withheld
	r.withheld, r.may = true, nil
	r.mu.Unlock()
	if !before {
		r.changed.Send()
	}
}

// permitted is what may be written, ok = false for nothing.
func (r *Reporter) permitted() (p Permission, withheld, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asks == nil {
		return Permission{}, false, true
	}
	if r.may != nil {
		p = *r.may
	}
	r.due = r.may == nil && !r.withheld
	return p, r.withheld, r.may != nil
}

// written notes that the status was, and its revision now.
func (r *Reporter) written(p Permission, revision, lease int64) {
	r.mu.Lock()
	r.wrote, r.alive = revision, lease
	if r.may != nil && *r.may == p {
		r.may, r.fresh = &Permission{revision, p.Lease, p.Snapshot}, revision
	}
	asks := r.asks
	r.mu.Unlock()
	if asks != nil {
		asks()
	}
}

// overtaken notes that something else is there than was permitted to be replaced; have is
// its revision, 0 = nothing is there.
func (r *Reporter) overtaken(p Permission, have int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.may == nil:
		r.due = true // it was taken away meanwhile
	case *r.may == p:
		r.may, r.due, r.fresh = nil, true, max(have, r.heard+1)
	default:
		r.changed.Send() // another was given meanwhile
	}
}

// Forget notes that etcd may be another, in which revisions mean something else: what
// was permitted by those from before its snapshot, by number, is not.
func (r *Reporter) Forget(snapshot int) {
	r.mu.Lock()
	r.may, r.fresh, r.snapshot = nil, 0, snapshot
	r.mu.Unlock()
}

// lapsed notes that the status hangs on no lease that holds.
func (r *Reporter) lapsed() {
	r.mu.Lock()
	r.alive = 0
	asks := r.asks
	r.mu.Unlock()
	if asks != nil {
		asks()
	}
}

// Standing is the lease that the status hangs on as it was written, 0 = none that holds,
// and the revision of that.
func (r *Reporter) Standing() (alive, wrote int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.alive, r.wrote
}

// Named waits until it is known that the host's name is its own. Where it is another's,
// what etcd says of the name's workloads is that host's, and so are their addresses.
// The error is a *gate.RejectedError: the name is another's, or the context ended before that was known.
func (r *Reporter) Named(ctx context.Context) error {
	for {
		reason, decided := r.Naming.state()
		switch {
		case reason == "":
			return nil
		case !Undecided(reason):
			return &gate.RejectedError{Reason: reason, Retry: true}
		}
		select {
		case <-decided:
		case <-ctx.Done():
			return &gate.RejectedError{Reason: reason, Retry: true}
		}
	}
}
