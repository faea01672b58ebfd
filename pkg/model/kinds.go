// SPDX-License-Identifier: Apache-2.0

package model

import (
	"reflect"
	"slices"
	"strings"
)

// A kind is one row of the data model: where objects of the kind are stored, and how their values are parsed. To add a
// kind, add a row here, and a file with its key, which has Path, and its value, which has format.
type kind struct {
	key    Key     // identifies the key type
	places []place // the canonical one first, then older ones
	parse  func(k Key, data []byte) (any, error)
	// fields are the fields of a value that people write by hand, nil for others: see UnknownFields.
	fields []string
}

// A place is a path pattern below Root for objects of a kind.
type place struct {
	pattern string // each * stands for a name
	key     func(n names) (Key, error)
}

// names are the unescaped names at each * of a pattern.
type names [4]string

// plain returns the parse function of a value that is not JSON.
func plain[V any](parse func(data []byte) (V, error)) func(Key, []byte) (any, error) {
	return func(_ Key, data []byte) (any, error) { return orNil(parse(data)) }
}

// object returns the parse function of a value in JSON.
func object[V any](parse func(*reader) (V, error)) func(Key, []byte) (any, error) {
	return func(_ Key, data []byte) (any, error) { return parseJSON(data, parse) }
}

// objectOf returns the parse function of a value in JSON that is partly determined by its key.
func objectOf[K Key, V any](parse func(*reader, K) (V, error)) func(Key, []byte) (any, error) {
	return func(k Key, data []byte) (any, error) {
		return parseJSON(data, func(r *reader) (V, error) { return parse(r, k.(K)) })
	}
}

// at returns the place of an object whose names need no check.
func at(pattern string, key func(n names) Key) place {
	return place{pattern, func(n names) (Key, error) { return key(n), nil }}
}

// families returns the places of objects of either family. The pattern has v? for v4 or v6, or ipv? for ipv4 or ipv6.
func families(pattern string, key func(n names, v6 bool) (Key, error)) []place {
	var both []place
	for i, digit := range []string{"4", "6"} {
		both = append(both, place{strings.Replace(pattern, "?", digit, 1), func(n names) (Key, error) { return key(n, i == 1) }})
	}
	return both
}

