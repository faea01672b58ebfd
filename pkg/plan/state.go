// SPDX-License-Identifier: Apache-2.0

package plan

import "maps"

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
