// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/model"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"golang.org/x/sys/unix"
)

// previous is what CHECK compares with.
type previous struct {
	*types100.Result
	addrs []netip.Addr // of the pod's interface
	pod   *types100.Interface
	host  *types100.Interface
}

func differs(format string, args ...any) error {
	return failf(CodeCheck, "delete the pod, so that it is made again", format, args...)
}

// prevResult reads the result of the ADD.
func (s *session) prevResult(id identity) (*previous, error) {
	if s.conf.PrevResult == nil {
		return nil, failf(CodeConfig, "the container runtime must pass the result of the ADD", "prevResult: missing")
	}
	data := s.conf.PrevResult
	raw, err := create.Create(s.conf.CNIVersion, data)
	if err != nil {
		// Results before 1.0.0 may lack their version.
		if raw, err = createAs(s.conf.CNIVersion, data); err != nil {
			return nil, failf(CodeDecode, "the container runtime must pass the result of the ADD", "prevResult: %w", err)
		}
	}
	r, err := types100.GetResult(raw)
	if err != nil {
		return nil, failf(CodeDecode, "the container runtime must pass the result of the ADD", "prevResult: %w", err)
	}
	if err := complete(r); err != nil {
		return nil, failf(CodeDecode, "the container runtime must pass the result of the ADD", "prevResult: %w", err)
	}
	p := &previous{Result: r}
	index := -1
	for i, link := range r.Interfaces {
		switch {
		case link.Sandbox != "" && link.Name == s.env.ifName:
			p.pod, index = link, i
		case link.Sandbox == "" && link.Name == id.hostIf:
			p.host = link
		}
	}
	for _, ip := range r.IPs {
		if index >= 0 && ip.Interface != nil && *ip.Interface != index {
			continue
		}
		if a, ok := addrOf(ip.Address.IP); ok {
			p.addrs = append(p.addrs, a)
		}
	}
	return p, nil
}

// complete refuses entries that are null.
func complete(r *types100.Result) error {
	if i := slices.Index(r.Interfaces, nil); i >= 0 {
		return fmt.Errorf("interfaces[%d]: want an object, got null", i)
	}
	if i := slices.Index(r.IPs, nil); i >= 0 {
		return fmt.Errorf("ips[%d]: want an object, got null", i)
	}
	if i := slices.Index(r.Routes, nil); i >= 0 {
		return fmt.Errorf("routes[%d]: want an object, got null", i)
	}
	return nil
}

// check compares what the ADD reported with the kernel and with etcd.
func (s *session) check(ctx context.Context) error {
	id := newIdentity(s.conf.Name, s.node, s.env)
	p, err := s.prevResult(id)
	if err != nil {
		return err
	}
	ns, err := openNamespace(s.env.netns)
	if err != nil {
		return err
	}
	s.cleanup = append(s.cleanup, ns.Close)
	switch {
	case len(p.Interfaces) == 0: // as in a result of a version before 0.3.0
	case p.pod == nil:
		return differs("prevResult has no interface %s of the container", s.env.ifName)
	case p.host == nil:
		return differs("prevResult has no host interface %s", id.hostIf)
	}
	if err := checkKernel(id, ns, p); err != nil {
		return err
	}
	delegated := s.conf.IPAM.Type != netconf.CalicoIPAM
	// static holds nothing: its CHECK compares prefix lengths, and calico gives
	// every pod a /32 or /128.
	if delegated && s.conf.IPAM.Type != "" && s.conf.IPAM.Type != "static" {
		if err := s.delegateVerb(ctx, "CHECK"); err != nil {
			return err
		}
	}
	etcd, cancel := context.WithTimeout(ctx, s.conf.DatastoreTimeout)
	defer cancel()
	if err := s.open(etcd); err != nil {
		return err
	}
	revision, err := s.checkEtcd(etcd, id, p, delegated)
	if err != nil {
		return err
	}
	return s.waitAtGate(ctx, id.key, revision)
}

