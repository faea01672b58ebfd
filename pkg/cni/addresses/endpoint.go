// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"maps"
	"net/netip"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/model"
)

// endpoint is what an ADD writes to etcd for the agents. Where the endpoint of
// this same container is there already, what others have added to it stays.
func (a Addition) endpoint(addrs []netip.Addr, old model.WorkloadEndpoint) model.WorkloadEndpoint {
	e, mtu := model.WorkloadEndpoint{State: model.StateActive}, a.MTU
	if old.ContainerID == a.ID.Container {
		e = old
		if old.MTU > 0 {
			mtu = min(mtu, old.MTU) // its link gets no greater one
		}
	}
	e.Name, e.MAC, e.MTU, e.ContainerID = a.ID.HostIf, a.MAC, mtu, a.ID.Container
	e.IPv4Nets, e.IPv6Nets = nil, nil
	for _, addr := range addrs {
		p := netip.PrefixFrom(addr, addr.BitLen())
		if addr.Is4() {
			e.IPv4Nets = append(e.IPv4Nets, p)
		} else {
			e.IPv6Nets = append(e.IPv6Nets, p)
		}
	}
	profile := a.ID.Network
	if a.Conf.Policy.Kubernetes {
		profile = "k8s_ns." + a.ID.PodSpace
		e.Labels = maps.Clone(e.Labels)
		if e.Labels == nil {
			e.Labels = make(map[string]string)
		}
		e.Labels["calico/k8s_ns"] = a.ID.PodSpace
	}
	if len(e.ProfileIDs) == 0 {
		e.ProfileIDs = []string{profile}
	}
	return e
}

// profileKeys are the keys of the network's own profile that an ADD makes, and the one that it
// doesn't; none where Kubernetes says what the policy is.
func profileKeys(conf *netconf.Config) []model.Key {
	if conf.Policy.Kubernetes {
		return nil
	}
	name := conf.Name
	return []model.Key{model.ProfileRulesKey{Profile: name}, model.ProfileTagsKey{Profile: name}, model.ProfileLabelsKey{Profile: name}}
}

// profile makes the network's own profile where no part of it is there:
// endpoints of the network may talk to each other and out. What an operator
// has made of it stays.
func profile(conf *netconf.Config, v *model.View) (c model.Change) {
	keys := profileKeys(conf)
	for _, k := range keys {
		if v.Get(k).Exists() {
			return model.Change{}
		}
		c.Compares = append(c.Compares, model.Compare{Key: k})
	}
	if len(keys) > 0 {
		c.Puts = []model.Put{
			{Key: keys[0], Value: model.Rules{
				Inbound:  []model.Rule{{Action: model.ActionAllow, Match: model.Match{SrcTag: conf.Name}}},
				Outbound: []model.Rule{{Action: model.ActionAllow}},
			}},
			{Key: keys[1], Value: model.Tags{conf.Name}},
		}
	}
	return c
}
