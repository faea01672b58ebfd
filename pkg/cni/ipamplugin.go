// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// ipamAdd gives addresses to another main plugin.
//
// The plugins of the CNI project expect a subnet and a gateway in it. The
// subnet is the pool. Where the main plugin makes a gateway of this host (ptp,
// and bridge where that is configured) it is the first address of the pool, the
// same on every host, which is reserved under the handle gateway.<address> and
// stays so.
func (s *session) ipamAdd(ctx context.Context) (types.Result, error) {
	id := newIdentity(s.conf.Name, s.node, s.env)
	if err := errors.Join(s.checkNames(), id.check()); err != nil {
		return nil, err
	}
	if err := s.checkFamilies(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.conf.DatastoreTimeout)
	defer cancel()
	if err := s.lockInterface(ctx, id.handle); err != nil {
		return nil, err
	}
	step("start")
	request := s.request(id)
	first := s.begin(ctx, s.withHints(append([]ipam.Want{{Key: model.ReadyKey{}}}, ipam.FirstRead(request)...)))
	var choice ipam.Choice
	fresh := false
	s.undo.push("etcd", func(ctx context.Context) error {
		if !fresh {
			return nil
		}
		return s.releaseHandle(ctx, id)
	})
	_, err := s.transact(ctx, transaction{
		first: first,
		decide: func(v *view) (model.Change, error) {
			if err := v.checkReady(); err != nil {
				return model.Change{}, err
			}
			plan := ipam.NewPlan(v.ipam)
			var err error
			if choice, err = assign(plan, v, request); err == nil {
				choice, err = s.reserveGateways(plan, v, request, choice)
			}
			if err != nil {
				return model.Change{}, joinNeeds(err, s.gatewaysAhead(v, request))
			}
			fresh = !slices.ContainsFunc(choice.Addrs, func(a ipam.Assigned) bool { return a.Existing })
			return plan.Change(), nil
		},
		ifTaken: func(v *view, n int64) []ipam.Want { return ipam.NewPlan(v.ipam).IfTaken(request, n) },
		took: func() (blocks []netip.Prefix) {
			for _, a := range choice.Addrs {
				blocks = append(blocks, a.Block)
			}
			return blocks
		},
	})
	if err != nil {
		return nil, err
	}
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, DNS: dns(s.conf.DNS)}
	var addrs []netip.Addr
	for _, a := range choice.Addrs {
		subnet := netip.PrefixFrom(a.Addr, subnetOf(a).Bits())
		gw, isDefault := s.gatewayFor(a)
		r.IPs = append(r.IPs, &types100.IPConfig{Address: ipNet(subnet), Gateway: gw.AsSlice()})
		if isDefault {
			dst := defaultV4()
			if a.Addr.Is6() {
				dst = defaultV6()
			}
			r.Routes = append(r.Routes, &types.Route{Dst: ipNet(dst), GW: gw.AsSlice()})
		}
		addrs = append(addrs, a.Addr)
	}
	s.log = s.log.With("addresses", addrs)
	return r, nil
}

// subnetOf is the network that an address is in: its pool, or its block where
// the pool was deleted.
func subnetOf(a ipam.Assigned) netip.Prefix {
	if a.Pool.IsValid() {
		return a.Pool
	}
	return a.Block
}

// gatewayFor is the gateway that the main plugin is told, invalid for none, and
// whether it is to be the default.
func (s *session) gatewayFor(a ipam.Assigned) (gw netip.Addr, isDefault bool) {
	first := subnetOf(a).Masked().Addr().Next()
	switch configured := s.conf.IPAM.Gateway; {
	case configured.IsValid():
		if configured.Is4() != a.Addr.Is4() {
			return netip.Addr{}, false
		}
		return configured, true
	case s.conf.Type == "ptp":
		return first, true
	case s.conf.IsGateway:
		return first, false // the bridge plugin adds the route if it is to
	}
	return netip.Addr{}, false
}

