// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// BGPConfiguration configures BGP for all nodes.
type BGPConfiguration struct {
	NodeToNodeMeshEnabled  *bool     `json:"nodeToNodeMeshEnabled,omitempty" doc:"All nodes are each other's peers. Default true."`
	ASNumber               *ASNumber `json:"asNumber,omitempty" doc:"AS number of the nodes without one of their own. Default 64512."`
	ListenPort             int       `json:"listenPort,omitempty" least:"1" doc:"TCP port of the nodes. Default 179."`
	NodeMeshMaxRestartTime string    `json:"nodeMeshMaxRestartTime,omitempty" doc:"How long routes of a node whose agent restarts are kept, as 120s, the default."`
	HoldTime               string    `json:"holdTime,omitempty" doc:"Ours. How long a neighbour may be silent, as 90s, the default."`
	KeepaliveTime          string    `json:"keepaliveTime,omitempty" doc:"Ours. How often neighbours are told that the node lives. Default: a third of holdTime."`
	MaxPrefixes            int       `json:"maxPrefixes,omitempty" least:"1" doc:"Ours. How many routes a neighbour may send. Default 50000."`

	PrefixAdvertisements []PrefixAdvertisement `json:"prefixAdvertisements,omitempty" doc:"Communities of the blocks that the nodes advertise."`
	Communities          []Community           `json:"communities,omitempty" doc:"Names for communities in prefixAdvertisements. They are not stored: what is read has the values."`

	LogSeverityScreen  string   `json:"logSeverityScreen,omitempty" only:"Info" refused:"write logSeverityScreen of the FelixConfiguration"`
	ServiceClusterIPs  []string `json:"serviceClusterIPs,omitempty" only:"[]" refused:"addresses of services are not advertised yet"`
	ServiceExternalIPs []string `json:"serviceExternalIPs,omitempty" only:"[]" refused:"addresses of services are not advertised yet"`
	ServiceLBIPs       []string `json:"serviceLoadBalancerIPs,omitempty" only:"[]" refused:"addresses of services are not advertised yet"`
	ServiceAggregation string   `json:"serviceLoadBalancerAggregation,omitempty" only:"Enabled" refused:"addresses of services are not advertised yet"`
	ClusterRoutes      string   `json:"programClusterRoutes,omitempty" only:"Enabled" refused:"routes of pools without an encapsulation come from BGP alone"`
	NodeMeshPassword   string   `json:"nodeMeshPassword,omitempty" refused:"not supported yet"`
	IgnoredInterfaces  []string `json:"ignoredInterfaces,omitempty" input:"ignored" doc:"Without effect: no routes of interfaces are announced."`
	WorkloadPeeringV4  string   `json:"localWorkloadPeeringIPV4,omitempty" only:"" refused:"workloads are no peers"`
	WorkloadPeeringV6  string   `json:"localWorkloadPeeringIPV6,omitempty" only:"" refused:"workloads are no peers"`
	BindMode           string   `json:"bindMode,omitempty" only:"None" refused:"not supported yet: see BGPListenAddresses"`
}

// PrefixAdvertisement assigns communities to the blocks inside a prefix.
type PrefixAdvertisement struct {
	CIDR        CIDR     `json:"cidr" doc:"The prefix that they are inside of."`
	Communities []string `json:"communities" doc:"Communities, as 64512:100, or of three numbers (RFC 8092), or names from communities."`
}

// Community names a community.
type Community struct {
	Name  string `json:"name" doc:"Its name."`
	Value string `json:"value" doc:"Its numbers, as 64512:100 or 64512:100:200."`
}

// A bgpSetting is a setting of the agent, as text, that a field of BGPConfiguration sets; "" = not set.
type bgpSetting struct {
	name, json string
	text       func(*BGPConfiguration) string
	set        func(*BGPConfiguration, string)
}

var bgpSettings = []bgpSetting{
	numberSetting("BGPListenPort", "listenPort", func(c *BGPConfiguration) *int { return &c.ListenPort }),
	textSetting("BGPRestartTimeSecs", "nodeMeshMaxRestartTime", func(c *BGPConfiguration) *string { return &c.NodeMeshMaxRestartTime }),
	textSetting("BGPHoldTimeSecs", "holdTime", func(c *BGPConfiguration) *string { return &c.HoldTime }),
	textSetting("BGPKeepaliveTimeSecs", "keepaliveTime", func(c *BGPConfiguration) *string { return &c.KeepaliveTime }),
	numberSetting("BGPMaxPrefixes", "maxPrefixes", func(c *BGPConfiguration) *int { return &c.MaxPrefixes }),
	{"BGPCommunities", "prefixAdvertisements", advertised, func(c *BGPConfiguration, text string) { c.PrefixAdvertisements = advertisementsOf(text) }},
}

func textSetting(name, json string, field func(*BGPConfiguration) *string) bgpSetting {
	return bgpSetting{name, json, func(c *BGPConfiguration) string { return *field(c) }, func(c *BGPConfiguration, text string) { *field(c) = text }}
}

func numberSetting(name, json string, field func(*BGPConfiguration) *int) bgpSetting {
	return bgpSetting{name, json, func(c *BGPConfiguration) string {
		if *field(c) == 0 {
			return ""
		}
		return strconv.Itoa(*field(c))
	}, func(c *BGPConfiguration, text string) { *field(c), _ = strconv.Atoi(text) }} // an invalid one is not in force
}

func isBGPSetting(name string) bool {
	return slices.ContainsFunc(bgpSettings, func(s bgpSetting) bool { return s.name == name })
}

