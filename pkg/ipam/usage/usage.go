// SPDX-License-Identifier: Apache-2.0

// Package usage reports what the addresses of the pools are used for, from the content of etcd at one revision.
package usage

import (
	"cmp"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// Ranges returns the ranges that New needs.
func Ranges() []model.Range {
	return []model.Range{
		model.PrefixRange(model.PoolPrefix()), model.PrefixRange(model.BlockPrefix(false)), model.PrefixRange(model.BlockPrefix(true)),
		model.PrefixRange(model.AffinityPrefix("")), model.PrefixRange(model.HandlePrefix()), model.PrefixRange(model.HostPrefix("")),
		model.KeyRange(model.IPAMConfigKey{}), model.PrefixRange(model.ReservationPrefix()),
	}
}

// Usage says what addresses are used for.
type Usage struct {
	// Pools are sorted by CIDR. If there are blocks in no pool, they are in a last one without a CIDR.
	Pools []Pool
	// byAddr has the users of addresses: endpoints, and tunnels of hosts.
	byAddr map[netip.Addr]string
}

// Pool is a pool with its blocks, sorted by CIDR.
type Pool struct {
	CIDR     netip.Prefix
	Name     string
	Disabled bool
	ForPods  bool // according to its allowed_uses
	// Parked says that its node_selector matches no node, or its assignment_mode is Manual, so that its addresses go only
	// to requests that name the pool.
	Parked bool
	Blocks []Block

	reserved model.Reserved
}

// Block is a block whose entry is valid.
type Block struct {
	model.Block
	reserved model.Reserved
}

// Counts are numbers of addresses.
type Counts struct {
	InUse int
	// Reserved counts those in use, too. Free are those that an ADD can get without asking for them: neither in use nor
	// reserved.
	Total, Reserved, Free *big.Int
}

// Counts returns the numbers of a pool's addresses; for blocks in no pool, of theirs.
func (p Pool) Counts() Counts {
	if p.CIDR.IsValid() {
		return count(p.reserved, p.Blocks, p.CIDR)
	}
	var cidrs []netip.Prefix
	for _, b := range p.Blocks {
		cidrs = append(cidrs, b.CIDR)
	}
	return count(p.reserved, p.Blocks, cidrs...)
}

// Counts returns the numbers of the block's addresses.
func (b Block) Counts() Counts { return count(b.reserved, []Block{b}, b.CIDR) }

// count counts the addresses of some networks and of the blocks in them.
func count(reserved model.Reserved, blocks []Block, cidrs ...netip.Prefix) Counts {
	c := Counts{Total: new(big.Int), Reserved: new(big.Int), Free: new(big.Int)}
	for _, cidr := range cidrs {
		c.Total.Add(c.Total, size(cidr))
		for _, r := range reserved.Within(cidr) {
			c.Reserved.Add(c.Reserved, size(r))
		}
	}
	open := 0 // in use and not reserved
	for _, b := range blocks {
		c.InUse += b.InUse()
		a := b.CIDR.Addr()
		for _, n := range b.Allocations {
			if n != model.Free && !b.reserved.Contains(a) {
				open++
			}
			a = a.Next()
		}
	}
	c.Free.Sub(c.Total, c.Reserved)
	c.Free.Sub(c.Free, big.NewInt(int64(open)))
	return c
}

func size(c netip.Prefix) *big.Int {
	return new(big.Int).Lsh(big.NewInt(1), uint(c.Addr().BitLen()-c.Bits()))
}

// InUse returns the number of allocated addresses.
func (b Block) InUse() int { return b.Size() - len(b.Unallocated) }

// Address is one allocated address.
type Address struct {
	Addr       netip.Addr
	Block      netip.Prefix
	Affinity   string // the block's host, "" for none
	Handle     string
	Attributes map[string]string
	// User is the endpoint's key, or the tunnel, that etcd says has the address; "" for none.
	User string
}

// Host returns the host that took the address, "" if unknown.
func (a Address) Host() string { return a.Attributes["node"] }

// Leaked reports whether the address has no known user. Workloads of another main plugin have no endpoints, so one of
// them may still use it.
func (a Address) Leaked() bool { return a.User == "" && !model.IsGatewayHandle(a.Handle, a.Addr) }

// Borrowed reports whether a host took it from a block of another host.
func (a Address) Borrowed() bool {
	return a.Host() != "" && a.Affinity != "" && a.Host() != a.Affinity
}

// New evaluates entries, read by Ranges. It skips entries that can't be read; see package invariants.
func New(entries []model.Entry) *Usage {
	u := &Usage{byAddr: map[netip.Addr]string{}}
	var blocks []Block
	var nodes []model.HostMetadata
	for _, e := range entries {
		if node, ok := e.Value.(model.HostMetadata); ok {
			nodes = append(nodes, node)
		}
	}
	reserved := model.ReservedOf(entries)
	for _, e := range entries {
		switch value := e.Value.(type) {
		case model.Pool:
			parked := value.Manual || !slices.ContainsFunc(nodes, picks(value.NodeSelector)) && len(nodes) > 0
			u.Pools = append(u.Pools, Pool{CIDR: value.CIDR, Name: value.Name, Disabled: value.Disabled, ForPods: value.Serves(model.ForWorkloads), Parked: parked, reserved: reserved})
		case model.Block:
			blocks = append(blocks, Block{value, reserved.Within(value.CIDR)})
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
		u.Pools = append(u.Pools, Pool{Blocks: outside, reserved: reserved})
	}
	return u
}

// picks returns a function that reports whether a node_selector matches a node.
func picks(text string) func(model.HostMetadata) bool {
	s, err := selector.Parse(text)
	return func(node model.HostMetadata) bool {
		return err == nil && s.Matches(func(name string) (string, bool) { v, ok := node.Labels[name]; return v, ok })
	}
}

func compare(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// poolOf returns the smallest pool that contains the block, or nil. Disabled pools come last.
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

// Any reports whether any endpoint or tunnel has an address.
func (u *Usage) Any() bool { return len(u.byAddr) > 0 }

// Pool returns the pool that contains an address, or nil.
func (u *Usage) Pool(a netip.Addr) *Pool { return u.poolOf(netip.PrefixFrom(a, a.BitLen())) }

// User returns the user of an address, as in Address.User, whether or not the address is allocated.
func (u *Usage) User(a netip.Addr) string { return u.byAddr[a] }

// Addresses returns the allocated addresses of a block, in order.
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

// All returns the allocated addresses of all blocks.
func (u *Usage) All() []Address {
	var all []Address
	for _, p := range u.Pools {
		for _, b := range p.Blocks {
			all = append(all, u.Addresses(b)...)
		}
	}
	return all
}
