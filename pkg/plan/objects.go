// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// object is what the engine keeps of an entry; of large values it keeps only the facts.
type object struct {
	path    string
	created int64
	value   any // nil if err is set
	err     error
}

// objects are the content of etcd, by key.
type objects struct {
	byKey map[model.Key]*object
	// spelled has objects at non-canonical paths, by key and path.
	spelled map[model.Key]map[string]*object
}

func newObjects() objects {
	return objects{byKey: map[model.Key]*object{}, spelled: map[model.Key]map[string]*object{}}
}

// put stores an object, or removes one if o is nil, and returns the object that counted for its key before and the one
// that counts now. If a key is stored at several paths with different spellings, the canonical path counts, else the
// lowest.
func (s *objects) put(key model.Key, path string, o *object) (before, now *object) {
	before = s.byKey[key]
	canonical := key.Path()
	if path != canonical {
		others := s.spelled[key]
		if o == nil {
			delete(others, path)
		} else if others == nil {
			s.spelled[key] = map[string]*object{path: o}
		} else {
			others[path] = o
		}
		if len(others) == 0 && o == nil {
			delete(s.spelled, key)
		}
		if o = before; before != nil && before.path != canonical {
			o = nil
		}
	}
	if others := s.spelled[key]; o == nil && len(others) > 0 {
		o = others[slices.Min(slices.Collect(maps.Keys(others)))]
	}
	if o == nil {
		delete(s.byKey, key)
	} else {
		s.byKey[key] = o
	}
	return before, o
}

// paths calls yield with the path and key of every object.
func (s *objects) paths(yield func(string, model.Key) bool) {
	for key, o := range s.byKey {
		if !yield(o.path, key) {
			return
		}
	}
	for key, others := range s.spelled {
		for path := range others {
			if !yield(path, key) {
				return
			}
		}
	}
}

// peer returns the explicit peer of a host ("" for all hosts) at an address. The canonical place takes precedence over
// the older one.
func (s *objects) peer(key model.BGPPeerKey) (*object, bool) {
	key.Legacy = false
	if o := s.byKey[key]; o != nil {
		return o, true
	}
	key.Legacy = true
	o := s.byKey[key]
	return o, o != nil
}

// mesh reports whether all hosts have sessions with all others. They do unless a readable value says otherwise.
func (s *objects) mesh() bool {
	o := s.byKey[model.BGPMeshKey{}]
	if o == nil {
		o = s.byKey[model.BGPMeshKey{Legacy: true}]
	}
	return o == nil || o.value == nil || valueOf[model.Mesh](o).Enabled
}

// valueOf returns the value of an object, of type T, or the zero value if there is none or it can't be read.
func valueOf[T any](o *object) T {
	var v T
	if o != nil {
		v, _ = o.value.(T)
	}
	return v
}
