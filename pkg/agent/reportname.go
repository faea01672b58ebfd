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
}

// ask has the host's status written only as permit says; asks is called where what was
// permitted is not any more.
func (r *reporter) ask(asks func()) {
	r.mu.Lock()
	r.asks, r.withheld = asks, true
	r.mu.Unlock()
	r.naming.set(notNamed)
}

// permit has the status written in the place of a revision: now, or with the next report.
func (r *reporter) permit(p permission, now bool) {
	r.mu.Lock()
	now = (now || r.withheld) && (r.may == nil || *r.may != p)
	r.may, r.withheld = &p, false
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
	return p, r.withheld, r.may != nil
}

// done notes what became of a permission: the status has another revision, or, where
// that is 0, the permission was in vain.
func (r *reporter) done(p permission, revision, lease int64) {
	r.mu.Lock()
	if revision != 0 {
		r.wrote, r.alive = revision, lease
	}
	if r.may != nil && *r.may == p {
		r.may = nil
		if revision != 0 {
			r.may = &permission{revision, p.lease}
		}
	}
	asks := r.asks
	r.mu.Unlock()
	if asks != nil {
		asks()
	}
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
