// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// maxHosts is how many addresses of hosts one ADD sets aside, and of workloads it enters: more than the 110 pods that kubelet runs on
// a node. Each takes a handle, of the 128 operations that etcd takes at once.
const maxHosts = 112

// hostOf names the host that has an address which was chosen, "" for none: this one, or another, which etcd says. Others
// are read where the pool contains the hosts' network, as an address of this one shows, but for its workloads' gateway.
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

// isHosts refuses an address that a host has.
func isHosts(a netip.Addr, whose string) error {
	return protocol.Failf(protocol.CodeAddress, "ask for another address, or take the hosts' network out of the pool", "address %s: %s has it itself", a, whose)
}
