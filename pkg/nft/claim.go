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

// claims are elements for which several endpoints may want different values.
type claims struct {
	ruleset *ruleset
	bySlot  map[slot][]claim  // the first one wins
	byPath  map[string][]slot // of endpoints
}

// claim is the value that an endpoint wants for an element. The lowest order wins.
type claim struct{ order, path, data string }

func newClaims(rs *ruleset) claims {
	return claims{rs, make(map[slot][]claim), make(map[string][]slot)}
}

// put replaces all claims of an endpoint.
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

// settle gives an element to its first claim.
func (cs *claims) settle(s slot) {
	if len(cs.bySlot[s]) == 0 {
		delete(cs.bySlot, s)
		cs.ruleset.remove(s)
		return
	}
	cs.ruleset.put(s, cs.bySlot[s][0].data)
}

// natClaims returns the elements for an endpoint's 1:1 NAT. If two endpoints have the same outer address, the lower path gets it. If an
// endpoint has two outer addresses, the lower one is its source when it connects to itself.
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
