// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/cni/addresses"
	"github.com/calico-go/calico/pkg/cni/attach"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/model"
)

func differs(format string, args ...any) error {
	return protocol.Failf(protocol.CodeCheck, "delete the pod, so that it is made again", format, args...)
}

// check compares the result of the ADD with the kernel and with etcd.
func (c *call) check(ctx context.Context) error {
	id := c.identity()
	p, err := protocol.PrevResult(c.conf, id)
	if err != nil {
		return err
	}
	ns, err := attach.OpenNamespace(c.env.Netns)
	if err != nil {
		return err
	}
	c.cleanup = append(c.cleanup, ns.Close)
	switch {
	case len(p.Interfaces) == 0: // as in a result of a version before 0.3.0
	case p.Pod == nil:
		return differs("prevResult has no interface %s of the container", c.env.IfName)
	case p.Host == nil:
		return differs("prevResult has no host interface %s", id.HostIf)
	}
	if err := checkKernel(id, ns, p); err != nil {
		return err
	}
	// Skip static: its CHECK compares prefix lengths, and calico gives every pod a /32 or /128.
	if c.delegates() && c.conf.IPAM.Type != "" && c.conf.IPAM.Type != "static" {
		knows, err := c.delegate().Knows(ctx, "0.4.0")
		if err == nil && knows {
			err = c.delegate().Verb(ctx, "CHECK")
		}
		if err != nil {
			return err
		}
	}
	etcd, cancel := context.WithTimeout(ctx, c.conf.DatastoreTimeout)
	defer cancel()
	revision, err := c.checkEtcd(etcd, id, p)
	if err != nil {
		return err
	}
	return attach.WaitAtGate(ctx, c.conf, c.log, id.Key, revision)
}

// checkKernel compares the veth, and the configuration of the pod's end.
func checkKernel(id protocol.Identity, ns *pod.Namespace, p *protocol.Previous) error {
	l, err := link.Find(id.HostIf)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return differs("host interface %s is gone", id.HostIf)
	case err != nil:
		return protocol.Fail(protocol.CodeKernel, err, "")
	case l.Alias != id.Alias && !l.IsUnnamed(): // an older version of Calico gave it none
		return differs("host interface %s has the alias %q, not %q", id.HostIf, l.Alias, id.Alias)
	case !l.Up:
		return differs("host interface %s is down", id.HostIf)
	case p.Host != nil && !isMAC(l.MAC, p.Host.Mac):
		return differs("host interface %s has the MAC address %s, not %s", id.HostIf, l.MAC, p.Host.Mac)
	case p.Host != nil && p.Host.Mtu != 0 && l.MTU > p.Host.Mtu:
		// A smaller one is fine: the agent adapts workloads to the network's MTU.
		return differs("host interface %s has an MTU of %d, more than the %d of its ADD", id.HostIf, l.MTU, p.Host.Mtu)
	}
	held, err := pod.Read(ns, id.IfName, tables(p)...)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return differs("the container has no interface %s", id.IfName)
	case err != nil:
		return protocol.Fail(protocol.CodeKernel, err, "")
	case held.HostIndex != l.Index:
		return differs("the container's %s is not the other end of %s", id.IfName, id.HostIf)
	case !held.Up:
		return differs("the container's %s is down", id.IfName)
	case held.MTU > l.MTU:
		return differs("the container's %s has an MTU of %d, more than the %d of host interface %s, which drops what is larger",
			id.IfName, held.MTU, l.MTU, id.HostIf)
	case p.Pod != nil && !isMAC(held.MAC, p.Pod.Mac):
		return differs("the container's %s has the MAC address %s, not %s", id.IfName, held.MAC, p.Pod.Mac)
	}
	for _, a := range p.Addrs {
		if want := netip.PrefixFrom(a, a.BitLen()); !slices.Contains(held.Addrs, want) {
			return differs("the container's %s does not have the address %s", id.IfName, want)
		}
	}
	for _, a := range held.Astray {
		return differs("what the container sends from %s does not leave by %s: the routing rule for that, or its table, is gone", a, id.IfName)
	}
	return checkRoutes(p, held)
}

// isMAC reports whether a result's MAC address equals mac or is empty. Chained plugins pass an address as they were
// given it: in upper case, or with dashes.
func isMAC(mac model.MAC, said string) bool {
	parsed, err := model.ParseMAC(said)
	return said == "" || err == nil && parsed == mac
}

