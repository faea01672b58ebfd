// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"maps"
	"slices"
)

// Apply adds changes.
func (st *State) Apply(c Changes) {
	apply(&st.Routes, c.Routes)
	apply(&st.Remotes, c.Remotes)
	apply(&st.Neighbours, c.Neighbours)
	apply(&st.Advertisements, c.Advertisements)
	apply(&st.Problems, c.Problems)
	if st.Hosts == nil && len(c.Hosts) > 0 {
		st.Hosts = maps.Clone(c.Hosts)
	}
	for a, host := range c.Hosts {
		if host == "" {
			delete(st.Hosts, a)
		} else {
			st.Hosts[a] = host
		}
	}
	if c.Devices != nil {
		st.Tunnels, st.Releases = c.Devices.Tunnels, c.Devices.Releases
	}
	if c.MTU != nil {
		st.MTU = *c.MTU
	}
	if c.Speaker != nil {
		st.Speaker = *c.Speaker
	}
}

// Clone returns a copy. The contents of maps and lists are shared, since they are never modified, only replaced.
func (st State) Clone() State {
	st.Routes, st.Remotes, st.Hosts = maps.Clone(st.Routes), maps.Clone(st.Remotes), maps.Clone(st.Hosts)
	st.Neighbours, st.Advertisements, st.Problems = maps.Clone(st.Neighbours), maps.Clone(st.Advertisements), maps.Clone(st.Problems)
	return st
}

func apply[K comparable, V any](to *map[K]V, changes map[K]*V) {
	if *to == nil && len(changes) > 0 {
		*to = make(map[K]V, len(changes))
	}
	for k, v := range changes {
		if v == nil {
			delete(*to, k)
		} else {
			(*to)[k] = *v
		}
	}
}

// Empty reports whether nothing changed.
func (c Changes) Empty() bool {
	return len(c.Routes) == 0 && c.Devices == nil && len(c.Remotes) == 0 && len(c.Hosts) == 0 &&
		c.MTU == nil && c.Speaker == nil && len(c.Neighbours) == 0 && len(c.Advertisements) == 0 && len(c.Problems) == 0
}

// lists are the parts of a State that have no keys in JSON.
type lists struct {
	Remotes  []Remote  `json:"remotes"`
	Problems []Problem `json:"problems"`
}

// plain is a State without its methods.
type plain State

// MarshalJSON encodes the complete state.
func (st State) MarshalJSON() ([]byte, error) {
	l := lists{slices.Collect(maps.Values(st.Remotes)), slices.Collect(maps.Values(st.Problems))}
	slices.SortFunc(l.Remotes, func(a, b Remote) int { return compareRemotes(a.RemoteID, b.RemoteID) })
	slices.SortFunc(l.Problems, func(a, b Problem) int { return compareProblems(a.ProblemID, b.ProblemID) })
	return json.Marshal(struct {
		plain
		lists
	}{plain(st), l})
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (st *State) UnmarshalJSON(data []byte) error {
	v := struct {
		*plain
		lists
	}{plain: (*plain)(st)}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	st.Remotes, st.Problems = map[RemoteID]Remote{}, map[ProblemID]Problem{}
	for _, r := range v.lists.Remotes {
		st.Remotes[r.RemoteID] = r
	}
	for _, p := range v.lists.Problems {
		st.Problems[p.ProblemID] = p
	}
	return nil
}
