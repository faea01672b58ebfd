// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// stale is what is known of a container interface to be removed.
type stale struct {
	protocol.Identity
	blocks  []netip.Prefix // blocks with addresses of the handle, if any were seen
	unnamed bool           // the link doesn't say whose it is, as in older versions of Calico
}

// find looks for stale interfaces: in the kernel, among this host's endpoints, and in the blocks.
func (g *Collection) find(ctx context.Context) error {
	if g.Plugin == protocol.CalicoIPAM {
		return g.findAddresses(ctx)
	}
	if err := g.findLinks(); err != nil {
		return err
	}
	if err := g.findEndpoints(ctx); err != nil {
		return err
	}
	return g.findAddresses(ctx)
}

func (g *Collection) add(s stale) {
	if g.valid[s.Handle] {
		return
	}
	have, ok := g.stale[s.Handle]
	blocks := append(have.blocks, s.blocks...)
	none := model.WorkloadEndpointKey{}
	if ok && (have.Key != none || s.Key == none && have.HostIf != "") {
		s = have // it has more information
	}
	s.blocks = blocks
	g.stale[s.Handle] = s
}

// findLinks finds links that carry a handle of this network and have no endpoint in etcd, or whose endpoint is
// another's.
func (g *Collection) findLinks() error {
	all, err := link.List(protocol.HostPrefix)
	if err != nil {
		return protocol.Fail(protocol.CodeKernel, err, "")
	}
	network := g.Conf.Name
	g.links = make(map[string]link.Link, len(all))
	keep := make(map[string]bool, len(g.valid))
	for handle := range g.valid {
		keep[protocol.LinkAlias(network, handle)] = true
	}
	for _, l := range all {
		g.links[l.Name] = l
		if halfMade(l) {
			g.add(stale{Identity: protocol.Identity{Network: network, HostIf: l.Name, Handle: "link " + l.Name}})
			continue
		}
		if !protocol.AliasOfNetwork(l.Alias, network) || keep[l.Alias] {
			continue
		}
		// The handle of a shortened alias is unknown, so only the link is stale.
		g.add(stale{Identity: protocol.Identity{Network: network, HostIf: l.Name, Alias: l.Alias, Handle: protocol.AliasedHandle(l.Alias)}})
	}
	return nil
}

