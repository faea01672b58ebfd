// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
)

// mostUnknown is how many unknown fields of one value are named.
const mostUnknown = 4

// UnknownFields says which fields of a value were passed over because nothing is
// known of them, and what is known; nil = none. A newer version may have written them, so
// that a value is valid with them. Only kinds that people write by hand are
// looked at: not endpoints of workloads, nor what address management keeps, nor the
// metadata of a host, where anybody may note what they like.
// Rules and filters of BGP are no matter for it: ParseValue refuses what is unknown there.
func UnknownFields(k Key, data []byte) error {
	known := handWritten(k)
	if known == nil || len(data) > maxValue {
		return nil
	}
	r, err := newReader(data)
	if err != nil || r.next() != '{' {
		return nil // ParseValue says so
	}
	var unknown []string
	more := 0
	err = r.fields(func(name string) error {
		switch {
		case slices.Contains(known, name):
		case len(unknown) < mostUnknown:
			unknown = append(unknown, fieldName(name))
		default:
			more++
		}
		r.raw()
		return nil
	})
	if err != nil || len(unknown) == 0 {
		return err
	}
	rest := ""
	if more > 0 {
		rest = fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s%s: unknown, and passed over: want one of %s", strings.Join(unknown, ", "), rest, strings.Join(known, ", "))
}

// handWritten are the fields of a value that people write, nil for any other.
func handWritten(k Key) []string {
	switch k.(type) {
	case PoolKey:
		return []string{"cidr", "ipip", "ipip_mode", "vxlan_mode", "masquerade", "ipam", "disabled", "block_size", "node_selector"}
	case PolicyKey:
		return []string{"selector", "order", "inbound_rules", "outbound_rules", "untracked", "types"}
	case ProfileRulesKey:
		return []string{"inbound_rules", "outbound_rules"}
	case TierKey:
		return []string{"order"}
	case HostEndpointKey:
		return []string{"name", "expected_ipv4_addrs", "expected_ipv6_addrs", "profile_ids", "labels"}
	case BGPPeerKey:
		return []string{"ip", "as_num", "password_file", "ebgp_multihop", "import", "export"}
	case BGPMeshKey:
		return []string{"enabled"}
	}
	return nil
}
