// SPDX-License-Identifier: Apache-2.0

// Package usage says what the addresses of the pools are used for, by what etcd holds at one revision.
package usage

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// Ranges are what New needs to be read.
func Ranges() []model.Range {
	return []model.Range{
		model.PrefixRange(model.PoolPrefix()), model.PrefixRange(model.BlockPrefix(false)), model.PrefixRange(model.BlockPrefix(true)),
		model.PrefixRange(model.AffinityPrefix("")), model.PrefixRange(model.HandlePrefix()), model.PrefixRange(model.HostPrefix("")),
		model.KeyRange(model.IPAMConfigKey{}),
	}
}

// Usage is what addresses are used for.
type Usage struct {
	// Pools are in order of their CIDRs. The last, without one, has the blocks that lie in no pool, if there are any.
	Pools []Pool
	// byAddr are the users of addresses: endpoints, and tunnels of hosts.
	byAddr map[netip.Addr]string
}

// Pool is a pool and its blocks, by CIDR.
type Pool struct {
	CIDR     netip.Prefix
	Name     string
	Disabled bool
	ForPods  bool // by its allowed_uses
	// Parked: its node_selector picks none of the nodes, so that only what asks for the pool has addresses of it.
	Parked bool
	Blocks []Block
}

// InUse counts the allocated addresses.
func (p Pool) InUse() int {
	n := 0
	for _, b := range p.Blocks {
		n += b.InUse()
	}
	return n
}

// Block is a block whose entry is valid.
type Block struct{ model.Block }

// InUse counts the allocated addresses.
func (b Block) InUse() int { return b.Size() - len(b.Unallocated) }

// Address is one allocated address.
type Address struct {
	Addr       netip.Addr
	Block      netip.Prefix
	Affinity   string // host of the block, "" = none
	Handle     string
	Attributes map[string]string
	// User is the endpoint, by its key, or the tunnel that etcd says has the address; "" = nobody has it.
	User string
}

// Host is the host that took the address, "" = it isn't known.
func (a Address) Host() string { return a.Attributes["node"] }

// Leaked reports whether nobody is known to use the address. Another main plugin's workloads have no endpoints, so it may be
// theirs all the same.
func (a Address) Leaked() bool { return a.User == "" && !model.IsGatewayHandle(a.Handle, a.Addr) }

// Borrowed reports whether a host took it from a block of another host.
func (a Address) Borrowed() bool {
	return a.Host() != "" && a.Affinity != "" && a.Host() != a.Affinity
}

// New takes in what Ranges gave. Entries that can't be read are passed over: see package invariants.
func New(entries []model.Entry) *Usage {
	u := &Usage{byAddr: map[netip.Addr]string{}}
	var blocks []Block
	var nodes []model.HostMetadata
	for _, e := range entries {
		if node, ok := e.Value.(model.HostMetadata); ok {
			nodes = append(nodes, node)
		}
	}
	for _, e := range entries {
		switch value := e.Value.(type) {
		case model.Pool:
			parked := !slices.ContainsFunc(nodes, picks(value.NodeSelector)) && len(nodes) > 0
			u.Pools = append(u.Pools, Pool{CIDR: value.CIDR, Name: value.Name, Disabled: value.Disabled, ForPods: value.Serves(model.ForWorkloads), Parked: parked})
		case model.Block:
			blocks = append(blocks, Block{value})
		case model.WorkloadEndpoint:
			for _, a := range value.Addrs() {
				u.byAddr[a] = e.Path
			}
		case model.Text:
			if k, ok := e.Key.(model.HostConfigKey); ok && strings.HasSuffix(k.Name, "TunnelAddr") {
				if a, err := netip.ParseAddr(string(value)); err == nil {
					u.byAddr[a] = e.Path
				}
			}
		}
	}
	slices.SortFunc(u.Pools, func(a, b Pool) int { return compare(a.CIDR, b.CIDR) })
	slices.SortFunc(blocks, func(a, b Block) int { return compare(a.CIDR, b.CIDR) })
	var outside []Block
	for _, b := range blocks {
		if p := u.poolOf(b.CIDR); p != nil {
			p.Blocks = append(p.Blocks, b)
		} else {
			outside = append(outside, b)
		}
	}
	if outside != nil {
		u.Pools = append(u.Pools, Pool{Blocks: outside})
	}
	return u
}

// picks reports whether a node_selector, which has been read, picks a node.
func picks(text string) func(model.HostMetadata) bool {
	s, err := selector.Parse(text)
	return func(node model.HostMetadata) bool {
		return err == nil && s.Matches(func(name string) (string, bool) { v, ok := node.Labels[name]; return v, ok })
	}
}

func compare(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// poolOf is the smallest pool that the block lies in, a disabled one only where no other is; nil = none.
func (u *Usage) poolOf(c netip.Prefix) *Pool {
	var best *Pool
	for i := range u.Pools {
		p := &u.Pools[i]
		if p.CIDR.Bits() > c.Bits() || !p.CIDR.Contains(c.Addr()) {
			continue
		}
		if best == nil || best.Disabled && !p.Disabled || best.Disabled == p.Disabled && p.CIDR.Bits() > best.CIDR.Bits() {
			best = p
		}
	}
	return best
}

// Any says whether an endpoint or a tunnel has an address.
func (u *Usage) Any() bool { return len(u.byAddr) > 0 }

// Pool is the pool that an address lies in, nil = none.
func (u *Usage) Pool(a netip.Addr) *Pool { return u.poolOf(netip.PrefixFrom(a, a.BitLen())) }

// User is who has an address, as Address has it, whether or not it is allocated.
func (u *Usage) User(a netip.Addr) string { return u.byAddr[a] }

// Addresses are the allocated ones of a block, in order.
func (u *Usage) Addresses(b Block) []Address {
	var all []Address
	a := b.CIDR.Addr()
	for _, n := range b.Allocations {
		if n != model.Free {
			of := b.Attributes[n]
			all = append(all, Address{Addr: a, Block: b.CIDR, Affinity: b.Affinity, Handle: of.HandleID, Attributes: of.Secondary, User: u.byAddr[a]})
		}
		a = a.Next()
	}
	return all
}

// All are the allocated addresses of all blocks.
func (u *Usage) All() []Address {
	var all []Address
	for _, p := range u.Pools {
		for _, b := range p.Blocks {
			all = append(all, u.Addresses(b)...)
		}
	}
	return all
}
