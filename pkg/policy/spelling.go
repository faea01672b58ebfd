// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// spellings finds the entry that counts if a key is stored at several paths with different spellings: the canonical
// one, else that of the lowest path.
type spellings struct {
	entries map[string]model.Entry // that exist, by path
	odd     map[model.Key]map[string]struct{}
}

func newSpellings() spellings {
	return spellings{map[string]model.Entry{}, map[model.Key]map[string]struct{}{}}
}

// one processes an entry and returns the one that now counts for its key.
func (s *spellings) one(entry model.Entry) model.Entry {
	if entry.Exists() {
		s.entries[entry.Path] = entry
	} else {
		delete(s.entries, entry.Path)
	}
	canonical := entry.Key.Path()
	odd := s.odd[entry.Key]
	if entry.Path == canonical && odd == nil {
		return entry
	}
	if entry.Path != canonical {
		if !entry.Exists() {
			delete(odd, entry.Path)
		} else {
			if odd == nil {
				odd = map[string]struct{}{}
				s.odd[entry.Key] = odd
			}
			odd[entry.Path] = struct{}{}
		}
	}
	if len(odd) == 0 {
		delete(s.odd, entry.Key)
	}
	if counts, ok := s.entries[s.counting(entry.Key)]; ok {
		return counts
	}
	return model.Entry{Path: canonical, Key: entry.Key}
}

// counting returns the path of the existing entry that counts for a key.
func (s *spellings) counting(key model.Key) string {
	canonical := key.Path()
	if _, ok := s.entries[canonical]; ok || len(s.odd[key]) == 0 {
		return canonical
	}
	return slices.Min(slices.Collect(maps.Keys(s.odd[key])))
}

// passedOver returns the entries that don't count, by path.
func (s *spellings) passedOver() map[string]error {
	out := map[string]error{}
	for key, odd := range s.odd {
		counts := s.counting(key)
		for path := range odd {
			if path != counts {
				out[path] = fmt.Errorf("it is another spelling of %s, which is the one that counts: delete one of the two", counts)
			}
		}
	}
	return out
}