// tables returns the tables, other than the main one, that the result's routes are in.
func tables(p *protocol.Previous) (out []uint32) {
	for _, r := range p.Routes {
		if t := tableOf(r); t != 0 && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// tableOf returns a route's table, 0 for the main one.
func tableOf(r *types.Route) uint32 {
	if r.Table == nil || *r.Table == unix.RT_TABLE_MAIN {
		return 0
	}
	return uint32(*r.Table)
}

// checkRoutes looks for the routes of the ADD. It ignores the gateways' metrics and other attributes: another
// interface's routes may change them, and so may the network's operator.
func checkRoutes(p *protocol.Previous, held pod.State) error {
	for _, r := range p.Routes {
		dst, ok := protocol.PrefixOf(r.Dst)
		if !ok {
			continue
		}
		gw, hasGW := protocol.AddrOf(r.GW)
		found := slices.ContainsFunc(held.Routes, func(have pod.Route) bool {
			return have.Dst == dst.Masked() && have.Table == tableOf(r) && (!hasGW || have.Gateway == gw)
		})
		if found {
			continue
		}
		missing := pod.Route{Dst: dst, Gateway: gw, Table: tableOf(r)}
		return differs("the container has no %s", missing)
	}
	return nil
}

// checkEtcd compares the endpoint and the addresses of its handle. It returns the endpoint's revision.
func (c *call) checkEtcd(ctx context.Context, id protocol.Identity, p *protocol.Previous) (revision int64, err error) {
	ranges := []model.Range{model.KeyRange(model.ReadyKey{}), model.KeyRange(id.Key)}
	if !c.delegates() {
		ranges = append(ranges, ipam.FirstReadRelease(id.Handle)...)
	}
	err = c.etcd.Read(ctx, ranges, func(v *model.View) error {
		if err := addresses.CheckReady(v); err != nil {
			return err
		}
		entry, path := v.Get(id.Key), id.Key.Path()
		endpoint, ok := entry.Value.(model.WorkloadEndpoint)
		revision = entry.Revision
		switch {
		case !entry.Exists():
			return differs("etcd has no endpoint %s", path)
		case !ok:
			return differs("endpoint %s does not parse: %v", path, entry.Err)
		case endpoint.ContainerID != id.Container:
			return differs("endpoint %s belongs to container %q", path, endpoint.ContainerID)
		case endpoint.State != model.StateActive:
			return differs("endpoint %s is %s", path, endpoint.State)
		case endpoint.Name != id.HostIf:
			return differs("endpoint %s is on interface %s, not %s", path, endpoint.Name, id.HostIf)
		case p.Pod != nil && !isMAC(endpoint.MAC, p.Pod.Mac):
			return differs("endpoint %s has the MAC address %s, not %s", path, endpoint.MAC, p.Pod.Mac)
		}
		if a, ok := difference(endpoint.Addrs(), p.Addrs); ok {
			return differs("endpoint %s and prevResult differ in the address %s", path, a)
		}
		if c.delegates() {
			return nil
		}
		held, err := heldAddrs(v, id, p.Addrs)
		if err != nil {
			return err
		}
		if len(held) == 0 && c.conf.IPAddrsNoIPAM {
			return nil // the annotation asked for no IPAM; only an ADD reads annotations
		}
		if a, ok := difference(held, p.Addrs); ok {
			return differs("what handle %s holds and prevResult differ in the address %s", id.Handle, a)
		}
		return nil
	})
	return revision, err
}

// heldAddrs returns the addresses that the handle holds in etcd. If it holds none, heldAddrs returns those of addrs
// that a handle of an older version of Calico holds.
func heldAddrs(v *model.View, id protocol.Identity, addrs []netip.Addr) (out []netip.Addr, err error) {
	plan := ipam.NewPlan(v)
	held, err := plan.Held(id.Handle)
	for _, a := range held {
		out = append(out, a.Addr)
	}
	if err != nil || len(held) > 0 {
		return out, err
	}
	for _, a := range addrs {
		handle, allocated, err := plan.Holder(a)
		if err != nil {
			return nil, err
		}
		if allocated && slices.Contains(id.OlderHandles(), handle) {
			out = append(out, a)
		}
	}
	return out, nil
}

// difference finds an address that is in only one of a and b.
func difference(a, b []netip.Addr) (netip.Addr, bool) {
	for _, x := range a {
		if !slices.Contains(b, x) {
			return x, true
		}
	}
	for _, x := range b {
		if !slices.Contains(a, x) {
			return x, true
		}
	}
	return netip.Addr{}, false
}