// kinds is the data model. The first place that matches a path counts.
var kinds = []kind{
	{key: ReadyKey{}, parse: plain(parseReady), places: []place{at("v1/Ready", func(names) Key { return ReadyKey{} })}},
	{
		key: WorkloadEndpointKey{}, parse: object(parseWorkloadEndpoint),
		places: []place{at("v1/host/*/workload/*/*/endpoint/*", func(n names) Key { return WorkloadEndpointKey{n[0], n[1], n[2], n[3]} })},
	},
	{
		key: HostEndpointKey{}, parse: object(parseHostEndpoint),
		fields: []string{"name", "expected_ipv4_addrs", "expected_ipv6_addrs", "profile_ids", "labels", "meta"},
		places: []place{at("v1/host/*/endpoint/*", func(n names) Key { return HostEndpointKey{n[0], n[1]} })},
	},
	{
		key: HostMetadataKey{}, parse: plain(parseHostMetadata),
		places: []place{at("v1/host/*/metadata", func(n names) Key { return HostMetadataKey{n[0]} })},
	},
	{
		key: HostBirdIPKey{}, parse: plain(func(data []byte) (Text, error) { return parseHostText(BGPHostIPv4, data) }),
		places: []place{at("v1/host/*/bird_ip", func(n names) Key { return HostBirdIPKey{n[0]} })},
	},
	{
		key: HostConfigKey{}, parse: plain(parseText),
		places: []place{at("v1/host/*/config/*", func(n names) Key { return HostConfigKey{n[0], n[1]} })},
	},
	{
		key: BlockKey{}, parse: objectOf(parseBlock),
		places: families("ipam/v2/assignment/ipv?/block/*", parseBlockKey),
	},
	{
		key: HandleKey{}, parse: objectOf(parseHandle),
		places: []place{
			at("ipam/v2/handle/*", func(n names) Key { return HandleKey{ID: n[0]} }),
			at("ipam/v2/assignment/handle/*", func(n names) Key { return HandleKey{ID: n[0], Legacy: true} }),
		},
	},
	{
		key: AffinityKey{}, parse: plain(func([]byte) (Affinity, error) { return Affinity{}, nil }),
		places: families("ipam/v2/host/*/ipv?/block/*", parseAffinityKey),
	},
	{
		key: IPAMConfigKey{}, parse: object(parseIPAMConfig), fields: []string{"strict_affinity", "auto_allocate_blocks", "meta"},
		places: []place{at("ipam/v2/config", func(names) Key { return IPAMConfigKey{} })},
	},
	{
		key: ReservationKey{}, parse: object(parseReservation), fields: []string{"cidrs", "meta"},
		places: []place{at("ipam/v2/reservation/*", func(n names) Key { return ReservationKey{n[0]} })},
	},
	{
		key: PoolKey{}, parse: objectOf(parsePool),
		fields: []string{"cidr", "ipip", "ipip_mode", "vxlan_mode", "masquerade", "ipam", "disabled", "block_size", "node_selector", "namespace_selector", "disable_bgp_export",
			"allowed_uses", "assignment_mode", "meta"},
		places: families("v1/ipam/v?/pool/*", parsePoolKey),
	},
	{
		key: ProfileRulesKey{}, parse: object(parseRules), fields: []string{"inbound_rules", "outbound_rules"},
		places: []place{at("v1/policy/profile/*/rules", func(n names) Key { return ProfileRulesKey{n[0]} })},
	},
	{
		key: ProfileTagsKey{}, parse: object(parseTags),
		places: []place{at("v1/policy/profile/*/tags", func(n names) Key { return ProfileTagsKey{n[0]} })},
	},
	{
		key: ProfileLabelsKey{}, parse: object(parseLabels),
		places: []place{at("v1/policy/profile/*/labels", func(n names) Key { return ProfileLabelsKey{n[0]} })},
	},
	{
		key: PolicyKey{}, parse: object(parsePolicy),
		fields: policyFields[:],
		places: []place{at("v1/policy/tier/*/policy/*", func(n names) Key { return PolicyKey{n[0], n[1]} })},
	},
	{
		key: TierKey{}, parse: object(parseTier), fields: []string{"order", "default_action", "meta"},
		places: []place{at("v1/policy/tier/*/metadata", func(n names) Key { return TierKey{n[0]} })},
	},
	{
		key: MetaKey{}, parse: object(parseMeta),
		places: []place{at("v1/meta/*/*", func(n names) Key { return MetaKey{n[0], n[1]} })},
	},
	{
		key: ServiceKey{}, parse: object(parseService), fields: []string{"endpoints"},
		places: []place{at("v1/service/*", func(n names) Key { return ServiceKey{n[0]} })},
	},
	{
		key: NetworkSetKey{}, parse: object(parseNetworkSet), fields: []string{"nets", "labels", "meta"},
		places: []place{at("v1/netset/*", func(n names) Key { return NetworkSetKey{n[0]} })},
	},
	{
		key: BGPGlobalASKey{}, parse: plain(parseGlobalAS),
		places: []place{at("bgp/v1/global/as_num", func(names) Key { return BGPGlobalASKey{} })},
	},
	{
		key: BGPMeshKey{}, parse: object(parseMesh), fields: []string{"enabled"},
		places: []place{
			at("bgp/v1/global/node_mesh", func(names) Key { return BGPMeshKey{} }),
			at("v1/config/bgp_node_mesh", func(names) Key { return BGPMeshKey{Legacy: true} }),
		},
	},
	{
		key: BGPPeerKey{}, parse: objectOf(parsePeer),
		fields: []string{"ip", "as_num", "password_file", "ebgp_multihop", "port", "num_allowed_local_as_numbers", "local_as", "ttl_security",
			"keepalive_time", "hold_time", "max_restart_time", "source_address", "next_hop_mode", "import", "export", "meta",
			"filters", "node", "node_selector", "peer_selector", "reverse_peering"},
		places: slices.Concat(
			families("bgp/v1/global/peer_v?/*", func(n names, v6 bool) (Key, error) { return parsePeerKey("", n[0], v6, false) }),
			families("bgp/v1/host/*/peer_v?/*", func(n names, v6 bool) (Key, error) { return parsePeerKey(n[0], n[1], v6, false) }),
			families("v1/config/bgp_peer_v?/*", func(n names, v6 bool) (Key, error) { return parsePeerKey("", n[0], v6, true) }),
			families("v1/host/*/bgp_peer_v?/*", func(n names, v6 bool) (Key, error) { return parsePeerKey(n[0], n[1], v6, true) }),
			[]place{at("bgp/v1/peer/*", func(n names) Key { return BGPPeerKey{Name: n[0]} })},
		),
	},
	{
		key: BGPFilterKey{}, parse: object(parseBGPFilter), fields: []string{"import_v4", "export_v4", "import_v6", "export_v6", "meta"},
		places: []place{at("bgp/v1/filter/*", func(n names) Key { return BGPFilterKey{n[0]} })},
	},
	{
		key: GlobalConfigKey{}, parse: plain(parseText),
		places: []place{at("v1/config/*", func(n names) Key {
			if n[0] == "bgp_node_mesh" { // escaped
				return BGPMeshKey{Legacy: true}
			}
			return GlobalConfigKey{n[0]}
		})},
	},
	{
		key:    BGPHostKey{},
		parse:  func(k Key, data []byte) (any, error) { return orNil(parseHostText(k.(BGPHostKey).Field, data)) },
		places: hostFields(BGPHostIPv4, BGPHostIPv6, BGPHostAS, BGPHostNetworkV4, BGPHostReflector),
	},
	{
		key: StatusKey{}, parse: object(parseStatus),
		places: []place{at("felix/v1/host/*/status", func(n names) Key { return StatusKey{n[0]} })},
	},
	{
		key: LastStatusKey{}, parse: object(parseStatus),
		places: []place{at("felix/v1/host/*/last_reported_status", func(n names) Key { return LastStatusKey{n[0]} })},
	},
	{
		key: WorkloadStatusKey{}, parse: object(parseEndpointStatus),
		places: []place{at("felix/v1/host/*/workload/*/*/endpoint/*", func(n names) Key { return WorkloadStatusKey{n[0], n[1], n[2], n[3]} })},
	},
	{
		key: HostEndpointStatusKey{}, parse: object(parseEndpointStatus),
		places: []place{at("felix/v1/host/*/endpoint/*", func(n names) Key { return HostEndpointStatusKey{n[0], n[1]} })},
	},
	{
		key: GarbageBrakeKey{}, parse: object(parseGarbageBrake), fields: []string{"time", "reason", "hosts", "addresses", "resumed"},
		places: []place{at("v1/controllers/gc", func(names) Key { return GarbageBrakeKey{} })},
	},
	{
		key: LeaderKey{}, parse: plain(parseText),
		places: []place{at("v1/controllers/leader", func(names) Key { return LeaderKey{} })},
	},
	{
		key: ControllersConfigKey{}, parse: object(parseControllersConfig), fields: []string{"disabled", "log_severity_screen", "prometheus_metrics_port", "meta"},
		places: []place{at("v1/controllers/config", func(names) Key { return ControllersConfigKey{} })},
	},
	{
		key: DHCPSubnetKey{}, parse: object(parseSubnet), fields: []string{"network_id", "cidr", "gateway_ip", "dns_servers", "host_routes", "meta"},
		places: []place{at("dhcp/v1/subnet/*", func(n names) Key { return DHCPSubnetKey{n[0]} })},
	},
	{
		key: NetworkServiceEndpointKey{}, parse: object(parseNetworkServiceEndpoint), fields: []string{"address", "interfaces"},
		places: []place{at("nsm/v1/endpoint/*/*/*", func(n names) Key { return NetworkServiceEndpointKey{n[0], n[1], n[2]} })},
	},
	{
		key: NetworkServiceKey{}, parse: object(parseNetworkService), fields: []string{"payload"},
		places: []place{at("nsm/v1/service/*", func(n names) Key { return NetworkServiceKey{n[0]} })},
	},
}

// hostFields returns the places of a host's BGP settings.
func hostFields(fields ...BGPHostField) []place {
	var all []place
	for _, f := range fields {
		all = append(all, at("bgp/v1/host/*/"+string(f), func(n names) Key { return BGPHostKey{n[0], f} }))
	}
	return all
}

var kindsByKey = func() map[reflect.Type]kind {
	all := make(map[reflect.Type]kind, len(kinds))
	for _, k := range kinds {
		all[reflect.TypeOf(k.key)] = k
	}
	return all
}()