// findEndpoints finds the endpoints of this network: those whose handle is the network's, or whose link or MAC address
// says so. An endpoint by itself does not name its network.
func (g *Collection) findEndpoints(ctx context.Context) error {
	entries, err := g.Etcd.List(ctx, model.WorkloadEndpointPrefix(g.Etcd.Node), false)
	if err != nil {
		return err
	}
	g.seen = make(map[model.WorkloadEndpointKey]bool, len(entries))
	network := g.Conf.Name
	var candidates []stale
	var ranges []model.Range
	for _, e := range entries {
		key, _ := e.Key.(model.WorkloadEndpointKey)
		g.seen[key] = true
		ep, ok := e.Value.(model.WorkloadEndpoint)
		if !ok || ep.ContainerID == "" {
			continue
		}
		handle := protocol.HandleID(network, ep.ContainerID, key.Endpoint)
		if e.Revision > g.began {
			// The container is newer than the list of attachments.
			g.valid[handle] = true
			delete(g.stale, handle)
		}
		if g.valid[handle] {
			continue
		}
		s := stale{Identity: protocol.Identity{
			Key: key, Network: network, HostIf: ep.Name, Handle: handle, Alias: protocol.LinkAlias(network, handle),
			Container: ep.ContainerID, IfName: key.Endpoint,
		}, unnamed: g.links[ep.Name].IsUnnamed()}
		_, known := g.stale[handle]
		if known || ep.MAC == protocol.PodMAC(handle) || g.links[ep.Name].Alias == s.Alias {
			g.add(s)
			continue
		}
		candidates = append(candidates, s)
		for _, id := range append(olderHandles(s.Identity), handle) {
			ranges = append(ranges, model.KeyRange(model.HandleKey{ID: id}), model.KeyRange(model.HandleKey{ID: id, Legacy: true}))
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	return g.Etcd.Read(ctx, ranges, func(v *model.View) error {
		exists := func(id string) bool {
			return v.Get(model.HandleKey{ID: id}).Exists() || v.Get(model.HandleKey{ID: id, Legacy: true}).Exists()
		}
		for _, s := range candidates {
			if exists(s.Handle) || slices.ContainsFunc(olderHandles(s.Identity), exists) {
				g.add(s)
			}
		}
		return nil
	})
}

// olderHandles returns the handles that older versions of Calico gave a container and that contain the network's name.
// Other handles don't tell the network.
func olderHandles(id protocol.Identity) (handles []string) {
	for _, h := range id.OlderHandles() {
		if strings.HasPrefix(h, id.Network+".") {
			handles = append(handles, h)
		}
	}
	return handles
}

// findAddresses finds handles of this network in the blocks that this host has affinity to. Borrowed addresses are
// found through their endpoints; if there are none, as with another main plugin, they are found through all handles of
// the network.
func (g *Collection) findAddresses(ctx context.Context) error {
	affinities, err := g.Etcd.List(ctx, model.AffinityPrefix(g.Etcd.Node), true)
	if err != nil {
		return err
	}
	blocks := make(map[netip.Prefix]bool)
	for _, e := range affinities {
		if k, ok := e.Key.(model.AffinityKey); ok {
			blocks[k.CIDR] = true
		}
	}
	if g.Plugin == protocol.CalicoIPAM {
		handles, err := g.Etcd.List(ctx, (model.HandleKey{ID: g.Conf.Name + "."}).Path(), false)
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
	if len(blocks) == 0 {
		return nil
	}
	var ranges []model.Range
	for c := range blocks {
		ranges = append(ranges, model.KeyRange(model.BlockKey{CIDR: c}))
	}
	return g.Etcd.Read(ctx, ranges, func(v *model.View) error {
		for c := range blocks {
			b, _ := v.Get(model.BlockKey{CIDR: c}).Value.(model.Block)
			for _, a := range b.Attributes {
				if a.Secondary["network"] != g.Conf.Name || a.Secondary["node"] != g.Etcd.Node {
					continue
				}
				if s, ok := g.attributed(a, c); ok {
					g.add(s)
				} else if !g.valid[a.HandleID] {
					g.Log.Warn("leaving addresses of which it isn't known what container they were given to: calicoctl ipam release frees them", "handle", a.HandleID)
				}
			}
		}
		return nil
	})
}

// attributed returns what a block's attributes say about a handle. ok is false if they are older ones that leave its
// owner open. The link and the endpoint may not have been found, since an ADD may have made them after that. The host
// interface's lock is taken all the same, and the endpoint is deleted along with the addresses.
func (g *Collection) attributed(a model.Attributes, block netip.Prefix) (s stale, ok bool) {
	s = stale{Identity: protocol.Identity{Network: g.Conf.Name, Handle: a.HandleID}, blocks: []netip.Prefix{block}}
	sandboxes := slices.DeleteFunc(protocol.Sandboxes(s.Network, s.Handle), func(id protocol.Identity) bool {
		return id.IfName != cmp.Or(a.Secondary["interface"], id.IfName)
	})
	if len(sandboxes) != 1 {
		return s, false
	}
	s.Container, s.IfName = sandboxes[0].Container, sandboxes[0].IfName
	if s.Key, ok = protocol.Attributed(a.Secondary, s.IfName); !ok {
		s.Key = model.WorkloadEndpointKey{}
		return s, true
	}
	if g.Plugin == protocol.Calico {
		s.HostIf, s.Alias = protocol.HostInterface(s.Key.Workload, s.IfName), protocol.LinkAlias(s.Network, s.Handle)
	}
	return s, true
}
