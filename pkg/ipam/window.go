// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// window is where a claim looks, as far as it has come.
type window struct {
	units  []netip.Prefix
	blocks []netip.Prefix // of the units, but for the host's own and those of which another pool has a part
	whole  bool           // the pool has no more
}

// atOnce is how many blocks of others are hardly ever all taken before the pool is nearly full. Of
// larger blocks it is as many as sixteen regions hold.
func (w walk) atOnce() int {
	return max(1, 16>>max(0, regionBits(isV6(w.pool.CIDR))-w.pool.BlockSize))
}

// windows are two: what is read at once, and four times as much, for when that is full.
func (a *assignment) windows(w walk) (near, wide window) {
	return a.window(w, w.atOnce()), a.window(w, 4*w.atOnce())
}

// maxSkipped bounds how many units a window leaves out: another pool may have most of this one.
const maxSkipped = 1 << 12

// window has at least n blocks, if the pool has, and whole units. One of which no block is left is left out.
func (a *assignment) window(w walk, n int) window {
	mine := a.view.isOwn(a.Host)
	var out window
	i := 0
	for ; len(out.blocks) < n && i < w.units(i+1) && i-len(out.units) < maxSkipped; i++ {
		before := len(out.blocks)
		for c := range func(yield func(netip.Prefix) bool) { w.within(i, yield) } {
			if !mine(c) && a.view.alone(c, w.pool) {
				out.blocks = append(out.blocks, c)
			}
		}
		if len(out.blocks) > before {
			out.units = append(out.units, w.at(i))
		}
	}
	out.whole = i == w.units(i+1)
	return out
}

// maxAhead is how many pools are asked for at once, should one after the other be full.
const maxAhead = 4

// ifFull asks for what is needed where the near window has no room, on condition that its blocks exist, so that no other round
// is needed to see that: the wide window; and if that is full too the names of all the pool's blocks, the near window of the next
// pool and, after the last one, blocks of others to take over or to borrow from.
func (a *assignment) ifFull(pools []*pool) {
	pools = pools[:min(len(pools), maxAhead)]
	near, wide := make([]window, len(pools)), make([]window, len(pools))
	for i, p := range pools {
		near[i], wide[i] = a.windows(walkOf(a.Host, p))
	}
	n := maxCompares / len(pools)
	var full []model.Key
	for i, p := range pools {
		a.needs.onCondition(slices.Concat(full, spread(near[i].blocks, n)), unitWants(wide[i].units[len(near[i].units):]))
		full = slices.Concat(full, spread(wide[i].blocks, n))
		var wants []Want
		if !wide[i].whole {
			wants = append(wants, a.view.poolWant(p.CIDR))
		}
		if i+1 < len(pools) {
			wants = append(wants, unitWants(near[i+1].units)...)
		} else {
			for j, q := range pools {
				for _, c := range near[j].blocks[:min(len(near[j].blocks), walkOf(a.Host, q).atOnce())] {
					wants = append(wants, Want{Key: model.BlockKey{CIDR: c}})
				}
			}
		}
		a.needs.onCondition(full, wants)
	}
}

func unitWants(units []netip.Prefix) (wants []Want) {
	for _, u := range units {
		wants = append(wants, overlapWants(u)...)
	}
	return wants
}

// spread are n of the blocks at most, from all over them.
func spread(blocks []netip.Prefix, n int) []model.Key {
	out := make([]model.Key, min(n, len(blocks)))
	for i := range out {
		out[i] = model.BlockKey{CIDR: blocks[i*len(blocks)/len(out)]}
	}
	return out
}