// reserveGateways makes sure that the gateways' addresses are no pod's, nor those that mean
// a network as a whole. Where the choice fell on one, the choice is made again.
func (s *session) reserveGateways(plan *ipam.Plan, v *view, request ipam.Request, choice ipam.Choice) (ipam.Choice, error) {
	passed := s.passedOver(request)
	var gateways []netip.Addr
	for hit := true; hit; {
		hit = false
		for _, a := range choice.Addrs {
			gw, _ := s.gatewayFor(a)
			if gw.IsValid() && subnetOf(a).Contains(gw) && !slices.Contains(gateways, gw) {
				gateways = append(gateways, gw)
			}
			hit = hit || gw == a.Addr
			why := meansNetwork(a.Addr, subnetOf(a))
			switch {
			case why == "" || a.Existing || s.conf.Type == string(Calico): // whose pods have no subnet
				continue
			case slices.Contains(request.Addrs, a.Addr):
				return choice, failf(CodeAddress, "ask for another address", "address %s: %s of %s, which is the network that %s is told",
					a.Addr, why, subnetOf(a), cmp.Or(s.conf.Type, "the main plugin"))
			}
			passed.Addrs, hit = append(passed.Addrs, a.Addr), true
		}
		if len(gateways) > maxGateways {
			return choice, failf(CodeConfig, "ask for addresses of fewer pools",
				"the addresses that are asked for have %d gateways: those of one container may have %d", len(gateways), maxGateways)
		}
		if hit {
			*plan = *ipam.NewPlan(v.ipam)
		}
		slices.SortFunc(gateways, netip.Addr.Compare)
		for _, gw := range gateways {
			_, err := plan.Assign(gatewayRequest(request, gw))
			if _, more := errors.AsType[*ipam.NeedError](err); more {
				return choice, err
			}
			if err != nil {
				return choice, s.noGateway(err)
			}
		}
		if !hit {
			break
		}
		if len(passed.Addrs) > 0 {
			if _, err := plan.Assign(passed); err != nil {
				return choice, err
			}
		}
		var err error
		if choice, err = assign(plan, v, request); err != nil {
			return choice, err
		}
	}
	if len(passed.Addrs) > 0 {
		if _, err := plan.Release(passed.Handle, request.Now); err != nil {
			return choice, err
		}
	}
	return choice, nil
}

// noGateway says why a gateway can't be reserved.
func (s *session) noGateway(err error) error {
	what := "the gateway of " + cmp.Or(s.conf.Type, "the main plugin") + ", the first address of its network"
	if s.conf.IPAM.Gateway.IsValid() {
		what = "ipam.gateway"
	}
	if _, taken := errors.AsType[*ipam.TakenError](err); taken {
		return failf(CodeAddress, "delete the container that has it, or set ipam.gateway to the address of another gateway", "reserve %s: %w", what, err)
	}
	return fmt.Errorf("reserve %s: %w", what, err)
}

// gatewayRequest sets a gateway aside for the pods of the request.
func gatewayRequest(request ipam.Request, gw netip.Addr) ipam.Request {
	return ipam.Request{
		Host: request.Host, HostLabels: request.HostLabels, Now: request.Now,
		Handle: model.GatewayHandle(gw), Attributes: map[string]string{"reserved": "gateway"}, Addrs: []netip.Addr{gw}, Reserve: true,
	}
}

// passedOver asks for addresses that are passed over in one call, and free after it. No
// handle has this name: container ids don't begin with a dot.
func (s *session) passedOver(request ipam.Request, addrs ...netip.Addr) ipam.Request {
	return ipam.Request{
		Host: request.Host, HostLabels: request.HostLabels, Now: request.Now,
		Handle: s.conf.Name + "..passed", Addrs: addrs, Reserve: true,
	}
}

// gatewaysAhead is a *ipam.NeedError with what reserveGateways will most likely look at, for
// that to be read together with what the request needs anyway.
func (s *session) gatewaysAhead(v *view, request ipam.Request) (needs error) {
	for _, p := range v.ipam.LikelyPools(request) {
		gw, _ := s.gatewayFor(ipam.Assigned{Addr: p.Addr(), Pool: p})
		if !gw.IsValid() || !p.Contains(gw) {
			continue
		}
		ahead := []ipam.Request{gatewayRequest(request, gw)}
		if meansNetwork(p.Addr(), p) != "" {
			ahead = append(ahead, s.passedOver(request, p.Addr()))
		}
		for _, r := range ahead {
			if _, err := ipam.NewPlan(v.ipam).Assign(r); errors.As(err, new(*ipam.NeedError)) {
				needs = joinNeeds(needs, err)
			}
		}
	}
	return needs
}

// meansNetwork says what an address is of its subnet, "" where it is any. A workload can't
// have IPv4's first and last one (RFC 1122, 3.2.1.3), nor IPv6's first, which every router
// of the subnet has (RFC 4291, 2.6.1). Subnets for the two ends of a link have none.
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

// ipamDel frees the addresses of one container interface.
func (s *session) ipamDel(ctx context.Context) error {
	id := newIdentity(s.conf.Name, s.node, s.env)
	ctx, cancel := context.WithTimeout(ctx, s.conf.DatastoreTimeout)
	defer cancel()
	if err := s.lockInterface(ctx, id.handle); err != nil {
		return err
	}
	step("start")
	return s.releaseHandle(ctx, id)
}

