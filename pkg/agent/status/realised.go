// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// The parts of the agent that do what etcd says.
const (
	firewall = iota
	router
	parts
)

// pace is how often the host's status is written at most because something is realised.
const pace = 500 * time.Millisecond

// realised is how far the agent has done what objects of the Kubernetes API ask for, which say so in their status. Others' writes, of
// endpoints above all, are left out, so that they don't each lead to one of the status.
type realised struct {
	asked int64        // the latest revision at which such an object wrote
	done  [parts]int64 // up to where each part has done everything
}

// update takes in an update of etcd, before any part does.
func (r *realised) update(u model.Update) {
	if u.Resync { // etcd may be another one
		*r = realised{}
	}
	for _, e := range u.Entries {
		if e.OfAPI() {
			r.asked = max(r.asked, e.Revision)
		}
	}
}

// reached returns the revision at which such an object wrote that is in force along with all before it, 0 = none is known.
func (r *realised) reached() int64 { return min(r.asked, slices.Min(r.done[:])) }
