// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
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
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if stored[path] != want[path].status {
			c.Puts = append(c.Puts, model.Put{Key: want[path].key, Value: want[path].status})
			next()
		}
	}
	for _, path := range slices.Sorted(maps.Keys(stored)) {
		if _, stays := want[path]; stays {
			continue
		}
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
