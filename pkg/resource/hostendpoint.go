// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// HostEndpoint is an interface of a host.
type HostEndpoint struct {
	Node          string    `json:"node" doc:"The node that has the interface."`
	InterfaceName string    `json:"interfaceName,omitempty" doc:"The interface, or * for all of the node. Required where expectedIPs is absent."`
	ExpectedIPs   []Address `json:"expectedIPs,omitempty" doc:"Addresses of the interface, where it has no fixed name."`
	Profiles      []string  `json:"profiles,omitempty" doc:"Profiles, which decide where no policy applies."`
	Ports         []string  `json:"ports,omitempty" only:"[]" refused:"named ports of host endpoints are not supported yet: write numbers in the rules"`
}

func (HostEndpoint) validations() []Validation {
	return []Validation{{"has(self.interfaceName) || has(self.expectedIPs)", "interfaceName: missing, and no expectedIPs"}}
}

var hostEndpointKind = newKind(one(readHostEndpoint), writeHostEndpoint, Kind{
	Name: "HostEndpoint", Plural: "HostEndpoints", Aliases: []string{"hep", "heps"}, Labelled: true, perNode: true,
	custom: &custom{short: []string{"hep"}, columns: []string{"Node", "node", "Interface", "interfaceName"}},
	ranges: prefix(model.HostPrefix("")), of: keyed[model.HostEndpointKey],
	words: []string{"expected_ipv4_addrs", "expectedIPs", "expected_ipv6_addrs", "expectedIPs", "profile_ids", "profiles"}, fields: map[string]string{"name": "interfaceName"},
	Columns: []Column{
		cell("NODE", false, func(h *HostEndpoint) string { return h.Node }),
		cell("INTERFACE", true, func(h *HostEndpoint) string { return h.InterfaceName }),
		cell("IPS", true, func(h *HostEndpoint) string { return joined(h.ExpectedIPs) }),
		cell("PROFILES", true, func(h *HostEndpoint) string { return strings.Join(h.Profiles, ",") }),
	},
})

func readHostEndpoint(key model.HostEndpointKey, h *model.HostEndpoint, s *Stored) *HostEndpoint {
	s.Metadata.Name = key.Endpoint
	spec := &HostEndpoint{Node: key.Host}
	if h != nil {
		spec.InterfaceName, spec.Profiles, s.Metadata.Labels = h.Name, h.ProfileIDs, h.Labels
		spec.ExpectedIPs = addresses(slices.Concat(h.ExpectedIPv4Addrs, h.ExpectedIPv6Addrs))
	}
	return spec
}

// nodeOf returns the node on which a resource's name is unique, if that is only one.
func nodeOf(r Resource) string {
	if h, is := r.Spec.(*HostEndpoint); is {
		return h.Node
	}
	return ""
}

// OnNode returns a resource's Title, and the node on which alone its name is unique.
func (r Resource) OnNode() string {
	if node := nodeOf(r); node != "" {
		return r.Title() + " on node " + node
	}
	return r.Title()
}

func writeHostEndpoint(r writing[HostEndpoint]) (keys, error) {
	spec := r.spec
	if spec.Node == "" {
		return keys{}, r.at("spec.node", "missing")
	}
	if r.old != nil && r.was.Node != spec.Node {
		return keys{}, r.at("spec.node", "the endpoint is on node %s: delete it there first, or give this one another name", r.was.Node)
	}
	h := model.HostEndpoint{Name: spec.InterfaceName, ProfileIDs: spec.Profiles, Labels: r.Metadata.Labels, Meta: r.meta}
	h.ExpectedIPv4Addrs, h.ExpectedIPv6Addrs = byFamily(converted(spec.ExpectedIPs, func(a Address) netip.Addr { return a.Addr }), netip.Addr.Is4)
	if h.Name == "" && len(spec.ExpectedIPs) == 0 {
		return keys{}, r.at("spec", "want interfaceName, or at least one of expectedIPs")
	}
	return put(model.HostEndpointKey{Host: spec.Node, Endpoint: r.Metadata.Name}, h), nil
}
