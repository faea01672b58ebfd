// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/model"
)

// faults lists what is wrong with what etcd holds: entries that don't parse, the
// invariants of the data model as ipam.Check sees them, and, found here by
// another way, what ties addresses to endpoints.
func faults(state map[string]model.Entry, bare []string) []string {
	var out []string
	var dump []model.Entry
	for _, path := range sortedPaths(state) {
		e := state[path]
		dump = append(dump, e)
		if e.Err != nil {
			out = append(out, fmt.Sprintf("%s: %v", path, e.Err))
		}
	}
	for _, v := range invariants.Check(dump) {
		out = append(out, v.String())
	}
	return append(out, newHoldings(dump).faults(bare)...)
}

// held is who has an address, as its block says.
type held struct {
	handle    string
	secondary map[string]string
}

// holdings are addresses, and who has them.
type holdings struct {
	pools     []netip.Prefix
	addrs     []netip.Addr // those allocated, in order
	allocated map[netip.Addr]held
	endpoints []model.WorkloadEndpointKey
	value     map[model.WorkloadEndpointKey]model.WorkloadEndpoint
}

func newHoldings(dump []model.Entry) *holdings {
	h := &holdings{allocated: make(map[netip.Addr]held), value: make(map[model.WorkloadEndpointKey]model.WorkloadEndpoint)}
	for _, e := range dump {
		switch k := e.Key.(type) {
		case model.PoolKey:
			h.pools = append(h.pools, k.CIDR)
		case model.BlockKey:
			b, _ := e.Value.(model.Block)
			addr := k.CIDR.Addr()
			for _, a := range b.Allocations {
				if a != model.Free {
					h.addrs = append(h.addrs, addr)
					h.allocated[addr] = held{b.Attributes[a].HandleID, b.Attributes[a].Secondary}
				}
				addr = addr.Next()
			}
		case model.WorkloadEndpointKey:
			if ep, ok := e.Value.(model.WorkloadEndpoint); ok {
				h.endpoints = append(h.endpoints, k)
				h.value[k] = ep
			}
		}
	}
	return h
}

// faults are addresses of two endpoints, addresses of endpoints that are not
// allocated to the handle of just that endpoint on just that host, and
// addresses that are allocated to an endpoint and that it does not have.
func (h *holdings) faults(bare []string) []string {
	var out []string
	user := make(map[netip.Addr]model.WorkloadEndpointKey)
	for _, k := range h.endpoints {
		ep := h.value[k]
		for _, a := range ep.Addrs() {
			if other, twice := user[a]; twice {
				out = append(out, fmt.Sprintf("%s: %s has its address %s too", k.Path(), other.Path(), a))
			}
			user[a] = k
			if why := h.notHeld(k, ep, a); why != "" {
				out = append(out, fmt.Sprintf("%s: its address %s %s", k.Path(), a, why))
			}
		}
	}
	for _, a := range h.addrs {
		s := h.allocated[a].secondary
		if s["workload"] == "" || slices.Contains(bare, s["network"]) {
			continue
		}
		k, used := user[a]
		if !used || k.Host != s["node"] || k.Orchestrator != s["orchestrator"] || k.Workload != s["workload"] {
			out = append(out, fmt.Sprintf("%s is allocated to handle %s, for workload %s on %s, which does not have it",
				a, h.allocated[a].handle, s["workload"], s["node"]))
		}
	}
	return out
}

// notHeld says why the address isn't the endpoint's, "" if it is. An address
// outside every pool was given by another IPAM plugin.
func (h *holdings) notHeld(k model.WorkloadEndpointKey, ep model.WorkloadEndpoint, a netip.Addr) string {
	by, allocated := h.allocated[a]
	switch want := by.secondary["network"] + "." + ep.ContainerID + "." + k.Endpoint; {
	case !allocated && slices.ContainsFunc(h.pools, func(p netip.Prefix) bool { return p.Contains(a) }):
		return "is in a pool and is not allocated"
	case !allocated:
		return ""
	case by.handle != want:
		return fmt.Sprintf("is allocated to %s, not to %s", by.handle, want)
	case by.secondary["node"] != k.Host:
		return fmt.Sprintf("is allocated for host %s", by.secondary["node"])
	}
	return ""
}
