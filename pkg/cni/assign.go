// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/ipam"
)

// wantedAddrs are the addresses that were asked for by number: of each family the first
// source that names any decides. nerdctl passes an IPv4 address in CNI_ARGS, and the IPv6
// address of the same container in runtimeConfig.
func (s *session) wantedAddrs() []netip.Addr {
	var out []netip.Addr
	for _, addrs := range [][]netip.Addr{s.conf.RuntimeIPs, s.conf.ArgsIPs, s.env.args.IPs} {
		v4, v6 := families(out)
		for _, a := range addrs {
			if a.Is4() && !v4 || a.Is6() && !v6 {
				out = append(out, a)
			}
		}
	}
	return out
}

// request is what address management is asked for.
func (s *session) request(id identity) ipam.Request {
	return ipam.Request{
		Host:       s.node,
		Handle:     id.handle,
		Attributes: id.attributes(),
		IPv4:       s.conf.IPAM.AssignIPv4,
		IPv6:       s.conf.IPAM.AssignIPv6,
		Pools4:     s.conf.IPAM.IPv4Pools,
		Pools6:     s.conf.IPAM.IPv6Pools,
		Addrs:      s.wantedAddrs(),
		Now:        s.started,
	}
}

// maxBlocks is in how many blocks the addresses of one container may lie. To claim or to
// delete one is two operations of the 128 that etcd takes at once, and the next sandbox of a
// pod takes as many as the former one gives back.
const maxBlocks = 30

// maxGateways is how many gateways are reserved at once: each takes a handle, and a block
// that may be another than the address's.
const maxGateways = maxBlocks / 2

// fits refuses addresses, asked for by number, that etcd could not take at once.
func fits(choice ipam.Choice) error {
	blocks := make(map[netip.Prefix]bool)
	for _, a := range choice.Addrs {
		blocks[a.Block] = true
	}
	if len(blocks) <= maxBlocks {
		return nil
	}
	return failf(CodeConfig, "ask for fewer addresses, or for such as lie closer together",
		"the addresses that are asked for lie in %d blocks: those of one container may lie in %d", len(blocks), maxBlocks)
}

// assign gives a handle its addresses. What it has is what an earlier ADD for the
// same interface has reported, and is all that this one gets, whatever is
// configured by now: nothing is allocated twice. Where somebody has deleted the handle it is
// made anew, of what the blocks that were read say, and those of the addresses that it had.
func assign(plan *ipam.Plan, v *view, r ipam.Request, had ...netip.Addr) (ipam.Choice, error) {
	held, err := v.ipam.Held(r.Handle)
	if err == nil && len(held) == 0 && len(had) > 0 {
		if _, err = plan.BlocksOf(r.Handle, had); err == nil {
			held, err = v.ipam.Held(r.Handle)
		}
	}
	if err != nil {
		return ipam.Choice{}, err
	}
	if len(held) == 0 {
		choice, err := plan.Assign(r)
		if err != nil {
			return choice, err
		}
		return choice, fits(choice)
	}
	for _, a := range held {
		node := a.Attributes["node"]
		if !sameNames(a.Attributes, r.Attributes) {
			return ipam.Choice{}, failf(CodeAddress, "give the container, its interface or the network a name without dots",
				"address %s: another container has it as handle %s, which its names make as well as this one's: it is of network %s", a.Addr, r.Handle, a.Attributes["network"])
		}
		if node != "" && node != r.Host {
			return ipam.Choice{}, failf(CodeAddress, "give another CNI_CONTAINERID: a container's is its own among all nodes. Or DEL that container first, on its node; on this one, if that is its former name",
				"address %s: node %s has it for a container of the same id, as handle %s", a.Addr, node, r.Handle)
		}
	}
	place := func(a netip.Addr) int { return slices.Index(r.Addrs, a) }
	names := make([]string, len(held))
	for i, a := range held {
		names[i] = a.Addr.String()
	}
	for _, addr := range r.Addrs {
		if !slices.ContainsFunc(held, func(a ipam.Assigned) bool { return a.Addr == addr }) {
			return ipam.Choice{}, failf(CodeAddress, "delete the container first, or ask for what it has",
				"address %s: the container's interface has %s already, as handle %s", addr, strings.Join(names, " and "), r.Handle)
		}
	}
	// In the order of the first answer.
	slices.SortStableFunc(held, func(a, b ipam.Assigned) int {
		return cmp.Or(cmp.Compare(a.Addr.BitLen(), b.Addr.BitLen()), cmp.Compare(place(a.Addr), place(b.Addr)))
	})
	return ipam.Choice{Addrs: held}, plan.Restore(r.Handle, held)
}
