// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"maps"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

// endpoint is what an ADD writes to etcd for the agents. Where the endpoint of
// this same container is there already, what others have added to it stays.
func (s *session) endpoint(id identity, mac model.MAC, mtu int, addrs []netip.Addr, old model.WorkloadEndpoint) model.WorkloadEndpoint {
	e := model.WorkloadEndpoint{State: model.StateActive}
	if old.ContainerID == id.cid {
		e = old
		if old.MTU > 0 {
			mtu = min(mtu, old.MTU) // its link gets no greater one
		}
	}
	e.Name, e.MAC, e.MTU, e.ContainerID = id.hostIf, mac, mtu, id.cid
	e.IPv4Nets, e.IPv6Nets = nil, nil
	for _, a := range addrs {
		p := netip.PrefixFrom(a, a.BitLen())
		if a.Is4() {
			e.IPv4Nets = append(e.IPv4Nets, p)
		} else {
			e.IPv6Nets = append(e.IPv6Nets, p)
		}
	}
	profile := id.network
	if s.conf.Policy.Kubernetes {
		profile = "k8s_ns." + id.podSpace
		e.Labels = maps.Clone(e.Labels)
		if e.Labels == nil {
			e.Labels = make(map[string]string)
		}
		e.Labels["calico/k8s_ns"] = id.podSpace
	}
	if len(e.ProfileIDs) == 0 {
		e.ProfileIDs = []string{profile}
	}
	return e
}

// profileKeys are the keys of the network's own profile that an ADD makes, and the one that it
// doesn't; none where Kubernetes says what the policy is.
func (s *session) profileKeys() []model.Key {
	if s.conf.Policy.Kubernetes {
		return nil
	}
	name := s.conf.Name
	return []model.Key{model.ProfileRulesKey{Profile: name}, model.ProfileTagsKey{Profile: name}, model.ProfileLabelsKey{Profile: name}}
}

// profile makes the network's own profile where no part of it is there:
// endpoints of the network may talk to each other and out. What an operator
// has made of it stays.
func (s *session) profile(v *view) model.Change {
	var c model.Change
	keys := s.profileKeys()
	for _, k := range keys {
		if v.get(k).Exists() {
			return c
		}
	}
	for _, k := range keys {
		c.Compares = append(c.Compares, model.Compare{Key: k})
		switch k.(type) {
		case model.ProfileRulesKey:
			c.Puts = append(c.Puts, model.Put{Key: k, Value: model.Rules{
				Inbound:  []model.Rule{{Action: model.ActionAllow, Match: model.Match{SrcTag: s.conf.Name}}},
				Outbound: []model.Rule{{Action: model.ActionAllow}},
			}})
		case model.ProfileTagsKey:
			c.Puts = append(c.Puts, model.Put{Key: k, Value: model.Tags{s.conf.Name}})
		}
	}
	return c
}
