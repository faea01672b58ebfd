// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/calico-go/calico/pkg/model"
)

// ServicesOf returns the names, as those of ServiceKeys, of the Services that the rules of a policy or profile name, sorted.
func ServicesOf(value any) (names []string) {
	var lists [][]model.Rule
	switch v := value.(type) {
	case model.Policy:
		lists = [][]model.Rule{v.Inbound, v.Outbound}
	case model.Rules:
		lists = [][]model.Rule{v.Inbound, v.Outbound}
	}
	for _, rules := range lists {
		for _, r := range rules {
			for _, p := range slices.Concat(r.Match.SrcPorts, r.Match.DstPorts, r.Not.SrcPorts, r.Not.DstPorts) {
				if namespace, name, is := model.ServiceOf(p.Name); is {
					names = append(names, namespace+"/"+name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Service returns what a Service leads to by a slice of its endpoints, none if the slice has no addresses, or no ports.
func Service(namespace, name string, s *discoveryv1.EndpointSlice) (of model.ServiceEndpoints) {
	for _, p := range s.Ports {
		protocol := model.ProtocolTCP
		if p.Protocol != nil {
			known, err := model.ParseProtocol(string(*p.Protocol))
			if err != nil {
				continue
			}
			protocol = known
		}
		if p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
			of.Ports = append(of.Ports, model.EndpointPort{Name: model.ServicePort(namespace, name), Protocol: protocol, Port: uint16(*p.Port)})
		}
	}
	for _, e := range s.Endpoints {
		for _, text := range e.Addresses {
			if a, err := netip.ParseAddr(text); err == nil { // a slice of domain names has none
				of.Nets = append(of.Nets, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	slices.SortFunc(of.Nets, netip.Prefix.Compare)
	of.Nets = slices.Compact(of.Nets)
	return of
}