var bgpConfigurationKind = newKind(readBGPConfiguration, writeBGPConfiguration, Kind{
	Name: "BGPConfiguration", Plural: "BGPConfigurations", apart: true, Aliases: []string{"bgpconfig", "bgpconfigs"},
	ranges: append(keyRanges(model.BGPMeshKey{}, model.BGPGlobalASKey{}), model.PrefixRange(model.ConfigPrefix())),
	of:     ofBGPConfiguration, always: isDefault,
	custom: &custom{columns: []string{"Mesh", "nodeToNodeMeshEnabled", "ASN", "asNumber"}, rules: onlyDefault},
	Columns: []Column{
		cell("MESH", false, func(c *BGPConfiguration) string {
			return fmt.Sprint(c.NodeToNodeMeshEnabled == nil || *c.NodeToNodeMeshEnabled)
		}),
		cell("ASNUMBER", false, func(c *BGPConfiguration) string { return text(c.ASNumber) }),
	},
})

func ofBGPConfiguration(e model.Entry) string {
	setting, _ := e.Key.(model.GlobalConfigKey)
	if _, mesh := e.Key.(model.BGPMeshKey); mesh || e.Key == (model.BGPGlobalASKey{}) || isBGPSetting(setting.Name) {
		return "default"
	}
	return ""
}

func readBGPConfiguration(name string, s *Stored) *BGPConfiguration {
	spec := &BGPConfiguration{}
	s.Metadata.Name = name
	legacy := false
	for _, e := range s.Entries {
		switch key := e.Key.(type) {
		case model.BGPMeshKey:
			if key.Legacy && !legacy || !key.Legacy {
				if m, ok := parsed[model.Mesh](e); ok {
					spec.NodeToNodeMeshEnabled = &m.Enabled
				}
			}
			legacy = legacy || !key.Legacy
		case model.BGPGlobalASKey:
			if n, ok := parsed[model.ASNumber](e); ok && n != 0 {
				spec.ASNumber = &ASNumber{n}
			}
		case model.GlobalConfigKey:
			i := slices.IndexFunc(bgpSettings, func(s bgpSetting) bool { return s.name == key.Name })
			text, _ := parsed[model.Text](e)
			bgpSettings[i].set(spec, string(text))
		}
	}
	return spec
}

func writeBGPConfiguration(w writing[BGPConfiguration]) (keys, error) {
	spec, was := w.spec, w.was
	if w.Metadata.Name != "default" {
		return keys{}, w.at("metadata.name", "want default: what one node says is in its Node")
	}
	if err := spec.nameCommunities(w.Resource); err != nil {
		return keys{}, err
	}
	var k keys
	var errs []error
	switch {
	case same(spec.NodeToNodeMeshEnabled, was.NodeToNodeMeshEnabled):
	case spec.NodeToNodeMeshEnabled == nil:
		k.deletes = append(k.deletes, model.BGPMeshKey{}, model.BGPMeshKey{Legacy: true})
	default:
		k.put(model.BGPMeshKey{}, model.Mesh{Enabled: *spec.NodeToNodeMeshEnabled})
	}
	switch {
	case same(spec.ASNumber, was.ASNumber):
	case spec.ASNumber == nil:
		k.deletes = append(k.deletes, model.BGPGlobalASKey{})
	default:
		k.put(model.BGPGlobalASKey{}, spec.ASNumber.ASNumber)
	}
	for _, setting := range bgpSettings {
		now, before := setting.text(spec), setting.text(was)
		if err := checkSetting(setting.name, now); err != nil && now != "" && now != before {
			errs = append(errs, w.at("spec."+setting.json, "%w", err))
		}
		k.set(model.GlobalConfigKey{Name: setting.name}, before, now)
	}
	return k, errors.Join(errs...)
}

// nameCommunities replaces the names of communities by their values.
func (c *BGPConfiguration) nameCommunities(r Resource) error {
	values := map[string]string{}
	for _, named := range c.Communities {
		values[named.Name] = named.Value
	}
	for i, a := range c.PrefixAdvertisements {
		at := fmt.Sprintf("spec.prefixAdvertisements[%d]", i)
		if len(a.Communities) == 0 {
			return r.at(at, "communities: missing")
		}
		for j, name := range a.Communities {
			a.Communities[j] = cmp.Or(values[name], name)
			if _, err := model.ParseCommunity(a.CIDR.String(), a.Communities[j]); err != nil {
				return r.at(at, "%w", err)
			}
		}
	}
	return nil
}

// advertisementsOf parses the text of the setting BGPCommunities. It returns nil if any of it is invalid, as none of it is
// then in force.
func advertisementsOf(text string) (all []PrefixAdvertisement) {
	for one := range strings.SplitSeq(text, ",") {
		cidr, value, _ := strings.Cut(strings.TrimSpace(one), "=")
		c, err := model.ParseCommunity(cidr, value)
		if err != nil {
			return nil
		}
		if n := len(all); n == 0 || all[n-1].CIDR.Prefix != c.CIDR {
			all = append(all, PrefixAdvertisement{CIDR: CIDR{c.CIDR}})
		}
		last := &all[len(all)-1]
		last.Communities = append(last.Communities, value)
	}
	return all
}

// advertised returns the text of the setting BGPCommunities.
func advertised(c *BGPConfiguration) string {
	var list []string
	for _, a := range c.PrefixAdvertisements {
		for _, community := range a.Communities {
			list = append(list, a.CIDR.String()+"="+community)
		}
	}
	return strings.Join(list, ",")
}
