// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/policy"
)

func settings() policy.Settings {
	return policy.Settings{Prefixes: []string{"cali"}, EndpointToHost: policy.ToHostDrop, LogPrefix: "calico-packet"}
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func cidrs(s ...string) (out []netip.Prefix) {
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func byteOf(v uint8) *uint8 { return &v }

func tierID(tier, name string) policy.RulesID {
	return policy.RulesID{Kind: policy.KindPolicy, Tier: tier, Name: name}
}

func policyID(name string) policy.RulesID { return tierID("default", name) }

func profileID(name string) policy.RulesID {
	return policy.RulesID{Kind: policy.KindProfile, Name: name}
}
