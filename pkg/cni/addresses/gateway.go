// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
)

// Subnets assigns addresses for another main plugin, which expects each one with a subnet and a gateway in it.
//
// The subnet is the pool. If the main plugin uses a gateway on this host (ptp, and bridge if so configured), the
// gateway is the first address of the pool, the same on every host. That address is reserved for good under the handle
// gateway.<address>, as are the addresses that mean the network as a whole.
type Subnets struct {
	Conf    *netconf.Config
	Request ipam.Request
}

// FirstRead returns the ranges that Decide must see first.
func (s Subnets) FirstRead() []model.Range {
	return append(ipam.FirstRead(s.Request), model.KeyRange(model.ReadyKey{}))
}

// maxReserved limits how many addresses are reserved at once, not counting those of hosts: each takes a handle, and
// maybe another block than the chosen address.
const maxReserved = maxBlocks / 2

// Decide chooses addresses. If it picks one that must be reserved, it reserves that one and chooses again.
func (s Subnets) Decide(v *model.View) (ipam.Choice, model.Change, error) {
	var none model.Change
	if err := CheckReady(v); err != nil {
		return ipam.Choice{}, none, err
	}
	var reserved []netip.Addr
	hosts := 0 // how many of these are addresses of hosts
	for {
		plan := ipam.NewPlan(v)
		needed := &model.NeedRangesError{}
		for _, a := range reserved {
			err := s.reserve(plan, a)
			if need, more := errors.AsType[*model.NeedRangesError](err); more {
				needed.Ranges = append(needed.Ranges, need.Ranges...)
			} else if err != nil {
				return ipam.Choice{}, none, err
			}
		}
		if len(needed.Ranges) > 0 {
			return ipam.Choice{}, none, needed
		}
		choice, err := assign(plan, s.Request)
		if err != nil {
			return choice, none, err
		}
		before := len(reserved)
		for _, a := range choice.Addrs {
			gw, _ := s.gateway(a)
			if gw.IsValid() && subnet(a).Contains(gw) && !slices.Contains(reserved, gw) {
				reserved = append(reserved, gw)
			}
			whose, err := hostOf(v, a, gw)
			why := meansNetwork(a.Addr, subnet(a))
			switch {
			case err != nil:
				return choice, none, err
			case whose != "" && !slices.Contains(s.Request.Addrs, a.Addr):
				if hosts++; hosts > maxHosts {
					return choice, none, isHosts(a.Addr, whose)
				}
				reserved = append(reserved, a.Addr)
			case why == "" || a.Existing || s.Conf.Type == string(protocol.Calico): // calico's pods have no subnet
			case slices.Contains(s.Request.Addrs, a.Addr):
				return choice, none, protocol.Failf(protocol.CodeAddress, "ask for another address", "address %s: %s of %s, which is the network that %s is told",
					a.Addr, why, subnet(a), cmp.Or(s.Conf.Type, "the main plugin"))
			default:
				reserved = append(reserved, a.Addr)
			}
		}
		if len(reserved)-hosts > maxReserved {
			return choice, none, protocol.Failf(protocol.CodeConfig, "ask for addresses of fewer pools",
				"the addresses that are asked for have %d gateways: those of one container may have %d", len(reserved)-hosts, maxReserved)
		}
		if len(reserved) == before {
			return choice, plan.Change(), nil
		}
	}
}

// reserve sets an address aside for good.
func (s Subnets) reserve(plan *ipam.Plan, a netip.Addr) error {
	err := setAside(plan, s.Request, a, "gateway")
	if _, more := errors.AsType[*model.NeedRangesError](err); err == nil || more {
		return err
	}
	what := "the gateway of " + cmp.Or(s.Conf.Type, "the main plugin") + ", the first address of its network"
	if s.Conf.IPAM.Gateway.IsValid() {
		what = "ipam.gateway"
	}
	if _, taken := errors.AsType[*ipam.TakenError](err); taken {
		return protocol.Failf(protocol.CodeAddress, "delete the container that has it, or set ipam.gateway to the address of another gateway", "reserve %s: %w", what, err)
	}
	return fmt.Errorf("reserve %s: %w", what, err)
}

// setAside reserves an address for the hosts' links. what is recorded as the reason.
func setAside(plan *ipam.Plan, r ipam.Request, a netip.Addr, what string) error {
	_, err := plan.Assign(ipam.Request{
		Host: r.Host, HostLabels: r.HostLabels, Now: r.Now,
		Handle: model.GatewayHandle(a), Attributes: map[string]string{"reserved": what}, Addrs: []netip.Addr{a}, Reserve: true,
	})
	return err
}

// gateway returns the gateway reported to the main plugin, the zero Addr for none, and whether to add a default route
// through it.
func (s Subnets) gateway(a ipam.Assigned) (gw netip.Addr, isDefault bool) {
	first := subnet(a).Masked().Addr().Next()
	switch configured := s.Conf.IPAM.Gateway; {
	case configured.IsValid():
		if configured.Is4() != a.Addr.Is4() {
			return netip.Addr{}, false
		}
		return configured, true
	case s.Conf.Type == "ptp":
		return first, true
	case s.Conf.IsGateway:
		return first, false // the bridge plugin adds the route itself if configured
	}
	return netip.Addr{}, false
}

// Result returns the result for the main plugin.
func (s Subnets) Result(choice ipam.Choice) *types100.Result {
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, DNS: protocol.DNS(s.Conf.DNS)}
	for _, a := range choice.Addrs {
		gw, isDefault := s.gateway(a)
		r.IPs = append(r.IPs, &types100.IPConfig{Address: protocol.IPNet(netip.PrefixFrom(a.Addr, subnet(a).Bits())), Gateway: gw.AsSlice()})
		if isDefault {
			dst := protocol.DefaultV4()
			if a.Addr.Is6() {
				dst = protocol.DefaultV6()
			}
			r.Routes = append(r.Routes, &types.Route{Dst: protocol.IPNet(dst), GW: gw.AsSlice()})
		}
	}
	return r
}

// subnet returns the network of an address: its pool, or its block if the pool was deleted.
func subnet(a ipam.Assigned) netip.Prefix {
	if a.Pool.IsValid() {
		return a.Pool
	}
	return a.Block
}

// meansNetwork says which special role an address has in its subnet, "" for none. A workload can't have IPv4's first
// and last address (RFC 1122, 3.2.1.3), nor IPv6's first, which belongs to every router of the subnet (RFC 4291,
// 2.6.1). Subnets for the two ends of a link have no such addresses.
func meansNetwork(a netip.Addr, subnet netip.Prefix) string {
	switch {
	case subnet.Bits() >= a.BitLen()-1:
		return ""
	case a == subnet.Masked().Addr() && a.Is4():
		return "the network's own address"
	case a == subnet.Masked().Addr():
		return "the address of all routers"
	case a.Is4() && !subnet.Contains(a.Next()):
		return "the broadcast address"
	}
	return ""
}
