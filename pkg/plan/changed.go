// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// changed follows from one object, to what depends on it.
func (e *Engine) changed(key model.Key, before, now *object) {
	switch key := key.(type) {
	case model.WorkloadEndpointKey:
		e.changedEndpoint(key.Host, valueOf[endpointFact](before), valueOf[endpointFact](now))
	case model.BlockKey:
		e.changedBlock(key.CIDR, valueOf[*blockFact](before), valueOf[*blockFact](now))
	case model.PoolKey:
		e.changedPool(key.CIDR, before, now)
	case model.HostMetadataKey:
		e.dirty.hosts[key.Host] = struct{}{}
	case model.StatusKey:
		e.dirty.hosts[key.Host] = struct{}{}
	case model.LastStatusKey:
		e.dirty.hosts[key.Host] = struct{}{}
	case model.HostBirdIPKey:
		e.dirty.hosts[key.Host] = struct{}{}
	case model.BGPHostKey:
		e.dirty.hosts[key.Host] = struct{}{}
	case model.BGPGlobalASKey, model.BGPMeshKey:
		e.dirty.config, e.dirty.neighbours = true, true
	case model.BGPPeerKey:
		e.changedPeer(key)
	}
}

func (e *Engine) changedEndpoint(host string, before, now endpointFact) {
	for _, a := range before {
		if slices.Contains(now, a) {
			continue
		}
		ends := e.ends[a.addr]
		i := slices.Index(ends, end{host, a.ext})
		if ends = slices.Delete(slices.Clone(ends), i, i+1); len(ends) == 0 {
			delete(e.ends, a.addr)
		} else {
			e.ends[a.addr] = ends
		}
		e.touch(single(a.addr))
		e.fix(a.addr)
	}
	for _, a := range now {
		if !slices.Contains(before, a) {
			e.ends[a.addr] = append(slices.Clone(e.ends[a.addr]), end{host, a.ext})
			e.touch(single(a.addr))
			e.fix(a.addr)
		}
	}
}

func (e *Engine) touch(p netip.Prefix) { e.dirty.prefixes[p] = struct{}{} }

// touchMine has the blocks of this host looked at again.
func (e *Engine) touchMine() {
	for p := range e.mine {
		e.touch(p)
	}
}

func (e *Engine) changedBlock(p netip.Prefix, before, now *blockFact) {
	if before == now || before != nil && now != nil && before.equal(now) {
		return
	}
	var none blockFact
	if !maps.Equal(cmp.Or(before, &none).gateways, cmp.Or(now, &none).gateways) {
		e.dirty.config = true
		e.touchMine()
	}
	if before != nil {
		e.own(before.affinity, p, -1)
		for handle, addrs := range before.held {
			for _, a := range addrs {
				e.holds.remove(handle, heldAddr{a, p})
			}
		}
		e.dirty.config = e.dirty.config || len(before.held) > 0
	}
	if now == nil {
		e.touchBlock(p, before)
		e.blocks.remove(p)
		return
	}
	e.own(now.affinity, p, 1)
	for handle, addrs := range now.held {
		for _, a := range addrs {
			e.holds.add(handle, heldAddr{a, p})
		}
	}
	e.dirty.config = e.dirty.config || len(now.held) > 0
	e.blocks.set(p, now)
	if before == nil || before.affinity != now.affinity {
		e.touchBlock(p, before)
		return
	}
	if before.empty() != now.empty() {
		e.touch(p)
	}
	a := p.Addr()
	for i := range 1 << (a.BitLen() - p.Bits()) {
		if before.isTaken(i) != now.isTaken(i) || before.others[a] != now.others[a] {
			e.touch(single(a))
		}
		a = a.Next()
	}
}

// own counts a host's blocks.
func (e *Engine) own(host string, p netip.Prefix, n int) {
	if host == "" {
		return
	}
	if host == e.self && n > 0 {
		e.mine[p] = struct{}{}
	} else if host == e.self {
		delete(e.mine, p)
	}
	count := e.owned[host]
	if count == nil {
		count = &[2]int{}
		e.owned[host] = count
	}
	family := familyOf(p.Addr())
	was := count[family]
	if count[family] += n; count[family] == 0 || was == 0 {
		e.dirty.hosts[host] = struct{}{}
	}
	if *count == [2]int{} {
		delete(e.owned, host)
	}
}

// familyOf is 0 for IPv4, 1 for IPv6.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// touchBlock has everything looked at again that may lie in a block: the block
// was or is in the index. before may be nil.
func (e *Engine) touchBlock(p netip.Prefix, before *blockFact) {
	e.touch(p)
	for inner := range e.learned.inside(p) {
		e.touch(inner)
	}
	if before != nil {
		for a := range before.others {
			e.touch(single(a))
		}
	}
	for _, b := range e.blocks.around(p) {
		for a := range b.others {
			if p.Contains(a) {
				e.touch(single(a))
			}
		}
	}
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		if _, ok := e.ends[a]; ok {
			e.touch(single(a))
		}
	}
}

func (e *Engine) changedPool(p netip.Prefix, before, now *object) {
	was, is := valueOf[poolFact](before), valueOf[poolFact](now)
	if (before != nil) == (now != nil) && was == is {
		return
	}
	if now == nil {
		e.pools.remove(p)
	} else {
		e.pools.set(p, is)
	}
	e.dirty.config = true
	was.gives, is.gives = false, false
	was.device, is.device = "", ""
	was.size, is.size = 0, 0
	if (before != nil) != (now != nil) || was != is {
		e.touchInside(p)
	}
}

// touchInside has all that is inside a prefix looked at again, however much.
func (e *Engine) touchInside(p netip.Prefix) {
	for b, fact := range e.blocks.all {
		if p.Overlaps(b) {
			e.touch(b)
			for a := range fact.others {
				e.touch(single(a))
			}
		}
	}
	for a := range e.ends {
		if p.Contains(a) {
			e.touch(single(a))
		}
	}
	for l := range e.learned.all {
		if p.Overlaps(l) {
			e.touch(l)
		}
	}
}

func (e *Engine) changedPeer(key model.BGPPeerKey) {
	_, host := e.peerAt(key.Host, key.IP)
	if host {
		e.peers.add(key.IP, key.Host)
	} else {
		e.peers.remove(key.IP, key.Host)
	}
	e.dirty.peers[key.IP] = struct{}{}
	e.fix(key.IP)
	switch {
	case key.Host == "":
		if e.isSelf(key.IP) {
			e.dirty.neighbours = true
		}
	case key.Host != e.self:
		e.dirty.hosts[key.Host] = struct{}{}
	}
}

// peerAt is the explicit peer of a host, "" of all, at an address: the canonical
// place comes before the older one.
func (e *Engine) peerAt(host string, a netip.Addr) (*object, bool) {
	if o := e.objects[model.BGPPeerKey{Host: host, IP: a}]; o != nil {
		return o, true
	}
	o := e.objects[model.BGPPeerKey{Host: host, IP: a, Legacy: true}]
	return o, o != nil
}
