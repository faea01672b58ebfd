// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/calico-go/calico/pkg/gate"
)

// permission is to write the host's status in the place of what is there.
type permission struct {
	revision int64 // of what is there, 0 = nothing
	lease    int64 // under which alone, 0 = any
	snapshot int   // since which of etcd's snapshots it holds, see forget
}

// ask has the host's status written only as permit says; asks is called where what was
// permitted is not any more.
func (r *reporter) ask(asks func()) {
	r.mu.Lock()
	r.asks, r.withheld = asks, true
	r.mu.Unlock()
	r.naming.set(notNamed)
}

// permit has the status written in the place of a revision: now, or with the next report,
// unless that is due already. heard is the revision as of which etcd was known; what is
// known to be there since is about to be heard, and then permit is called again.
func (r *reporter) permit(p permission, heard int64, now bool) {
	r.mu.Lock()
	if p.snapshot != r.snapshot || heard < r.fresh {
		r.mu.Unlock()
		return
	}
	now = r.due || (now || r.withheld) && (r.may == nil || *r.may != p)
	r.may, r.withheld, r.heard, r.due = &p, false, heard, false
	r.mu.Unlock()
	if now {
		nudge(r.changed)
	}
}

// withhold has nothing said of the host, and that it lives taken back.
func (r *reporter) withhold() {
	r.mu.Lock()
	before := r.withheld
	r.withheld, r.may = true, nil
	r.mu.Unlock()
	if !before {
		nudge(r.changed)
	}
}

// permitted is what may be written, ok = false for nothing.
func (r *reporter) permitted() (p permission, withheld, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asks == nil {
		return permission{}, false, true
	}
	if r.may != nil {
		p = *r.may
	}
	r.due = r.may == nil && !r.withheld
	return p, r.withheld, r.may != nil
}

// written notes that the status was, and its revision now.
func (r *reporter) written(p permission, revision, lease int64) {
	r.mu.Lock()
	r.wrote, r.alive = revision, lease
	if r.may != nil && *r.may == p {
		r.may, r.fresh = &permission{revision, p.lease, p.snapshot}, revision
	}
	asks := r.asks
	r.mu.Unlock()
	if asks != nil {
		asks()
	}
}

// overtaken notes that something else is there than was permitted to be replaced; have is
// its revision, 0 = nothing is there.
func (r *reporter) overtaken(p permission, have int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.may == nil:
		r.due = true // it was taken away meanwhile
	case *r.may == p:
		r.may, r.due, r.fresh = nil, true, max(have, r.heard+1)
	default:
		nudge(r.changed) // another was given meanwhile
	}
}

// forget notes that etcd may be another, in which revisions mean something else: what
// was permitted by those from before its snapshot, by number, is not.
func (r *reporter) forget(snapshot int) {
	r.mu.Lock()
	r.may, r.fresh, r.snapshot = nil, 0, snapshot
	r.mu.Unlock()
}

// lapsed notes that the status hangs on no lease that holds.
func (r *reporter) lapsed() {
	r.mu.Lock()
	r.alive = 0
	asks := r.asks
	r.mu.Unlock()
	if asks != nil {
		asks()
	}
}

// standing is the lease that the status hangs on as it was written, 0 = none that holds,
// and the revision of that.
func (r *reporter) standing() (alive, wrote int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.alive, r.wrote
}

// named waits until it is known that the host's name is its own. Where it is another's,
// what etcd says of the name's workloads is that host's, and so are their addresses.
func (r *reporter) named(ctx context.Context) error {
	for {
		reason, decided := r.naming.state()
		switch reason {
		case "":
			return nil
		case notNamed, claimedByAnother:
		default:
			return &gate.RejectedError{Reason: reason, Retry: true}
		}
		select {
		case <-decided:
		case <-ctx.Done():
			return &gate.RejectedError{Reason: reason, Retry: true}
		}
	}
}
