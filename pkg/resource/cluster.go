// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

// IPAMConfiguration steers how addresses are handed out.
type IPAMConfiguration struct {
	StrictAffinity     *bool `json:"strictAffinity,omitempty" doc:"Hosts take no address out of each other's blocks. Default false."`
	AutoAllocateBlocks *bool `json:"autoAllocateBlocks,omitempty" doc:"Hosts claim blocks as they need them. Default true."`
	MaxBlocksPerHost   *int  `json:"maxBlocksPerHost,omitempty" doc:"Only 0, no limit, is supported yet."`
	IPCooldownSeconds  *int  `json:"ipCooldownSeconds,omitempty" doc:"Only 0 is supported yet. Of a block's free addresses, the one that was given back first is taken first."`
}

var ipamConfigurationKind = row[IPAMConfiguration]{
	Kind: Kind{
		Name: "IPAMConfiguration", Plural: "IPAMConfigurations", Aliases: []string{"ipamconfig", "ipamconfigs"},
		ranges: []model.Range{model.KeyRange(model.IPAMConfigKey{})}, of: keyed[model.IPAMConfigKey], always: isDefault,
		Columns: []Column{
			cell("STRICTAFFINITY", false, func(c *IPAMConfiguration) string { return fmt.Sprint(orZero(c.StrictAffinity)) }),
			cell("AUTOALLOCATEBLOCKS", false, func(c *IPAMConfiguration) string {
				return fmt.Sprint(c.AutoAllocateBlocks == nil || *c.AutoAllocateBlocks)
			}),
		},
	},
	reads: one(readIPAMConfiguration), writes: writeIPAMConfiguration,
}.kind()

func readIPAMConfiguration(_ model.IPAMConfigKey, c *model.IPAMConfig, s *Stored) *IPAMConfiguration {
	s.Metadata.Name = "default"
	if c == nil {
		return &IPAMConfiguration{}
	}
	return &IPAMConfiguration{StrictAffinity: &c.StrictAffinity, AutoAllocateBlocks: &c.AutoAllocateBlocks}
}

func writeIPAMConfiguration(r writing[IPAMConfiguration]) (keys, error) {
	spec := r.spec
	c := model.DefaultIPAMConfig
	if spec.StrictAffinity != nil {
		c.StrictAffinity = *spec.StrictAffinity
	}
	if spec.AutoAllocateBlocks != nil {
		c.AutoAllocateBlocks = *spec.AutoAllocateBlocks
	}
	switch {
	case r.Metadata.Name != "default":
		return keys{}, r.at("metadata.name", "%q: want default", r.Metadata.Name)
	case orZero(spec.MaxBlocksPerHost) != 0:
		return keys{}, r.at("spec.maxBlocksPerHost", "not supported yet: hosts would claim more all the same")
	case orZero(spec.IPCooldownSeconds) != 0:
		return keys{}, r.at("spec.ipCooldownSeconds", "not supported yet")
	case !c.StrictAffinity && !c.AutoAllocateBlocks:
		return keys{}, r.at("spec.autoAllocateBlocks", "false needs strictAffinity: true")
	}
	return put(model.IPAMConfigKey{}, c), nil
}

// ClusterInformation is what the cluster is. Only DatastoreReady can be written.
type ClusterInformation struct {
	ClusterGUID    string `json:"clusterGUID,omitempty" doc:"Names the cluster. Read-only."`
	ClusterType    string `json:"clusterType,omitempty" doc:"Read-only."`
	CalicoVersion  string `json:"calicoVersion,omitempty" doc:"Read-only."`
	DatastoreReady *bool  `json:"datastoreReady,omitempty" doc:"False has plugins and agents change nothing: see calicoctl datastore lock."`
}

var clusterInformationKind = row[ClusterInformation]{
	Kind: Kind{
		Name: "ClusterInformation", Plural: "ClusterInformations", Aliases: []string{"clusterinfo", "clusterinfos"},
		ranges: append(prefix(model.ConfigPrefix()), model.KeyRange(model.ReadyKey{})), of: ofClusterInformation,
		mayDelete: func(Stored, []model.Entry) error { return errors.New("it is always there") },
		Columns: []Column{
			cell("CLUSTERGUID", false, func(c *ClusterInformation) string { return c.ClusterGUID }),
			cell("READY", false, func(c *ClusterInformation) string { return fmt.Sprint(orZero(c.DatastoreReady)) }),
		},
	},
	reads: readClusterInformation, writes: writeClusterInformation,
}.kind()

// setting is where a setting of the cluster is, nil = not here.
func (c *ClusterInformation) setting(key model.Key) *string {
	return map[model.Key]*string{
		model.GlobalConfigKey{Name: "ClusterGUID"}: &c.ClusterGUID, model.GlobalConfigKey{Name: "ClusterType"}: &c.ClusterType,
		model.GlobalConfigKey{Name: "CalicoVersion"}: &c.CalicoVersion,
	}[key]
}

