// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"maps"
	"net/netip"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/model"
)

// endpoint is what an ADD writes to etcd for the agents. Where the endpoint of
// this same container is there already, what others have added to it stays.
func (a Addition) endpoint(addrs []netip.Addr, old model.WorkloadEndpoint) (model.WorkloadEndpoint, error) {
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
	e.MaxConnections = a.Conf.Pod.MaxConnections
	profiles := []string{a.ID.Network}
	switch {
	case a.Pod.UID != "": // all that the controllers keep so
		e.Labels, e.ProfileIDs = model.PodLabels(a.ID.PodSpace, a.Pod.ServiceAccount, a.Pod.Labels), model.PodProfiles(a.ID.PodSpace, a.Pod.ServiceAccount)
		e.Ports, e.PodUID = a.Pod.Ports, a.Pod.UID
	case a.Conf.Policy.Kubernetes:
		profiles = model.PodProfiles(a.ID.PodSpace, "")
		e.Labels = maps.Clone(e.Labels)
		if e.Labels == nil {
			e.Labels = make(map[string]string)
		}
		e.Labels[model.LabelNamespace] = a.ID.PodSpace
	}
	if len(e.ProfileIDs) == 0 {
		e.ProfileIDs = profiles
	}
	return e, a.float(&e)
}

// float has the pod's floating addresses lead to the first of its own of their family. Without any, the NAT of the
// endpoint is others' to set.
func (a Addition) float(e *model.WorkloadEndpoint) error {
	if a.Conf.Pod.FloatingIPs == nil {
		return nil
	}
	e.IPv4NAT, e.IPv6NAT = nil, nil
	for _, ext := range a.Conf.Pod.FloatingIPs {
		nets, nat := e.IPv4Nets, &e.IPv4NAT
		if ext.Is6() {
			nets, nat = e.IPv6Nets, &e.IPv6NAT
		}
		if len(nets) == 0 {
			return protocol.Failf(protocol.CodeConfig, "correct the annotation, or have the pod given an address of that family",
				"annotation %s: %s: the pod has no address of its family", netconf.AnnotationFloatingIPs, ext)
		}
		*nat = append(*nat, model.NAT{IntIP: nets[0].Addr(), ExtIP: ext})
	}
	return nil
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
		c.Puts = model.NetworkProfile(conf.Name)
	}
	return c
}
