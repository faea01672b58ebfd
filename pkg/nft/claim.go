// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// claims are elements that several endpoints may want to be something else.
type claims struct {
	ruleset *ruleset
	bySlot  map[slot][]claim  // the first has it
	byPath  map[string][]slot // of endpoints
}

// claim is what an endpoint wants an element to be. Of several the lowest order wins.
type claim struct{ order, path, data string }

func newClaims(rs *ruleset) claims {
	return claims{rs, make(map[slot][]claim), make(map[string][]slot)}
}

// put replaces all that an endpoint claims.
func (cs *claims) put(path string, wants map[slot]claim) {
	for _, s := range cs.byPath[path] {
		cs.bySlot[s] = slices.DeleteFunc(cs.bySlot[s], func(c claim) bool { return c.path == path })
		if _, again := wants[s]; !again {
			cs.settle(s)
		}
	}
	delete(cs.byPath, path)
	for s, c := range wants {
		cs.bySlot[s] = append(cs.bySlot[s], c)
		slices.SortFunc(cs.bySlot[s], func(a, b claim) int { return strings.Compare(a.order, b.order) })
		cs.byPath[path] = append(cs.byPath[path], s)
		cs.settle(s)
	}
}

// settle gives an element to the first that claims it.
func (cs *claims) settle(s slot) {
	if len(cs.bySlot[s]) == 0 {
		delete(cs.bySlot, s)
		cs.ruleset.remove(s)
		return
	}
	cs.ruleset.put(s, cs.bySlot[s][0].data)
}

// natClaims are the elements for an endpoint's 1:1 NAT. Of two endpoints with
// one outer address the lower path has it; of two outer addresses the lower is
// the one that an endpoint calls itself from.
func natClaims(path string, ep *policy.Endpoint) map[slot]claim {
	wants := make(map[slot]claim)
	for i, n := range ep.NAT {
		ext, inner := n.ExtIP.Unmap(), n.IntIP.Unmap()
		if !ext.IsValid() || !inner.IsValid() || ext.Is4() != inner.Is4() {
			continue
		}
		out := slot{render.Versioned(render.MapDNAT, versionOf(ext)), table.AddrBytes(ext)}
		if _, first := wants[out]; !first {
			wants[out] = claim{fmt.Sprintf("%s\x00%06d", path, i), path, table.AddrBytes(inner)}
		}
		for _, a := range ep.Addrs {
			a = a.Unmap()
			if a.Is4() != ext.Is4() {
				continue
			}
			self := slot{render.Versioned(render.MapHairpin, versionOf(ext)), table.Concat(table.AddrBytes(a), table.AddrBytes(inner))}
			c := claim{table.AddrBytes(ext) + path, path, table.AddrBytes(ext)}
			if have, ok := wants[self]; !ok || c.order < have.order {
				wants[self] = c
			}
		}
	}
	return wants
}
