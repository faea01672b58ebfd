// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// readable is what the keys that say how hosts reach each other, and what host endpoints
// are on, held when they could last be read, by path. One slip of an editor in a pool would
// otherwise take its tunnel from every host, one in a host endpoint open its interface.
type readable map[string]any

// fill gives entries that can't be read what they held before; their errors stay, and say so.
// Of a key that is new, or was unreadable when the agent started, nothing is known.
func (r *readable) fill(u store.Update) {
	was := *r
	if u.Resync || was == nil {
		*r = readable{}
	}
	for i := range u.Entries {
		e := &u.Entries[i]
		until := "what it held before counts"
		switch e.Key.(type) {
		case model.PoolKey, model.HostBirdIPKey, model.BGPHostKey, model.BGPGlobalASKey, model.BGPMeshKey, model.BGPPeerKey:
		case model.HostEndpointKey:
			until = "it allows nothing but fail-safe ports"
		default:
			continue
		}
		value := e.Value
		if e.Err != nil {
			value = was[e.Path]
		}
		if !e.Exists() || value == nil {
			delete(*r, e.Path)
			continue
		}
		(*r)[e.Path] = value
		if e.Err != nil {
			e.Value, e.Err = value, fmt.Errorf("%w; until it is corrected, %s", e.Err, until)
		}
	}
}
