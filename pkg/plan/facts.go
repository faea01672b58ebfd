// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// blockFact is the relevant part of a block.
type blockFact struct {
	affinity string
	// taken has a bit for each allocated address.
	taken []uint64
	// others has the hosts of addresses that are allocated to another host than the block's.
	others map[netip.Addr]string
	// held has the addresses of this host's tunnels.
	held map[TunnelKind][]netip.Addr
	// gateways are addresses that links of hosts have for other main plugins.
	gateways map[netip.Addr]bool
}

func (b *blockFact) empty() bool {
	return !slices.ContainsFunc(b.taken, func(w uint64) bool { return w != 0 })
}

func (b *blockFact) isTaken(ordinal int) bool { return b.taken[ordinal/64]&(1<<(ordinal%64)) != 0 }

// blockFacts extracts what matters from a block. handles are those of this host's tunnels.
func blockFacts(b model.Block, handles map[string]TunnelKind) *blockFact {
	f := &blockFact{affinity: b.Affinity, taken: make([]uint64, (len(b.Allocations)+63)/64)}
	a := b.CIDR.Addr()
	for i, n := range b.Allocations {
		if n != model.Free {
			f.taken[i/64] |= 1 << (i % 64)
			attributes := b.Attributes[n]
			if node := attributes.Secondary["node"]; node != "" && node != b.Affinity {
				if f.others == nil {
					f.others = map[netip.Addr]string{}
				}
				f.others[a] = node
			}
			if kind, ours := handles[attributes.HandleID]; ours {
				if f.held == nil {
					f.held = map[TunnelKind][]netip.Addr{}
				}
				f.held[kind] = append(f.held[kind], a)
			}
			if model.IsGatewayHandle(attributes.HandleID, a) {
				if f.gateways == nil {
					f.gateways = map[netip.Addr]bool{}
				}
				f.gateways[a] = true
			}
		}
		a = a.Next()
	}
	return f
}

// endpointFact has the addresses of an active endpoint, including those translated to its own: packets for them must
// reach its host too.
type endpointFact []endpointAddr

// endpointAddr is one of these addresses.
type endpointAddr struct {
	addr netip.Addr
	ext  bool // the ext_ip of a NAT, not its own
}

func endpointFacts(w model.WorkloadEndpoint) endpointFact {
	if w.State != model.StateActive {
		return nil
	}
	var f endpointFact
	for _, nets := range [][]netip.Prefix{w.IPv4Nets, w.IPv6Nets} {
		for _, p := range nets {
			f = append(f, endpointAddr{addr: p.Addr()})
		}
	}
	for _, nats := range [][]model.NAT{w.IPv4NAT, w.IPv6NAT} {
		for _, n := range nats {
			if a := (endpointAddr{addr: n.ExtIP, ext: true}); !slices.Contains(f, endpointAddr{addr: n.ExtIP}) && !slices.Contains(f, a) {
				f = append(f, a)
			}
		}
	}
	slices.SortFunc(f, func(a, b endpointAddr) int { return a.addr.Compare(b.addr) })
	return slices.Compact(f)
}

// poolFact says how packets to a pool's addresses travel. The zero value is a pool without encapsulation; so is one
// that could never be read, because its addresses are nevertheless a pool's.
type poolFact struct {
	tunnel TunnelKind // "" = none
	cross  bool       // only if the other host is in none of our subnets
	device string     // IPIP device, as named by the pool
	gives  bool       // assigns new addresses, to workloads, tunnels or both
	pods   bool       // to workloads
	ends   bool       // to tunnels
	picks  bool       // it selects hosts
	size   int        // prefix length of its blocks
	hidden bool       // from BGP
}

func poolFacts(p model.Pool) poolFact {
	f := poolFact{gives: p.IPAM && !p.Disabled, pods: p.Serves(model.ForWorkloads), ends: p.Serves(model.ForTunnels), picks: p.NodeSelector != "" && p.NodeSelector != "all()", size: p.BlockSize, hidden: p.DisableBGPExport}
	if f.size == 0 {
		f.size = model.DefaultBlockSize(p.CIDR.Addr().Is6())
	}
	f.size = max(f.size, p.CIDR.Bits())
	mode := p.VXLANMode
	switch {
	case mode != model.EncapNever && p.CIDR.Addr().Is4():
		f.tunnel = VXLAN4
	case mode != model.EncapNever:
		f.tunnel = VXLAN6
	case p.IPIPMode != model.EncapNever:
		f.tunnel, f.device, mode = IPIP, p.IPIP, p.IPIPMode
	}
	f.cross = mode == model.EncapCrossSubnet
	return f
}

// fact extracts what to keep from an entry. relevant is false for keys that don't affect routes.
func (e *engine) fact(entry model.Entry) (o object, relevant bool) {
	o = object{path: entry.Path, created: entry.Created, err: entry.Err}
	var wrong error
	ok := true
	switch key := entry.Key.(type) {
	case model.WorkloadEndpointKey:
		var w model.WorkloadEndpoint
		if w, ok = entry.Value.(model.WorkloadEndpoint); ok {
			o.value = endpointFacts(w)
		}
	case model.BlockKey:
		var b model.Block
		if b, ok = entry.Value.(model.Block); ok {
			if ok = b.CIDR == key.CIDR && len(b.Allocations) == b.Size(); ok {
				o.value = blockFacts(b, e.handles)
			}
		}
	case model.PoolKey:
		var p model.Pool
		if p, ok = entry.Value.(model.Pool); ok {
			f := poolFacts(p)
			f.gives = f.gives && entry.Err == nil
			o.value = f
		}
	case model.HostMetadataKey: // one that can't be read says that the host exists
		m, _ := entry.Value.(model.HostMetadata)
		return object{path: entry.Path, value: m.Labels}, true
	case model.StatusKey, model.LastStatusKey:
		return object{path: entry.Path}, true // only its existence counts
	case model.WorkloadStatusKey:
		status, _ := entry.Value.(model.EndpointStatus) // reporting an invalid status is its writer's business
		return object{path: entry.Path, value: status}, true
	case model.HostBirdIPKey, model.BGPHostKey:
		o.value, ok = textValue(entry.Value)
	case model.BGPGlobalASKey:
		o.value, ok = entry.Value.(model.ASNumber)
		o.value = entry.Value
	case model.BGPMeshKey:
		o.value = entry.Value
		_, ok = entry.Value.(model.Mesh)
	case model.BGPPeerKey:
		var p model.BGPPeer
		if p, ok = entry.Value.(model.BGPPeer); ok && key.Name == "" && (p.AS == 0 || p.IP != key.IP) {
			wrong = fmt.Errorf("a peer with address %s and AS number %s: want the key's address, and an AS number from 1", p.IP, p.AS)
		}
		o.value = p
	case model.BGPFilterKey:
		o.value = entry.Value
		_, ok = entry.Value.(model.BGPFilter)
	default:
		return o, false
	}
	if entry.Exists() && entry.Err == nil && !ok {
		wrong = fmt.Errorf("the value is a %T, which the key does not hold", entry.Value)
	}
	if wrong != nil {
		o.err = wrong
	}
	if wrong != nil || !ok {
		o.value = nil
	}
	return o, true
}

func textValue(v any) (string, bool) {
	t, ok := v.(model.Text)
	return string(t), ok
}