// releaseHandle frees the addresses of a handle that no endpoint uses.
func (s *session) releaseHandle(ctx context.Context, id identity) error {
	wants := append([]ipam.Want{{Key: model.ReadyKey{}}}, ipam.FirstReadRelease(id.handle)...)
	if id.key != (model.WorkloadEndpointKey{}) {
		wants = append(wants, ipam.Want{Key: id.key})
	}
	_, err := s.transact(ctx, transaction{
		first: s.begin(ctx, s.withHints(wants)),
		decide: func(v *view) (model.Change, error) {
			if ready, ok := v.get(model.ReadyKey{}).Value.(model.Ready); ok && !bool(ready) {
				return model.Change{}, v.checkReady()
			}
			plan := ipam.NewPlan(v.ipam)
			freed, err := s.free(plan, id, nil)
			if err != nil {
				s.askAhead()
				return model.Change{}, err
			}
			if others, err := s.othersHave(v, id); err != nil || others {
				return model.Change{}, err
			}
			change := plan.Change()
			used, err := s.usedByEndpoint(v, id, freed, &change)
			if err != nil || used {
				return model.Change{}, err
			}
			return change, nil
		},
	})
	return err
}

// usedByEndpoint finds out whether the container's endpoint has the addresses:
// then the plugin calico gave them, and takes them back together with that. GC
// leaves them, DEL fails. The change demands that it stays as it is found. Where
// calico asks for addresses by another plugin, it knows of the endpoint.
func (s *session) usedByEndpoint(v *view, id identity, freed []netip.Addr, change *model.Change) (bool, error) {
	key, ok := (&removal{s: s, id: id}).attributed(v)
	if !ok {
		key = id.key // other software keeps no attributes
	}
	if key == (model.WorkloadEndpointKey{}) || len(freed) == 0 || s.env.delegated != "" {
		return false, nil
	}
	if _, read := v.entries[key]; !read && !v.absent[key] {
		return false, &ipam.NeedError{Wants: []ipam.Want{{Key: key}}}
	}
	change.Compares = append(change.Compares, v.compare(key))
	ep, ok := v.get(key).Value.(model.WorkloadEndpoint)
	if !ok || ep.ContainerID != "" && ep.ContainerID != id.cid {
		return false, nil
	}
	at := slices.IndexFunc(freed, func(a netip.Addr) bool { return slices.Contains(ep.Addrs(), a) })
	if at < 0 {
		return false, nil
	}
	if s.env.command == "GC" {
		s.log.Info("leaving addresses that an endpoint has: GC of calico takes both", "handle", id.handle, "endpoint", key.Path())
		return true, nil
	}
	return true, failf(CodeAddress, "delete the container by the plugin calico, with the same network configuration",
		"address %s is in use: %s has it", freed[at], key.Path())
}

// allocated are the addresses that the handle holds in etcd.
func (s *session) allocated(ctx context.Context, v *view, handle string) ([]netip.Addr, error) {
	for {
		// What would be freed is what is held; nothing is committed.
		freed, err := ipam.NewPlan(v.ipam).Release(handle, s.started)
		need, more := errors.AsType[*ipam.NeedError](err)
		if !more {
			return freed, err
		}
		if err := s.read(ctx, v, need.Wants); err != nil {
			return nil, err
		}
	}
}

// ipamCheck compares prevResult with what is allocated.
func (s *session) ipamCheck(ctx context.Context) error {
	id := newIdentity(s.conf.Name, s.node, s.env)
	previous, err := s.prevResult(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.conf.DatastoreTimeout)
	defer cancel()
	if err := s.open(ctx); err != nil {
		return err
	}
	v := newView()
	if err := s.read(ctx, v, append([]ipam.Want{{Key: model.ReadyKey{}}}, ipam.FirstReadRelease(id.handle)...)); err != nil {
		return err
	}
	if err := v.checkReady(); err != nil {
		return err
	}
	held, err := s.allocated(ctx, v, id.handle)
	if err != nil {
		return err
	}
	// A main plugin may have added addresses of its own to the result: every
	// address that is held must be in it, not the other way round.
	if len(held) == 0 {
		return differs("etcd has no address for handle %s", id.handle)
	}
	for _, a := range held {
		if !slices.Contains(previous.addrs, a) {
			return differs("handle %s holds %s, which prevResult does not have", id.handle, a)
		}
	}
	return nil
}
