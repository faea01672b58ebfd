// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/model"
)

// forLoop returns the part of an update that the loop needs, false if there is none. The loop then misses the update's revision, which is
// harmless: callers of the gate wait for the revision of an endpoint, and others for that of what an object of the Kubernetes API made.
func forLoop(u model.Update) (model.Update, bool) {
	others := func(e model.Entry) bool { return router.OnlyRouter(e.Path) }
	if !slices.ContainsFunc(u.Entries, others) {
		return u, true
	}
	needed := u.Resync || slices.ContainsFunc(u.Entries, model.Entry.OfAPI)
	u.Entries = slices.DeleteFunc(slices.Clone(u.Entries), others)
	return u, needed || len(u.Entries) > 0
}
