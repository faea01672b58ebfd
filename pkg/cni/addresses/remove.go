// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
)

// Removal describes what to remove from etcd for one container interface.
type Removal struct {
	ID protocol.Identity
	// Addresses removes what our own address management assigned.
	Addresses bool
	// Endpoint removes the container's endpoint. Otherwise, freeing addresses that an endpoint has is refused.
	Endpoint bool
	// Linked says that the container's link was on this host.
	Linked bool
	// Elsewhere says that the interface connects the container to another network, whose endpoint must stay.
	Elsewhere bool
	// Blocks are blocks that may hold addresses of the handle without the handle naming them.
	Blocks []netip.Prefix
	// Undo takes back what this call has written, even if etcd is not marked ready.
	Undo bool
}

// Removed describes what a removal deletes.
type Removed struct {
	Addrs []netip.Addr
	Any   bool // anything at all
	// Endpoint reports that the endpoint under the key made from the container's names is deleted.
	Endpoint bool
	Links    []string // links, other than the container's own, that its endpoints use
	Left     []any    // why the addresses stay, for the log
	// Unknown is the path of an endpoint that is kept because nothing shows whether it is the container's.
	Unknown string
}

// Remove performs the removal. before runs once the change is decided, before it is committed.
func (s *Store) Remove(ctx context.Context, r Removal, before func(*model.View, Removed) error) error {
	ranges := []model.Range{model.KeyRange(model.ReadyKey{})}
	if r.ID.Key != (model.WorkloadEndpointKey{}) {
		ranges = append(ranges, model.KeyRange(r.ID.Key))
	}
	transact := s.Transact
	if r.Addresses {
		ranges, transact = append(ranges, ipam.FirstReadRelease(r.ID.Handle)...), s.Address
	}
	if r.Undo {
		ranges = append(ranges, s.lostBlocks()...)
	}
	var removed Removed
	_, err := transact(ctx, ranges,
		func(v *model.View) (change model.Change, err error) {
			removed, change, err = s.decideRemoval(r, v)
			return change, err
		},
		func(v *model.View) error {
			if before == nil {
				return nil
			}
			return before(v, removed)
		})
	if err == nil && removed.Left != nil {
		s.Log.Warn("leaving addresses that aren't this container's", removed.Left...)
	}
	if err == nil && removed.Unknown != "" {
		s.Log.Warn("leaving the workload's endpoint, which names no container: if the workload is gone, delete it with calicoctl delete workloadendpoint NAME -n NAMESPACE --force",
			"key", removed.Unknown)
	}
	return err
}

