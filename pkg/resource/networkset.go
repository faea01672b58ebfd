// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// NetworkSet is the spec of a GlobalNetworkSet, and of a NetworkSet.
type NetworkSet struct {
	Nets []Net `json:"nets,omitempty" most:"16384" doc:"Networks and addresses, of IPv4 and IPv6, at most 16,384. Rules match them by a selector of the resource's labels, as they match endpoints."`
}

var (
	globalNetworkSetKind = setKind(Kind{Name: "GlobalNetworkSet", Plural: "GlobalNetworkSets", Aliases: []string{"gns"}}, "gns")
	networkSetKind       = setKind(Kind{Name: "NetworkSet", Plural: "NetworkSets", Aliases: []string{"netset", "netsets"}, Namespaced: true}, "netset")
)

func setKind(k Kind, short ...string) *Kind {
	k.custom = &custom{short: short}
	k.Labelled, k.ranges = true, prefix(model.NetworkSetPrefix())
	k.Columns = []Column{cell("NETS", true, func(s *NetworkSet) string {
		text := joined(s.Nets)
		if len(text) > 80 {
			text = text[:strings.LastIndexByte(text[:80], ',')+1] + "..."
		}
		return text
	})}
	k.of = func(e model.Entry) string {
		if key, ok := e.Key.(model.NetworkSetKey); ok && strings.Contains(key.Name, "/") == k.Namespaced {
			return e.Path
		}
		return ""
	}
	k.narrow = func(r Resource) []model.Range { return keyRanges(model.NetworkSetKey{Name: r.ID()}) }
	return newKind(one(readNetworkSet), writeNetworkSet, k)
}

func readNetworkSet(key model.NetworkSetKey, n *model.NetworkSet, s *Stored) *NetworkSet {
	s.Metadata.Namespace, s.Metadata.Name = key.Parts()
	if n == nil {
		return &NetworkSet{}
	}
	s.Metadata.Labels = n.Labels
	return &NetworkSet{Nets: nets(n.Nets)}
}

func writeNetworkSet(r writing[NetworkSet]) (keys, error) {
	key := model.NetworkSetKey{Name: r.ID()}
	may, _ := key.Matched(nil) // what it has anyway
	if r.old == nil {
		if err := r.dnsName(); err != nil {
			return keys{}, err
		}
	} else {
		maps.Copy(may, r.old.Metadata.Labels)
	}
	for _, label := range slices.Sorted(maps.Keys(r.Metadata.Labels)) {
		if was, ok := may[label]; model.ReservedLabel(label) && (!ok || was != r.Metadata.Labels[label]) {
			return keys{}, r.at("metadata.labels."+label, "reserved: a set has the labels of its name, kind and namespace by itself")
		}
	}
	return put(key, model.NetworkSet{Nets: netsOf(r.spec.Nets), Labels: r.Metadata.Labels, Meta: r.meta}), nil
}
