// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// maxHosts limits how many host addresses one ADD reserves, and how many addresses in use by workloads it records. It
// exceeds the 110 pods that kubelet runs on a node. Each address takes a handle, one of the 128 operations per etcd
// transaction.
const maxHosts = 112

// hostOf reports which host owns the chosen address, "" if none: this host, or another one according to etcd. It reads
// the other hosts only if the pool contains the hosts' network, which it does if this host has an address in it besides
// the workloads' gateway.
func hostOf(v *model.View, a ipam.Assigned, gateway netip.Addr) (string, error) {
	if a.Existing {
		return "", nil
	}
	if link.IsHosts(a.Addr) {
		return "this host", nil
	}
	hosts := model.PrefixRange(model.BGPHostPrefix())
	entries, read := v.Read(hosts)
	if !read {
		for _, own := range link.Addrs(subnet(a)) {
			if own != gateway {
				return "", &model.NeedRangesError{Ranges: []model.Range{hosts}}
			}
		}
	}
	for _, e := range entries {
		k, _ := e.Key.(model.BGPHostKey)
		if k.Field != model.BGPHostIPv4 && k.Field != model.BGPHostIPv6 {
			continue
		}
		text, _ := e.Value.(model.Text)
		if addr, err := netip.ParseAddr(string(text)); err == nil && addr == a.Addr {
			return "host " + k.Host, nil
		}
	}
	return "", nil
}

// isHosts returns the error for an address that belongs to a host.
func isHosts(a netip.Addr, whose string) error {
	return protocol.Failf(protocol.CodeAddress, "ask for another address, or take the hosts' network out of the pool", "address %s: %s has it itself", a, whose)
}
