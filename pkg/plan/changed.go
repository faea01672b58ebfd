// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"iter"
	"maps"
	"net/netip"
	"reflect"

	"github.com/calico-go/calico/pkg/model"
)

// follow marks everything that depends on an object to be recomputed. before and now differ.
func (e *engine) follow(key model.Key, before, now *object) {
	switch key := key.(type) {
	case model.WorkloadEndpointKey:
		status := e.objects.byKey[model.WorkloadStatusKey(key)]
		e.followEndpoint(endsOf(key.Host, before, status), endsOf(key.Host, now, status))
		return
	case model.WorkloadStatusKey:
		endpoint := e.objects.byKey[model.WorkloadEndpointKey(key)]
		e.followEndpoint(endsOf(key.Host, endpoint, before), endsOf(key.Host, endpoint, now))
		return
	case model.BlockKey:
		e.followBlock(key.CIDR, valueOf[*blockFact](before), valueOf[*blockFact](now))
		return
	case model.PoolKey:
		if now == nil {
			e.pools.remove(key.CIDR)
		} else {
			e.pools.set(key.CIDR, valueOf[poolFact](now))
		}
	case model.HostMetadataKey:
		if e.followHost(key.Host); before != nil && now != nil && len(e.named) == 0 {
			return // its labels are for peers by name
		}
	case model.StatusKey:
		e.followHost(key.Host)
	case model.LastStatusKey:
		e.followHost(key.Host)
	case model.HostBirdIPKey:
		e.followHost(key.Host)
	case model.BGPHostKey:
		e.followHost(key.Host)
	case model.BGPPeerKey:
		if key.Name != "" {
			if delete(e.named, key.Name); now != nil {
				e.named[key.Name] = struct{}{}
			}
		} else if _, ok := e.objects.peer(key); ok {
			e.peers.add(key.IP, key.Host)
		} else {
			e.peers.remove(key.IP, key.Host)
		}
	}
	e.changed = true
}

func (e *engine) followHost(name string) {
	if h := e.objects.readHost(name, e.self); h.exists {
		e.said[name] = h
	} else {
		delete(e.said, name)
	}
}

// endsOf returns the end of each of an endpoint's addresses, given what is known about the endpoint and its status.
func endsOf(host string, endpoint, status *object) map[netip.Addr]end {
	ends := map[netip.Addr]end{}
	for _, a := range valueOf[endpointFact](endpoint) {
		ends[a.addr] = end{host, a.ext, valueOf[model.EndpointStatus](status) == model.EndpointUp, endpoint.created}
	}
	return ends
}

func (e *engine) followEndpoint(before, now map[netip.Addr]end) {
	for a, n := range before {
		if now[a] != n {
			e.allocations.removeEnd(a, n)
			e.touchEnd(a)
		}
	}
	for a, n := range now {
		if before[a] != n {
			e.allocations.addEnd(a, n)
			e.touchEnd(a)
		}
	}
}

// touchEnd marks everything that depends on endpoints with an address.
func (e *engine) touchEnd(a netip.Addr) {
	e.touch(single(a))
	_, etcd := e.etcd[a]
	e.changed = e.changed || etcd || e.view.isPeer(e, a)
}

func (e *engine) touch(p netip.Prefix) { e.touched[p] = struct{}{} }

func (e *engine) followBlock(p netip.Prefix, before, now *blockFact) {
	var none blockFact
	was, is := before, now
	if was == nil {
		was = &none
	}
	if is == nil {
		is = &none
	}
	if !maps.Equal(was.gateways, is.gateways) || !reflect.DeepEqual(was.held, is.held) {
		e.changed = true // a link's subnet, or a tunnel, depends on it
	}
	if now == nil {
		e.touchBlock(p, before)
		e.allocations.blocks.remove(p)
		return
	}
	e.allocations.blocks.set(p, now)
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

// touchBlock marks all prefixes that may lie in a block to be decided again. The block was or is in the index. before
// may be nil.
func (e *engine) touchBlock(p netip.Prefix, before *blockFact) {
	e.touch(p)
	for inner := range e.learned.inside(p) {
		e.touch(inner)
	}
	if before != nil {
		for a := range before.others {
			e.touch(single(a))
		}
	}
	for _, b := range e.allocations.blocks.around(p) {
		for a := range b.others {
			if p.Contains(a) {
				e.touch(single(a))
			}
		}
	}
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		if _, ok := e.allocations.ends[a]; ok {
			e.touch(single(a))
		}
	}
}

// absent returns, as deleted entries, the keys that the engine knows and that a complete new state of etcd doesn't
// have.
func (e *engine) absent(entries []model.Entry) []model.Entry {
	there := make(map[string]struct{}, len(entries))
	for _, entry := range entries {
		there[entry.Path] = struct{}{}
	}
	var gone []model.Entry
	for path, key := range e.objects.paths {
		if _, ok := there[path]; !ok {
			gone = append(gone, model.Entry{Path: path, Key: key})
		}
	}
	for _, problems := range []iter.Seq[ProblemID]{maps.Keys(e.told.Problems), maps.Keys(e.out.Problems)} {
		for id := range problems {
			if _, ok := there[id.Subject]; !ok && id.Kind == BadValue {
				gone = append(gone, model.Entry{Path: id.Subject})
			}
		}
	}
	return gone
}

// touchAll marks all prefixes that are or may be routed or advertised to be decided again.
func (e *engine) touchAll() {
	for b, block := range e.allocations.blocks.all {
		e.touch(b)
		for a := range block.others {
			e.touch(single(a))
		}
	}
	for a := range e.allocations.ends {
		e.touch(single(a))
	}
	for p := range e.learned.all {
		e.touch(p)
	}
}
