// SPDX-License-Identifier: Apache-2.0

package render

import (
	"time"

	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// Sets returns the sets that always exist, empty.
func Sets() []table.Set {
	sets := []table.Set{
		{Name: SetWorkloads, Key: []table.Type{table.TypeInterface}, Comment: "the workloads' interfaces, and whose they are"},
		{Name: SetClosed, Key: []table.Type{table.TypeInterface}, Comment: "whose endpoint is inactive: not even DHCP"},
		{Name: SetShut, Key: []table.Type{table.TypeInterface}, Comment: "interfaces of endpoints that no prefix of workloads' covers: nothing passes"},
		{Name: MapFrom, Key: []table.Type{table.TypeInterface}, Data: table.TypeVerdict, Jump: true, Comment: "what is asked about what the endpoint sends"},
		{Name: MapTo, Key: []table.Type{table.TypeInterface}, Data: table.TypeVerdict, Jump: true, Comment: "what is asked about what the endpoint receives"},
		{Name: SetDeniedFrom, Key: []table.Type{table.TypeInterface}, Count: true, Comment: "what nothing allowed the endpoint to send"},
		{Name: SetDeniedTo, Key: []table.Type{table.TypeInterface}, Count: true, Comment: "what nothing allowed the endpoint to receive"},
		{Name: SetMACs, Key: []table.Type{table.TypeInterface, table.TypeEther}, Comment: "the MAC address that the endpoint sends from"},
		{Name: SetAnyMAC, Key: []table.Type{table.TypeInterface}, Comment: "whose endpoint says no MAC address"},
		{Name: SetNamed, Key: []table.Type{table.TypeInterface}, Comment: "interfaces with a host endpoint of their own, which * is none of"},
		{Name: MapHostIn, Key: []table.Type{table.TypeInterface}, Data: table.TypeVerdict, Comment: "host endpoints, for the host itself"},
		{Name: MapHostOut, Key: []table.Type{table.TypeInterface}, Data: table.TypeVerdict, Comment: "host endpoints, from the host itself"},
		{Name: MapUntrackIn, Key: []table.Type{table.TypeInterface}, Data: table.TypeVerdict, Comment: "host endpoints with untracked policies, for the host itself"},
		{Name: MapUntrackOut, Key: []table.Type{table.TypeInterface}, Data: table.TypeVerdict, Comment: "host endpoints with untracked policies, from the host itself"},
		{Name: MapPreDNAT, Key: []table.Type{table.TypeInterface}, Data: table.TypeVerdict, Jump: true, Comment: "host endpoints with policies before DNAT"},
		{Name: MapForwardIn, Key: []table.Type{table.TypeInterface}, Data: table.TypeVerdict, Jump: true, Comment: "host endpoints, what is forwarded from them"},
		{Name: MapForwardOut, Key: []table.Type{table.TypeInterface}, Data: table.TypeVerdict, Jump: true, Comment: "host endpoints, what is forwarded to them"},
	}
	for _, version := range [...]int{4, 6} {
		addr := address(version, false).Type
		sets = append(sets,
			table.Set{Name: Versioned(SetHosts, version), Key: []table.Type{addr}, Comment: "the other hosts, from which tunnels take packets"},
			table.Set{Name: Versioned(SetPeers, version), Key: []table.Type{addr}, Comment: "BGP peers, which alone may open sessions"},
			table.Set{Name: Versioned(setSessions, version), Key: []table.Type{addr}, Expires: time.Hour, Comment: "how often a BGP peer opened a session"},
			sourceSet(version),
			indexedSet(version),
			table.Set{Name: Versioned(MapDNAT, version), Key: []table.Type{addr}, Data: addr, Comment: "1:1 NAT: the endpoint's own address by its outer one"},
			table.Set{Name: Versioned(MapHairpin, version), Key: []table.Type{addr, addr}, Data: addr, Comment: "1:1 NAT: the outer address by which an endpoint calls itself"},
			table.Set{Name: Versioned(SetPools, version), Key: []table.Type{addr}, Interval: true, Comment: "all pools"},
			table.Set{Name: Versioned(SetMasquerade, version), Key: []table.Type{addr}, Interval: true, Comment: "pools whose addresses are masqueraded outside of all pools"})
	}
	sets = append(sets,
		table.Set{Name: setLinkLocals, Key: []table.Type{table.TypeIndex, table.TypeIPv6}, Expires: time.Hour, Comment: "link-local addresses that workloads have used"},
		table.Set{Name: setLearning, Key: []table.Type{table.TypeIndex}, Expires: time.Hour, Comment: "how often a workload came with one more"})
	return append(sets, CutSets()...)
}

// PolicySet returns a policy's set for one IP version, empty.
func PolicySet(version int, id policy.SetID, kind policy.SetKind, text string) table.Set {
	s := table.Set{Name: PolicySetName(version, id, kind), Key: []table.Type{address(version, false).Type}, Comment: Comment(text, "")}
	if kind == policy.KindPorts {
		s.Key = append(s.Key, table.TypeProtocol, table.TypeService)
	}
	return s
}

// NetSet returns the set of the networks in a policy's set for one IP version, empty.
func NetSet(version int, id policy.SetID) table.Set {
	return table.Set{
		Name: NetSetName(version, id), Key: []table.Type{address(version, false).Type}, Interval: true,
		Comment: "networks that the selector of @" + PolicySetName(version, id, policy.KindAddrs) + " picks",
	}
}
