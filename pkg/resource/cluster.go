// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
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

func readIPAMConfiguration(entries []model.Entry) []Stored {
	return each(entries, func(_ model.IPAMConfigKey, e model.Entry, s *Stored) {
		spec := &IPAMConfiguration{}
		s.Spec, s.Metadata.Name = spec, "default"
		if c, ok := parsed[model.IPAMConfig](e); ok {
			spec.StrictAffinity, spec.AutoAllocateBlocks = &c.StrictAffinity, &c.AutoAllocateBlocks
		}
	})
}

func writeIPAMConfiguration(r Resource, _ *Stored, _ []model.Entry) (keys, error) {
	spec := r.Spec.(*IPAMConfiguration)
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

func readClusterInformation(entries []model.Entry) []Stored {
	s := Stored{}
	spec := &ClusterInformation{}
	s.Spec, s.Metadata.Name = spec, "default"
	for _, e := range entries {
		switch key := e.Key.(type) {
		case model.ReadyKey:
			if ready, ok := parsed[model.Ready](e); ok {
				spec.DatastoreReady = new(bool(ready))
			}
		case model.GlobalConfigKey:
			text, _ := parsed[model.Text](e)
			to := map[string]*string{cluster[0]: &spec.ClusterGUID, cluster[1]: &spec.ClusterType, cluster[2]: &spec.CalicoVersion}[key.Name]
			if to == nil {
				continue
			}
			*to = string(text)
		default:
			continue
		}
		s.Entries = append(s.Entries, e)
	}
	if len(s.Entries) == 0 {
		return nil
	}
	return []Stored{s}
}

func writeClusterInformation(r Resource, old *Stored, _ []model.Entry) (keys, error) {
	spec, was := r.Spec.(*ClusterInformation), &ClusterInformation{}
	if old != nil {
		was = old.Spec.(*ClusterInformation)
	}
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

func readSubnets(entries []model.Entry) []Stored {
	return each(entries, func(key model.DHCPSubnetKey, e model.Entry, s *Stored) {
		s.Metadata.Name = key.ID
		if n, ok := parsed[model.Subnet](e); ok {
			spec := &DHCPSubnet{CIDR: CIDR{n.CIDR}, GatewayIP: optionalAddress(n.GatewayIP), NetworkID: n.NetworkID, DNSServers: addresses(n.DNSServers)}
			spec.HostRoutes = converted(n.HostRoutes, func(h model.HostRoute) HostRoute { return HostRoute{CIDR{h.Destination}, Address{h.NextHop}} })
			s.Spec = spec
		}
	})
}

func writeSubnet(r Resource, _ *Stored, _ []model.Entry) (keys, error) {
	spec := r.Spec.(*DHCPSubnet)
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
