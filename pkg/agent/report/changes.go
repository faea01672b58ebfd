// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// changes are the writes that turn what is stored into what is wanted.
func changes(want map[string]endpoint, stored map[string]model.EndpointStatus) []model.Change {
	var changes []model.Change
	var c model.Change
	next := func() {
		if len(c.Puts)+len(c.Deletes) == batch {
			changes = append(changes, c)
			c = model.Change{}
		}
	}
	var puts, deletes []string // few of all mostly: only they are sorted
	for path, e := range want {
		if stored[path] != e.status {
			puts = append(puts, path)
		}
	}
	for path := range stored {
		if _, stays := want[path]; !stays {
			deletes = append(deletes, path)
		}
	}
	slices.Sort(puts)
	slices.Sort(deletes)
	for _, path := range puts {
		c.Puts = append(c.Puts, model.Put{Key: want[path].key, Value: want[path].status})
		next()
	}
	for _, path := range deletes {
		if key, err := model.ParseKey(path); err == nil {
			c.Deletes = append(c.Deletes, key)
			next()
		}
	}
	if !c.Empty() {
		changes = append(changes, c)
	}
	return changes
}
