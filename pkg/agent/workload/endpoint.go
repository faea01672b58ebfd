// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
)

// endpointOf returns what the kernel should hold for a valid workload endpoint. The error says why this host, by its prefixes, cannot have
// such an endpoint; policy.Engine judges alike. The data model refuses, for both, what no host can have.
func endpointOf(spec model.WorkloadEndpoint, prefixes []string) (hostpath.Endpoint, error) {
	if !model.IsWorkloadInterface(spec.Name, prefixes) {
		return hostpath.Endpoint{}, fmt.Errorf("interface %.32q: the name of a workload's interface begins with %s here (InterfacePrefix)",
			spec.Name, strings.Join(prefixes, " or "))
	}
	addrs := spec.Addrs()
	for _, nats := range [][]model.NAT{spec.IPv4NAT, spec.IPv6NAT} {
		for _, n := range nats {
			addrs = append(addrs, n.ExtIP)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return hostpath.Endpoint{
		Interface: spec.Name,
		Container: spec.ContainerID,
		MAC:       spec.MAC,
		Addrs:     slices.Compact(addrs),
		Active:    spec.State == model.StateActive,
	}, nil
}

// sameEndpoint reports whether two desired endpoints are equal.
func sameEndpoint(a, b hostpath.Endpoint) bool {
	return a.Interface == b.Interface && a.Container == b.Container && a.MAC == b.MAC && a.Active == b.Active && a.Loopback == b.Loopback && slices.Equal(a.Addrs, b.Addrs)
}
