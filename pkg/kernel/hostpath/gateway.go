// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// A workload's IPv6 goes by HostGatewayLL, which the host end has and other programs
// may take away: all that flushes a link's addresses does.

// gateway adds what the endpoint's IPv6 addresses, those that can be programmed, go by.
func (p *interfacePlan) gateway(l link.Link, st *state, addrs []netip.Addr) {
	if !l.IsGateway() || st.gateways[l.Index] || !slices.ContainsFunc(addrs, netip.Addr.Is6) {
		return
	}
	p.write(rtnl.Change{
		What:     fmt.Sprintf("add %s, the workload's IPv6 gateway, to %s", link.HostGatewayLL(), l.Name),
		Requests: []*rtnl.Message{link.AddGateway(l.Index)},
	})
}

// readGateways lists them.
func (r *reader) readGateways(st *state) error {
	err := r.sock.Walk(rtnl.ListAddrs6(), func() { clear(st.gateways) }, func(m rtnl.Received) {
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
func (h *Path) findGateways(st *state) error {
	var requests []*rtnl.Message
	for name, l := range st.links {
		if !l.IsGateway() || !h.desired[name].hasIPv6() {
			continue
		}
		m := rtnl.NewMessage(unix.RTM_GETADDR, 0, rtnl.AddrBody(netip.PrefixFrom(link.HostGatewayLL(), 0), 0, l.Index))
		m.AttrAddr(unix.IFA_ADDRESS, link.HostGatewayLL())
		requests = append(requests, m)
	}
	answers, err := h.sock.Do(requests...)
	if err != nil {
		return err
	}
	for _, a := range answers { // an error says that there is none
		for _, m := range a.Data {
			// Of a link that has just gone away it answers with another's.
			if index, ok := whoseGateway(m); ok {
				st.gateways[index] = true
			}
		}
	}
	return nil
}

// whoseGateway is the link that has HostGatewayLL by a message about an address.
func whoseGateway(m rtnl.Received) (index int, ok bool) {
	p, index, ok := rtnl.ParseAddr(m.Body)
	return index, ok && m.Kind == unix.RTM_NEWADDR && p.Addr() == link.HostGatewayLL()
}

func (r *reader) gatewayDigest(m rtnl.Received) uint64 {
	index, ok := whoseGateway(m)
	if !ok {
		return 0
	}
	return maphash.Comparable(r.hash.Seed(), index)
}