// checkKernel compares the veth and what the pod's end has.
func checkKernel(id identity, ns *pod.Namespace, p *previous) error {
	l, err := link.Find(id.hostIf)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return differs("host interface %s is gone", id.hostIf)
	case err != nil:
		return fail(CodeKernel, err, "")
	case l.Alias != id.alias:
		return differs("host interface %s has the alias %q, not %q", id.hostIf, l.Alias, id.alias)
	case !l.Up:
		return differs("host interface %s is down", id.hostIf)
	case p.host != nil && !isMAC(l.MAC, p.host.Mac):
		return differs("host interface %s has the MAC address %s, not %s", id.hostIf, l.MAC, p.host.Mac)
	case p.host != nil && p.host.Mtu != 0 && l.MTU > p.host.Mtu:
		// It may be smaller: the agent lets workloads follow what the network has.
		return differs("host interface %s has an MTU of %d, more than the %d of its ADD", id.hostIf, l.MTU, p.host.Mtu)
	}
	held, err := pod.Read(ns, id.ifName, p.tables()...)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return differs("the container has no interface %s", id.ifName)
	case err != nil:
		return fail(CodeKernel, err, "")
	case held.HostIndex != l.Index:
		return differs("the container's %s is not the other end of %s", id.ifName, id.hostIf)
	case !held.Up:
		return differs("the container's %s is down", id.ifName)
	case held.MTU > l.MTU:
		return differs("the container's %s has an MTU of %d, more than the %d of host interface %s, which drops what is larger",
			id.ifName, held.MTU, l.MTU, id.hostIf)
	case p.pod != nil && !isMAC(held.MAC, p.pod.Mac):
		return differs("the container's %s has the MAC address %s, not %s", id.ifName, held.MAC, p.pod.Mac)
	}
	for _, a := range p.addrs {
		if want := netip.PrefixFrom(a, a.BitLen()); !slices.Contains(held.Addrs, want) {
			return differs("the container's %s does not have the address %s", id.ifName, want)
		}
	}
	for _, a := range held.Astray {
		return differs("what the container sends from %s does not leave by %s: the routing rule for that, or its table, is gone", a, id.ifName)
	}
	return checkRoutes(p, held)
}

// isMAC reports whether a result says so, or doesn't say. Chained plugins write an address as they were
// given it: in upper case, or with dashes.
func isMAC(mac model.MAC, said string) bool {
	parsed, err := model.ParseMAC(said)
	return said == "" || err == nil && parsed == mac
}

// tables are those of the routes that aren't in the main one.
func (p *previous) tables() (out []uint32) {
	for _, r := range p.Routes {
		if t := tableOf(r); t != 0 && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// tableOf is a route's table, 0 for the main one.
func tableOf(r *types.Route) uint32 {
	if r.Table == nil || *r.Table == unix.RT_TABLE_MAIN {
		return 0
	}
	return uint32(*r.Table)
}

// checkRoutes looks for the routes of the ADD. What metrics and the like they have isn't looked at: another
// interface's routes change the one, and the network's operator may change the other.
func checkRoutes(p *previous, held pod.State) error {
	for _, r := range p.Routes {
		dst, ok := prefixOf(r.Dst)
		if !ok {
			continue
		}
		gw, hasGW := addrOf(r.GW)
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

// checkEtcd compares the endpoint and the addresses of its handle. It returns
// the endpoint's revision.
func (s *session) checkEtcd(ctx context.Context, id identity, p *previous, delegated bool) (int64, error) {
	wants := []ipam.Want{{Key: model.ReadyKey{}}, {Key: id.key}}
	if !delegated {
		wants = append(wants, ipam.FirstReadRelease(id.handle)...)
	}
	v := newView()
	if err := s.read(ctx, v, wants); err != nil {
		return 0, err
	}
	if err := v.checkReady(); err != nil {
		return 0, err
	}
	entry := v.get(id.key)
	endpoint, ok := entry.Value.(model.WorkloadEndpoint)
	switch {
	case !entry.Exists():
		return 0, differs("etcd has no endpoint %s", entryPath(id))
	case !ok:
		return 0, differs("endpoint %s does not parse: %v", entryPath(id), entry.Err)
	case endpoint.ContainerID != id.cid:
		return 0, differs("endpoint %s belongs to container %q", entryPath(id), endpoint.ContainerID)
	case endpoint.State != model.StateActive:
		return 0, differs("endpoint %s is %s", entryPath(id), endpoint.State)
	case endpoint.Name != id.hostIf:
		return 0, differs("endpoint %s is on interface %s, not %s", entryPath(id), endpoint.Name, id.hostIf)
	case p.pod != nil && !isMAC(endpoint.MAC, p.pod.Mac):
		return 0, differs("endpoint %s has the MAC address %s, not %s", entryPath(id), endpoint.MAC, p.pod.Mac)
	}
	if a, ok := difference(endpoint.Addrs(), p.addrs); ok {
		return 0, differs("endpoint %s and prevResult differ in the address %s", entryPath(id), a)
	}
	if delegated {
		return entry.Revision, nil
	}
	held, err := s.allocated(ctx, v, id.handle)
	if err != nil {
		return 0, err
	}
	if a, ok := difference(held, p.addrs); ok {
		return 0, differs("what handle %s holds and prevResult differ in the address %s", id.handle, a)
	}
	return entry.Revision, nil
}

func entryPath(id identity) string { return id.key.Path() }

// difference finds an address that only one of them has.
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

// createAs reads a result that doesn't say its version.
func createAs(cniVersion string, data []byte) (types.Result, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	fields["cniVersion"], _ = json.Marshal(cniVersion) // a string always marshals
	data, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return create.Create(cniVersion, data)
}
