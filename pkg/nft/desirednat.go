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

// claimNAT claims the elements for an endpoint's 1:1 NAT. Of two endpoints with
// one outer address the lower path has it; of two outer addresses the lower is
// the one that an endpoint calls itself from.
func (d *desired) claimNAT(path string, ep *policy.Endpoint) {
	wants := make(map[slot]claim)
	for i, n := range ep.NAT {
		ext, inner := n.ExtIP.Unmap(), n.IntIP.Unmap()
		if !ext.IsValid() || !inner.IsValid() || ext.Is4() != inner.Is4() {
			continue
		}
		version := 6
		if ext.Is4() {
			version = 4
		}
		out := slot{render.Versioned(render.MapDNAT, version), table.AddrBytes(ext)}
		if _, first := wants[out]; !first {
			wants[out] = claim{fmt.Sprintf("%s\x00%06d", path, i), path, table.AddrBytes(inner)}
		}
		for _, a := range ep.Addrs {
			a = a.Unmap()
			if a.Is4() != ext.Is4() {
				continue
			}
			self := slot{render.Versioned(render.MapHairpin, version), table.Concat(table.AddrBytes(a), table.AddrBytes(inner))}
			c := claim{table.AddrBytes(ext) + path, path, table.AddrBytes(ext)}
			if have, ok := wants[self]; !ok || c.order < have.order {
				wants[self] = c
			}
		}
	}
	d.claim(path, wants)
}

// claim replaces all that an endpoint claims.
func (d *desired) claim(path string, wants map[slot]claim) {
	for _, s := range d.claimed[path] {
		d.claims[s] = slices.DeleteFunc(d.claims[s], func(c claim) bool { return c.path == path })
		if _, again := wants[s]; !again {
			d.settle(s)
		}
	}
	delete(d.claimed, path)
	for s, c := range wants {
		d.claims[s] = append(d.claims[s], c)
		slices.SortFunc(d.claims[s], func(a, b claim) int { return strings.Compare(a.order, b.order) })
		d.claimed[path] = append(d.claimed[path], s)
		d.settle(s)
	}
}

// settle gives an element to the first that claims it.
func (d *desired) settle(s slot) {
	d.changed[s.set] = true
	if len(d.claims[s]) == 0 {
		delete(d.claims, s)
		d.sets[s.set].remove(s.key)
		return
	}
	d.sets[s.set].put(s.key, d.claims[s][0].data)
}
