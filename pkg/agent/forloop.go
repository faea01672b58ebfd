// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/model"
)

// forLoop is what of an update is for the loop, false where nothing is. That the
// loop doesn't hear of the revision then doesn't matter: callers of the gate wait for
// the revision of an endpoint.
func forLoop(u model.Update) (model.Update, bool) {
	others := func(e model.Entry) bool { return router.OnlyRouter(e.Path) }
	if !slices.ContainsFunc(u.Entries, others) {
		return u, true
	}
	u.Entries = slices.DeleteFunc(slices.Clone(u.Entries), others)
	return u, u.Resync || len(u.Entries) > 0
}
