// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"
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

// maxAhead is of how many pools it is known in one round whether they are full, and of how many more whether their near
// windows are.
const maxAhead = 8

// ifFull asks for what is needed where the near window has no room, on condition that its blocks exist, so that no other round
// is needed to see that: the wide window; and if that is full too the names of all the pool's blocks and the near window of the
// next pool. If all are full it is the near windows of as many further pools, and blocks of others: near ones; and if
// none of those has an address, such as have.
func (a *assignment) ifFull(pools []*pool) {
	pools, beyond := pools[:min(len(pools), maxAhead)], pools[min(len(pools), maxAhead):min(len(pools), 2*maxAhead)]
	near, wide := make([]window, len(pools)), make([]window, len(pools))
	for i, p := range pools {
		near[i], wide[i] = a.windows(walkOf(a.Host, p))
	}
	n := maxCompares / len(pools)
	var full []string
	for i, p := range pools {
		a.needs.onCondition(Condition{Exist: slices.Concat(full, spread(near[i].blocks, n))}, unitWants(wide[i].units[len(near[i].units):]))
		full = slices.Concat(full, spread(wide[i].blocks, n))
		var wants []Want
		if !wide[i].whole {
			wants = a.view.poolWants(p)
		}
		if i+1 < len(pools) {
			wants = append(wants, unitWants(near[i+1].units)...)
		} else {
			for _, p := range beyond {
				w := walkOf(a.Host, p)
				wants = append(wants, unitWants(a.window(w, w.atOnce()).units)...)
			}
			wants = append(wants, a.others(pools, near, full)...)
		}
		a.needs.onCondition(Condition{Exist: full}, wants)
	}
}

// others are the blocks that are read where all the pools are full. Where these have no address either it asks for such as
// have, but in a pool that has no more.
func (a *assignment) others(pools []*pool, near []window, full []string) (first []Want) {
	config, err := a.view.ipamConfig()
	strict := err == nil && config.StrictAffinity
	var roomy []Want
	none := Condition{Exist: full}
	for i, p := range pools {
		some := walkOf(a.Host, p).atOnce()
		all := near[i].whole && len(near[i].blocks) <= some
		if !all {
			roomy = append(roomy, roomyWants(p, some, strict)...)
		}
		if strict && !all {
			continue // most have addresses, but not for this host
		}
		none.Full = append(none.Full, spread(near[i].blocks[:min(len(near[i].blocks), some)], maxCompares/2/len(pools))...)
	}
	for _, begin := range none.Full {
		first = append(first, Want{Prefix: begin})
	}
	none.Exist = full[:min(len(full), maxCompares-len(none.Full))]
	a.needs.onCondition(none, roomy)
	return first
}

func unitWants(units []netip.Prefix) (wants []Want) {
	for _, u := range units {
		wants = append(wants, overlapWants(u)...)
	}
	return wants
}

// spread are n of the blocks at most, from all over them: what the paths of those begin with, of whatever size, that begin
// where they do.
func spread(blocks []netip.Prefix, n int) []string {
	out := make([]string, min(n, len(blocks)))
	for i := range out {
		out[i] = blockText(blocks[i*len(blocks)/len(out)].Addr()) + "-"
	}
	return out
}
