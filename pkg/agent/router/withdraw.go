// SPDX-License-Identifier: Apache-2.0

package router

import (
	"maps"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/plan"
)

// withdrawTime is how long BGP tells the mesh yet of a prefix whose pool has come to be encapsulated: a host that
// hears of the withdrawal before it hears from etcd would have no way. Who has heard from etcd doesn't take it any more.
const withdrawTime = 2 * time.Second

// keepTelling notes what the changes would have BGP withdraw from the mesh. It comes before the changes are applied.
func (r *Router) keepTelling(c plan.Changes, now time.Time) {
	for p, ad := range c.Advertisements {
		was, had := r.state.Advertisements[p]
		switch {
		case ad == nil || !ad.NoMesh:
			delete(r.withdraws, p)
		case had && !was.NoMesh:
			r.withdraws[p] = now.Add(withdrawTime)
		}
	}
}

// withdraw says whether BGP is to withdraw something now.
func (r *Router) withdraw(now time.Time) bool {
	before := len(r.withdraws)
	next := withdrawTime
	maps.DeleteFunc(r.withdraws, func(_ netip.Prefix, until time.Time) bool {
		if rest := until.Sub(now); rest > 0 {
			next = min(next, rest)
			return false
		}
		return true
	})
	if len(r.withdraws) > 0 {
		r.withdrawing.Reset(next)
	}
	return len(r.withdraws) < before
}

// advertisements are those that BGP is to tell of now.
func (r *Router) advertisements() map[netip.Prefix]plan.Advertisement {
	all := maps.Clone(r.state.Advertisements)
	for p := range r.withdraws {
		ad := all[p]
		ad.NoMesh = false
		all[p] = ad
	}
	return all
}