func ofClusterInformation(e model.Entry) string {
	if e.Key == (model.ReadyKey{}) || new(ClusterInformation).setting(e.Key) != nil {
		return "default"
	}
	return ""
}

func readClusterInformation(name string, s *Stored, _ model.Entry) *ClusterInformation {
	spec := &ClusterInformation{}
	s.Metadata.Name = name
	for _, e := range s.Entries {
		if ready, ok := parsed[model.Ready](e); ok {
			spec.DatastoreReady = new(bool(ready))
		}
		if text, ok := parsed[model.Text](e); ok {
			*spec.setting(e.Key) = string(text)
		}
	}
	return spec
}

func writeClusterInformation(r writing[ClusterInformation]) (keys, error) {
	spec, was := r.spec, r.was
	switch {
	case r.Metadata.Name != "default":
		return keys{}, r.at("metadata.name", "%q: want default", r.Metadata.Name)
	case spec.ClusterGUID != was.ClusterGUID, spec.ClusterType != was.ClusterType, spec.CalicoVersion != was.CalicoVersion:
		return keys{}, r.at("spec", "only datastoreReady can be written")
	case spec.DatastoreReady == nil:
		return keys{}, r.at("spec.datastoreReady", "missing: want true or false")
	}
	return put(model.ReadyKey{}, model.Ready(*spec.DatastoreReady)), nil
}

// HostRoute is a route that machines are told.
type HostRoute struct {
	Destination CIDR    `json:"destination" doc:"A network."`
	NextHop     Address `json:"nexthop" doc:"Its next hop."`
}

// DHCPSubnet (ours) is what virtual machines of a network are told.
type DHCPSubnet struct {
	CIDR       CIDR        `json:"cidr" doc:"The network."`
	GatewayIP  *Address    `json:"gatewayIP,omitempty" doc:"The machines' next hop. Required for IPv4; that of IPv6 is link-local."`
	NetworkID  string      `json:"networkID,omitempty" doc:"Name of the network. Default calico."`
	DNSServers []Address   `json:"dnsServers,omitempty" doc:"Their DNS servers."`
	HostRoutes []HostRoute `json:"hostRoutes,omitempty" doc:"Further routes of theirs."`
}

var dhcpSubnetKind = row[DHCPSubnet]{
	Kind: Kind{
		Name: "DHCPSubnet", Plural: "DHCPSubnets", Aliases: []string{"subnet", "subnets"},
		ranges: prefix(model.SubnetPrefix()), of: keyed[model.DHCPSubnetKey],
		words: []string{"gateway_ip", "gatewayIP", "network_id", "networkID"},
		Columns: []Column{
			cell("CIDR", false, func(s *DHCPSubnet) string { return s.CIDR.String() }),
			cell("GATEWAY", false, func(s *DHCPSubnet) string { return text(s.GatewayIP) }),
			cell("NETWORK", true, func(s *DHCPSubnet) string { return s.NetworkID }),
		},
	},
	reads: one(readSubnet), writes: writeSubnet,
	narrows: func(r Resource, _ *DHCPSubnet) []model.Range {
		return []model.Range{model.KeyRange(model.DHCPSubnetKey{ID: r.Metadata.Name})}
	},
}.kind()

func readSubnet(key model.DHCPSubnetKey, n *model.Subnet, s *Stored) *DHCPSubnet {
	s.Metadata.Name = key.ID
	if n == nil {
		return &DHCPSubnet{}
	}
	spec := &DHCPSubnet{CIDR: CIDR{n.CIDR}, GatewayIP: optionalAddress(n.GatewayIP), NetworkID: n.NetworkID, DNSServers: addresses(n.DNSServers)}
	spec.HostRoutes = converted(n.HostRoutes, func(h model.HostRoute) HostRoute { return HostRoute{CIDR{h.Destination}, Address{h.NextHop}} })
	return spec
}

func writeSubnet(r writing[DHCPSubnet]) (keys, error) {
	spec := r.spec
	switch {
	case !spec.CIDR.IsValid():
		return keys{}, r.at("spec.cidr", "missing")
	case spec.GatewayIP == nil && spec.CIDR.Addr().Is4():
		return keys{}, r.at("spec.gatewayIP", "missing")
	}
	n := model.Subnet{NetworkID: cmp.Or(spec.NetworkID, "calico"), CIDR: spec.CIDR.Prefix, GatewayIP: spec.GatewayIP.orNone()}
	n.DNSServers = converted(spec.DNSServers, func(a Address) netip.Addr { return a.Addr })
	n.HostRoutes = converted(spec.HostRoutes, func(h HostRoute) model.HostRoute {
		return model.HostRoute{Destination: h.Destination.Prefix, NextHop: h.NextHop.Addr}
	})
	return put(model.DHCPSubnetKey{ID: r.Metadata.Name}, n), nil
}
