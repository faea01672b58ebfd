// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// livingAt asks for an address that was chosen, for the workload of this host that lives with it and that address management knows
// nothing of: its address is another IPAM plugin's, which gave the same range out before. ok is false where there is none. The kernel
// tells that there may be one, so that an ordinary ADD reads nothing for it.
func (a Addition) livingAt(v *model.View, c ipam.Assigned) (r ipam.Request, ok bool, err error) {
	if c.Existing {
		return r, false, nil
	}
	l, ok := link.LedTo(c.Addr)
	if !ok {
		return r, false, nil
	}
	endpoints := model.PrefixRange(model.WorkloadEndpointPrefix(a.Request.Host))
	entries, read := v.Read(endpoints)
	if !read {
		return r, false, &model.NeedRangesError{Ranges: []model.Range{endpoints}}
	}
	for _, e := range entries {
		key, _ := e.Key.(model.WorkloadEndpointKey)
		spec, _ := e.Value.(model.WorkloadEndpoint)
		if key == a.ID.Key || spec.Name != l.Name || !slices.Contains(spec.Addrs(), c.Addr) {
			continue
		}
		id := protocol.Identity{Key: key, Handle: cmp.Or(spec.ContainerID, key.Workload)}
		handle, ours := strings.CutPrefix(l.Alias, link.WorkloadAlias)
		if network, is := strings.CutSuffix(handle, "."+spec.ContainerID+"."+key.Endpoint); ours && is {
			id.Handle, id.Network = handle, network
		}
		if key.Orchestrator == "k8s" {
			id.PodSpace, id.PodName, _ = strings.Cut(key.Workload, ".")
		}
		return ipam.Request{
			Host: a.Request.Host, HostLabels: a.Request.HostLabels, Handle: id.Handle, Attributes: id.Attributes(),
			Addrs: []netip.Addr{c.Addr}, Endpoint: key, Living: true, Now: a.Request.Now,
		}, true, nil
	}
	return r, false, nil
}
