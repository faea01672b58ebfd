// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// gc frees and deletes what this network holds on this node for containers
// that are not in the list of valid attachments.
func (s *session) gc(ctx context.Context) error {
	if s.conf.ValidAttachments == nil {
		return failf(CodeConfig, "the container runtime must list the attachments that are to stay; an empty list is valid",
			"cni.dev/valid-attachments: missing")
	}
	etcd, cancel := context.WithTimeout(ctx, s.conf.DatastoreTimeout)
	defer cancel()
	if err := s.open(etcd); err != nil {
		return err
	}
	v := newView()
	wants := []ipam.Want{{Key: model.ReadyKey{}}}
	for _, k := range addressKeys(s.node) {
		wants = append(wants, ipam.Want{Key: k})
	}
	if err := s.read(etcd, v, wants); err != nil {
		return err
	}
	if err := v.checkReady(); err != nil {
		return err
	}
	if err := s.checkName(v); err != nil {
		return err
	}
	s.named = true
	g := &collection{s: s, began: v.revision, valid: make(map[string]bool), stale: make(map[string]identity)}
	for _, a := range s.conf.ValidAttachments {
		handle := handleID(s.conf.Name, a.ContainerID, a.IfName)
		g.valid[handle] = true
	}
	if err := g.find(etcd); err != nil {
		return err
	}
	step("found")
	errs := g.collectAll(etcd)
	if g.delegated() {
		knows, err := s.delegateKnows(ctx, "1.1.0")
		if err == nil && knows {
			err = s.delegateVerb(ctx, "GC")
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	s.log = s.log.With("collected", g.collected.Load())
	return firstOf(errs)
}

// firstOf joins the first few errors, and counts the rest: one cause fails each.
func firstOf(errs []error) error {
	const most = 3
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most:most], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// collection is one GC under way.
type collection struct {
	s     *session
	began int64               // etcd's revision
	valid map[string]bool     // handles
	stale map[string]identity // by handle
	links map[string]link.Link
	seen  map[model.WorkloadEndpointKey]bool // endpoints, when they were listed

	collected atomic.Int64 // how many of the stale were taken away
}

// delegated reports whether another plugin gave the addresses.
func (g *collection) delegated() bool {
	return g.s.plugin == Calico && g.s.conf.IPAM.Type != netconf.CalicoIPAM && g.s.conf.IPAM.Type != ""
}

// find looks for what is stale: in the kernel, among this host's endpoints, and
// in the blocks.
func (g *collection) find(ctx context.Context) error {
	if g.s.plugin == CalicoIPAM {
		return g.findAddresses(ctx, true)
	}
	if err := g.findDelegations(); err != nil {
		return err
	}
	if err := g.findLinks(ctx); err != nil {
		return err
	}
	if err := g.findEndpoints(ctx); err != nil {
		return err
	}
	return g.findAddresses(ctx, false)
}

func (g *collection) add(id identity) {
	if g.valid[id.handle] {
		return
	}
	have, ok := g.stale[id.handle]
	blocks := append(have.blocks, id.blocks...)
	none := model.WorkloadEndpointKey{}
	if ok && (have.key != none || id.key == none && have.hostIf != "") {
		id = have // it is known better
	}
	id.blocks = blocks
	g.stale[id.handle] = id
}

// findLinks finds the links that carry a handle of this network and were never
// entered in etcd, or are entered as another's.
func (g *collection) findLinks(context.Context) error {
	all, err := link.List(hostPrefix)
	if err != nil {
		return fail(CodeKernel, err, "")
	}
	g.links = make(map[string]link.Link, len(all))
	keep := make(map[string]bool, len(g.valid))
	for handle := range g.valid {
		keep[linkAlias(g.s.conf.Name, handle)] = true
	}
	for _, l := range all {
		g.links[l.Name] = l
		if halfMade(l) {
			g.add(identity{network: g.s.conf.Name, hostIf: l.Name, handle: "link " + l.Name})
			continue
		}
		if !aliasOfNetwork(l.Alias, g.s.conf.Name) || keep[l.Alias] {
			continue
		}
		// The handle of a shortened alias is unknown: the link alone is stale.
		id := identity{network: g.s.conf.Name, hostIf: l.Name, alias: l.Alias, handle: strings.TrimPrefix(l.Alias, aliasPrefix)}
		id.cid, id.ifName, _ = splitHandle(id.network, id.handle, nil)
		g.add(id)
	}
	return nil
}

// findDelegations finds those for whom another plugin may hold addresses,
// though nothing else tells of them.
func (g *collection) findDelegations() error {
	all, err := g.s.delegations().of(g.s.conf.Name)
	if err != nil {
		return fail(CodeIO, err, "")
	}
	for _, d := range all {
		handle := handleID(d.network, d.cid, d.ifName)
		g.add(identity{
			network: d.network, hostIf: d.hostIf, handle: handle, alias: linkAlias(d.network, handle), cid: d.cid, ifName: d.ifName,
		})
	}
	return nil
}

// halfMade reports whether the process that made the link died before it could
// say whose it is: that takes a second message to the kernel. Others, too, have
// links whose names begin as ours do.
func halfMade(l link.Link) bool {
	return unnamed(l) && !l.Up && isHostInterface(l.Name)
}

// unnamed reports whether a link may be one of ours that says nothing of whose it is. It never
// has its other end on the host: that is made in the pod's namespace, and ends with it.
func unnamed(l link.Link) bool { return l.Alias == "" && l.Kind == "veth" && !l.BothEndsHere() }

// relabelled reports whether a link may be one of ours that somebody has given another alias. Then
// its endpoint says whose it is.
func relabelled(l link.Link) bool {
	return l.Alias != "" && !isOurAlias(l.Alias) && l.Kind == "veth" && !l.BothEndsHere()
}

// isHostInterface reports whether a name has the form of those that hostInterface
// makes.
func isHostInterface(name string) bool {
	digits, ok := strings.CutPrefix(name, hostPrefix)
	return ok && len(digits) == 11 && strings.Trim(digits, "0123456789abcdef") == ""
}

// findEndpoints finds the endpoints of this network: those whose handle is one
// of it, or whose link says so, or for whom another plugin was asked. An endpoint
// alone does not tell its network.
func (g *collection) findEndpoints(ctx context.Context) error {
	entries, err := g.s.endpointsHere(ctx)
	if err != nil {
		return err
	}
	g.seen = make(map[model.WorkloadEndpointKey]bool, len(entries))
	var candidates []identity
	var wants []ipam.Want
	for _, e := range entries {
		key, _ := e.Key.(model.WorkloadEndpointKey)
		g.seen[key] = true
		ep, ok := e.Value.(model.WorkloadEndpoint)
		if !ok || ep.ContainerID == "" {
			continue
		}
		handle := handleID(g.s.conf.Name, ep.ContainerID, key.Endpoint)
		if e.Revision > g.began {
			// The list of attachments could not have it.
			g.valid[handle] = true
			delete(g.stale, handle)
		}
		if g.valid[handle] {
			continue
		}
		candidates = append(candidates, identity{
			key: key, network: g.s.conf.Name, hostIf: ep.Name, handle: handle, alias: linkAlias(g.s.conf.Name, handle),
			cid: ep.ContainerID, ifName: key.Endpoint,
		})
		wants = append(wants, ipam.Want{Key: model.HandleKey{ID: handle}}, ipam.Want{Key: model.HandleKey{ID: handle, Legacy: true}})
	}
	v := newView()
	for batch := range slices.Chunk(wants, 100) {
		if err := g.s.read(ctx, v, batch); err != nil {
			return err
		}
	}
	for _, id := range candidates {
		_, known := g.stale[id.handle]
		switch {
		case known, v.get(model.HandleKey{ID: id.handle}).Exists(), v.get(model.HandleKey{ID: id.handle, Legacy: true}).Exists(),
			g.links[id.hostIf].Alias == id.alias:
			g.add(id)
		}
	}
	return nil
}

// findAddresses finds handles of this network in the blocks that this host has
// affinity to. Borrowed addresses are found by their endpoints; where there are
// none, everywhere, by all handles of the network.
func (g *collection) findAddresses(ctx context.Context, everywhere bool) error {
	affinities, err := g.s.list(ctx, model.AffinityPrefix(g.s.node), true)
	if err != nil {
		return err
	}
	blocks := make(map[netip.Prefix]bool)
	for _, e := range affinities {
		if k, ok := e.Key.(model.AffinityKey); ok {
			blocks[k.CIDR] = true
		}
	}
	if everywhere {
		prefix := (model.HandleKey{ID: g.s.conf.Name + "."}).Path()
		handles, err := g.s.list(ctx, prefix, false)
		if err != nil {
			return err
		}
		for _, e := range handles {
			k, _ := e.Key.(model.HandleKey)
			h, ok := e.Value.(model.Handle)
			if !ok || g.valid[k.ID] {
				continue
			}
			for c := range h.Blocks {
				blocks[c] = true
			}
		}
	}
	var wants []ipam.Want
	for c := range blocks {
		wants = append(wants, ipam.Want{Key: model.BlockKey{CIDR: c}})
	}
	for batch := range slices.Chunk(wants, 100) {
		v := newView()
		if err := g.s.read(ctx, v, batch); err != nil {
			return err
		}
		for _, e := range v.entries {
			b, _ := e.Value.(model.Block)
			for _, a := range b.Attributes {
				if a.Secondary["network"] == g.s.conf.Name && a.Secondary["node"] == g.s.node {
					g.add(g.identityOf(a, b.CIDR))
				}
			}
		}
	}
	return nil
}

// identityOf is what a block says of a handle. Its link and its endpoint may not
// have been found: an ADD may have made them since. The lock is the host
// interface's all the same, and the endpoint goes with the addresses.
func (g *collection) identityOf(a model.Attributes, block netip.Prefix) identity {
	id := identity{network: g.s.conf.Name, handle: a.HandleID, blocks: []netip.Prefix{block}}
	workload := a.Secondary["workload"]
	var ok bool
	if id.cid, id.ifName, ok = splitHandle(id.network, id.handle, a.Secondary); !ok || workload == "" {
		return id
	}
	id.key = model.WorkloadEndpointKey{
		Host: g.s.node, Orchestrator: a.Secondary["orchestrator"], Workload: workload, Endpoint: id.ifName,
	}
	if g.s.plugin == Calico {
		id.hostIf, id.alias = hostInterface(workload, id.ifName), linkAlias(id.network, id.handle)
	}
	return id
}

// splitHandle undoes handleID, by what is kept beside an address where names have dots.
func splitHandle(network, handle string, kept map[string]string) (cid, ifName string, ok bool) {
	rest, ok := strings.CutPrefix(handle, network+".")
	if !ok {
		return "", "", false
	}
	if cid = kept["container"]; cid != "" {
		ifName, ok = strings.CutPrefix(rest, cid+".")
		return cid, ifName, ok
	}
	if ifName = kept["interface"]; ifName != "" {
		cid, ok = strings.CutSuffix(rest, "."+ifName)
		return cid, ifName, ok
	}
	return strings.Cut(rest, ".")
}
