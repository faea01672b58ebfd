// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"maps"
	"net/netip"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/model"
)

// endpoint returns the endpoint that an ADD writes to etcd for the agents. If it replaces an endpoint of the same
// container, fields that others have set are kept.
func (a Addition) endpoint(addrs []netip.Addr, old model.WorkloadEndpoint) (model.WorkloadEndpoint, error) {
	e, mtu := model.WorkloadEndpoint{State: model.StateActive}, a.MTU
	if old.ContainerID == a.ID.Container {
		e = old
		if old.MTU > 0 {
			mtu = min(mtu, old.MTU) // the MTU of its link is never raised
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
	case a.Pod.UID != "": // the same fields that the controllers maintain
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

// float maps the pod's floating addresses to its first address of the same family. Without floating addresses, the
// endpoint's NAT is left for others to set.
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

// profileKeys returns the keys of the network's own profile: those that an ADD writes and the one that it doesn't. It
// returns none if policy comes from Kubernetes.
func profileKeys(conf *netconf.Config) []model.Key {
	if conf.Policy.Kubernetes {
		return nil
	}
	name := conf.Name
	return []model.Key{model.ProfileRulesKey{Profile: name}, model.ProfileTagsKey{Profile: name}, model.ProfileLabelsKey{Profile: name}}
}

// profile creates the network's own profile if no part of it exists: it allows endpoints of the network to talk to each
// other and out. A profile that an operator has changed is left alone.
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
