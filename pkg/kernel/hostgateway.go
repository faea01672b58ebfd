// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// A workload's IPv6 goes by HostGatewayLL, which the host end has and other programs
// may take away: all that flushes a link's addresses does.

// gateway adds what the endpoint's IPv6 addresses, those that can be programmed, go by.
func (p *interfacePlan) gateway(l Link, st *state, addrs []netip.Addr) {
	if !l.isGateway() || st.gateways[l.Index] || !slices.ContainsFunc(addrs, netip.Addr.Is6) {
		return
	}
	p.write(kchange{
		what:     fmt.Sprintf("add %s, the workload's IPv6 gateway, to %s", HostGatewayLL(), l.Name),
		requests: []*message{addGateway(l.Index)},
	})
}

// readGateways lists them.
func (r *reader) readGateways(st *state) error {
	err := r.sock.walk(listAddrs6(), func() { clear(st.gateways) }, func(m received) {
		if index, ok := whoseGateway(m); ok {
			st.gateways[index] = true
		}
	})
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) { // no IPv6
		return fmt.Errorf("list IPv6 addresses: %w", err)
	}
	return nil
}

// findGateways asks for that of each link of an endpoint with IPv6: to list one link's
// addresses the kernel walks all links.
func (h *HostPath) findGateways(st *state) error {
	var requests []*message
	for name, l := range st.links {
		if !l.isGateway() || !h.desired[name].hasIPv6() {
			continue
		}
		m := newMessage(unix.RTM_GETADDR, 0, addrBody(netip.PrefixFrom(HostGatewayLL(), 0), 0, l.Index))
		m.attrAddr(unix.IFA_ADDRESS, HostGatewayLL())
		requests = append(requests, m)
	}
	answers, err := h.sock.do(requests...)
	if err != nil {
		return err
	}
	for _, a := range answers { // an error says that there is none
		for _, m := range a.data {
			// Of a link that has just gone away it answers with another's.
			if index, ok := whoseGateway(m); ok {
				st.gateways[index] = true
			}
		}
	}
	return nil
}

// whoseGateway is the link that has HostGatewayLL by a message about an address.
func whoseGateway(m received) (index int, ok bool) {
	p, index, ok := parseAddr(m.body)
	return index, ok && m.kind == unix.RTM_NEWADDR && p.Addr() == HostGatewayLL()
}

func (r *reader) gatewayDigest(m received) uint64 {
	index, ok := whoseGateway(m)
	if !ok {
		return 0
	}
	return maphash.Comparable(r.hash.Seed(), index)
}