func (s *Store) decideRemoval(r Removal, v *model.View) (Removed, model.Change, error) {
	var out Removed
	var change model.Change
	if v.Get(model.ReadyKey{}).Value == model.Ready(false) && !r.Undo {
		return out, change, CheckReady(v)
	}
	keys := []model.WorkloadEndpointKey{r.ID.Key}
	plan := ipam.NewPlan(v)
	if r.Addresses {
		held, err := plan.Held(r.ID.Handle)
		if _, invalid := errors.AsType[*ipam.InvalidError](err); err != nil && !invalid { // Release decides whether an invalid handle matters
			return out, change, err
		}
		for _, a := range held {
			if out.Left, err = s.anothers(r, v, a.Attributes); err != nil || out.Left != nil {
				return out, change, err
			}
			// The ADD may have known the pod or the node under another name.
			if key, ok := protocol.Attributed(a.Attributes, r.ID.IfName); ok && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		if out.Addrs, err = plan.Release(r.ID.Handle, s.Now, r.Blocks...); err != nil {
			return out, change, err
		}
		out.Any = len(out.Addrs) > 0
	}
	for _, key := range keys {
		if key == (model.WorkloadEndpointKey{}) {
			continue
		}
		if !v.Has(key) {
			return out, change, &model.NeedRangesError{Ranges: []model.Range{model.KeyRange(key)}}
		}
		entry := v.Get(key)
		endpoint, _ := entry.Value.(model.WorkloadEndpoint)
		if r.Addresses && r.Endpoint && endpoint.ContainerID == "" {
			if err := releaseOlder(plan, r.ID.OlderHandlesOfContainer(), endpoint, &out, s.Now); err != nil {
				return out, change, err
			}
		}
		if !r.owns(entry, out.Addrs) {
			if _, valid := entry.Value.(model.WorkloadEndpoint); valid && endpoint.ContainerID == "" && r.Endpoint && !r.Undo {
				out.Unknown = key.Path()
			}
			continue
		}
		change.Compares = append(change.Compares, v.Compare(key))
		if !r.Endpoint {
			at := slices.IndexFunc(out.Addrs, func(a netip.Addr) bool { return slices.Contains(endpoint.Addrs(), a) })
			if at < 0 {
				continue
			}
			return Removed{}, model.Change{}, protocol.Failf(protocol.CodeAddress, "delete the container by the plugin calico, with the same network configuration",
				"address %s is in use: %s has it", out.Addrs[at], key.Path())
		}
		change.Deletes, out.Any = append(change.Deletes, key), true
		out.Endpoint = out.Endpoint || key == r.ID.Key
		if r.Addresses && endpoint.ContainerID != "" {
			if err := releaseOlder(plan, r.ID.OlderHandles(), endpoint, &out, s.Now); err != nil {
				return out, change, err
			}
		}
		if endpoint.Name != "" && endpoint.Name != r.ID.HostIf {
			out.Links = append(out.Links, endpoint.Name)
		}
	}
	if r.Addresses {
		change.Merge(plan.Change())
		if r.Undo {
			change.Merge(s.settleLost(v))
		}
	}
	return out, change, nil
}

// releaseOlder frees those addresses of a deleted endpoint that an older version of Calico assigned under one of
// handles.
func releaseOlder(plan *ipam.Plan, handles []string, endpoint model.WorkloadEndpoint, out *Removed, now time.Time) error {
	for _, a := range endpoint.Addrs() {
		if slices.Contains(out.Addrs, a) {
			continue
		}
		handle, allocated, err := plan.Holder(a)
		if err != nil {
			return err
		}
		if !allocated || !slices.Contains(handles, handle) {
			continue
		}
		if _, _, err = plan.ReleaseAddr(a, now); err != nil {
			return err
		}
		out.Addrs = append(out.Addrs, a)
	}
	return nil
}

// anothers explains why an address of the handle belongs to another container, judging by the attributes kept with it:
// one in a network whose name makes the same handle, or one on another node that has a container with the same ID, as
// on a copied disk. Another node is distinct as long as it reports its status; after that its name counts as a former
// name of this node.
func (s *Store) anothers(r Removal, v *model.View, kept map[string]string) (why []any, err error) {
	if network := kept["network"]; network != "" && r.ID.Network != "" && network != r.ID.Network {
		return []any{"handle", r.ID.Handle, "network", network}, nil
	}
	node := kept["node"]
	if node == "" || node == s.Node || r.Linked {
		return nil, nil
	}
	status := model.StatusKey{Host: node}
	switch {
	case !v.Has(status):
		return nil, &model.NeedRangesError{Ranges: []model.Range{model.KeyRange(status)}}
	case !v.Get(status).Exists():
		return nil, nil
	case s.Guessed:
		return nil, protocol.Failf(protocol.CodeTryAgain, startAgent, "whether node %s, which has the container's addresses, is this one isn't known", node)
	}
	return []any{"handle", r.ID.Handle, "node", node}, nil
}

// startAgent is the hint for a node whose name was guessed.
const startAgent = "start calico-node, which writes the file with this node's name, or set nodename in the network configuration"

// lostBlocks returns the blocks compared by commits whose answer was lost.
func (s *Store) lostBlocks() (ranges []model.Range) {
	for _, lost := range s.lost {
		for _, c := range lost.Compares {
			if _, ok := c.Key.(model.BlockKey); ok {
				ranges = append(ranges, model.KeyRange(c.Key))
			}
		}
	}
	return ranges
}

// settleLost rewrites these blocks, so that a commit that has not taken effect by now never will. Otherwise an etcd
// member that hung might apply it long after.
func (s *Store) settleLost(v *model.View) (out model.Change) {
	for _, lost := range s.lost {
		for _, c := range lost.Compares {
			e := v.Get(c.Key)
			b, ok := e.Value.(model.Block)
			written := slices.ContainsFunc(out.Puts, func(p model.Put) bool { return p.Key == c.Key })
			if ok && e.Revision == c.Revision && !written {
				out.Compares = append(out.Compares, c)
				out.Puts = append(out.Puts, model.Put{Key: c.Key, Value: b})
			}
		}
	}
	return out
}

// owns reports whether the endpoint is still this container's. An endpoint that does not parse belongs to no container
// and is deleted; one without a container ID, written by other software, is ours if its addresses are.
func (r Removal) owns(entry model.Entry, freed []netip.Addr) bool {
	endpoint, ok := entry.Value.(model.WorkloadEndpoint)
	key, _ := entry.Key.(model.WorkloadEndpointKey)
	switch {
	case !entry.Exists():
		return false
	case !ok:
		return true
	case r.Elsewhere && endpoint.Name == r.ID.HostIf:
		return false
	case endpoint.ContainerID != "":
		return protocol.HandleID(r.ID.Network, endpoint.ContainerID, key.Endpoint) == r.ID.Handle
	}
	addrs := endpoint.Addrs()
	return len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !slices.Contains(freed, a) })
}
