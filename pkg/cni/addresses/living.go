// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// living returns requests for the addresses in the chosen address's block that workloads of this host already use, and
// that address management may not know: another IPAM plugin may have assigned from the same range before. It returns
// none if no workload uses the chosen address. The kernel's routes show whether one may, so an ordinary ADD reads
// nothing for this.
func (a Addition) living(v *model.View, c ipam.Assigned) (all []ipam.Request, err error) {
	if c.Existing {
		return nil, nil
	}
	if _, ok := link.LedTo(c.Addr); !ok {
		return nil, nil
	}
	endpoints := model.PrefixRange(model.WorkloadEndpointPrefix(a.Request.Host))
	entries, read := v.Read(endpoints)
	if !read {
		return nil, &model.NeedRangesError{Ranges: []model.Range{endpoints}}
	}
	for _, e := range entries {
		key, _ := e.Key.(model.WorkloadEndpointKey)
		spec, _ := e.Value.(model.WorkloadEndpoint)
		for _, addr := range spec.Addrs() {
			if l, ok := link.LedTo(addr); ok && l.Name == spec.Name && key != a.ID.Key && c.Block.Contains(addr) {
				all = append(all, a.ofLiving(key, spec, l, addr))
			}
		}
	}
	if !slices.ContainsFunc(all, func(r ipam.Request) bool { return r.Addrs[0] == c.Addr }) {
		return nil, nil
	}
	return all, nil
}

// ofLiving returns the request that records an address as that of the workload using it.
func (a Addition) ofLiving(key model.WorkloadEndpointKey, spec model.WorkloadEndpoint, l link.Link, addr netip.Addr) ipam.Request {
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
		Addrs: []netip.Addr{addr}, Endpoint: key, Living: true, Now: a.Request.Now,
	}
}

// enter records the addresses that workloads already use, except those held by another kind of handle. It returns how
// many were not recorded before.
func enter(plan *ipam.Plan, living []ipam.Request) (entered int, err error) {
	needed := &model.NeedRangesError{}
	for _, r := range living {
		choice, err := plan.Assign(r)
		need, more := errors.AsType[*model.NeedRangesError](err)
		_, taken := errors.AsType[*ipam.TakenError](err)
		switch {
		case more:
			needed.Ranges = append(needed.Ranges, need.Ranges...)
		case taken:
		case err != nil:
			return entered, err
		case !choice.Addrs[0].Existing:
			entered++
		}
	}
	if len(needed.Ranges) > 0 {
		return entered, needed
	}
	return entered, nil
}
