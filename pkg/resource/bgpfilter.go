// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"

	"github.com/calico-go/calico/pkg/model"
)

// BGPFilter decides about routes that the peers that name it send, and that they are sent.
type BGPFilter struct {
	ExportV4 []BGPFilterRule `json:"exportV4,omitempty" doc:"Which IPv4 routes a peer is told: the first rule that matches decides. If none does, it is as without the filter."`
	ImportV4 []BGPFilterRule `json:"importV4,omitempty" doc:"Which of a peer's IPv4 routes are taken, likewise."`
	ExportV6 []BGPFilterRule `json:"exportV6,omitempty" doc:"As exportV4, for IPv6."`
	ImportV6 []BGPFilterRule `json:"importV6,omitempty" doc:"As importV4, for IPv6."`
}

// BGPFilterRule accepts or rejects the routes that meet all of its conditions.
type BGPFilterRule struct {
	CIDR          *CIDR         `json:"cidr,omitempty" doc:"A network, for matchOperator."`
	MatchOperator string        `json:"matchOperator,omitempty" doc:"How a route's prefix relates to cidr: Equal, NotEqual, In (it, or a part of it) or NotIn."`
	PrefixLength  *PrefixLength `json:"prefixLength,omitempty" doc:"Of the prefixes that In and NotIn mean."`
	Source        string        `json:"source,omitempty" doc:"RemotePeers: routes that came from a peer, which only route reflectors pass on. Not for import."`
	PeerType      string        `json:"peerType,omitempty" doc:"eBGP or iBGP: only for peers of another AS, or of this one."`
	Communities   *Communities  `json:"communities,omitempty" doc:"A community of the route."`
	ASPathPrefix  []ASNumber    `json:"asPathPrefix,omitempty" doc:"What the route's AS path begins with."`
	Action        string        `json:"action" doc:"Accept or Reject."`

	Interface  string `json:"interface,omitempty" refused:"routes are filtered before they have an interface: write cidr or source"`
	Priority   int    `json:"priority,omitempty" refused:"routes have no priority here: write cidr or communities"`
	Operations string `json:"operations,omitempty" refused:"a filter changes no routes: see prefixAdvertisements of the BGPConfiguration for communities"`
}

// PrefixLength bounds the length of prefixes.
type PrefixLength struct {
	Min int `json:"min,omitempty" doc:"Default the length of cidr."`
	Max int `json:"max,omitempty" least:"1" doc:"Default that of a single address. For 0, write Equal."`
}

// Communities are the communities of a route.
type Communities struct {
	Values []string `json:"values" doc:"One, as 64512:100, or of three numbers (RFC 8092)."`
}

func count(list []BGPFilterRule) string { return strconv.Itoa(len(list)) }

var bgpFilterKind = newKind(one(readBGPFilter), writeBGPFilter, Kind{
	Name: "BGPFilter", Plural: "BGPFilters",
	custom: &custom{},
	ranges: prefix(model.FilterPrefix()), of: keyed[model.BGPFilterKey],
	Columns: []Column{
		cell("NUMEXPORTV4", false, func(f *BGPFilter) string { return count(f.ExportV4) }),
		cell("NUMIMPORTV4", false, func(f *BGPFilter) string { return count(f.ImportV4) }),
		cell("NUMEXPORTV6", false, func(f *BGPFilter) string { return count(f.ExportV6) }),
		cell("NUMIMPORTV6", false, func(f *BGPFilter) string { return count(f.ImportV6) }),
	},
	narrow: func(r Resource) []model.Range { return keyRanges(model.BGPFilterKey{Name: r.Metadata.Name}) },
})

// The fields in etcd are those of the resource, in snake case.
var (
	filterField = regexp.MustCompile(`"[a-z0-9_A-Z]+":`)
	hump        = regexp.MustCompile("[A-Z]")
)

func readBGPFilter(key model.BGPFilterKey, f *model.BGPFilter, s *Stored) *BGPFilter {
	s.Metadata.Name = key.Name
	spec := &BGPFilter{}
	if f == nil {
		return spec
	}
	text, err := model.FormatValue(*f)
	if err != nil || json.Unmarshal([]byte(filterField.ReplaceAllStringFunc(string(text), camel)), spec) != nil {
		return nil // it was read, so it can be written
	}
	return spec
}

func writeBGPFilter(w writing[BGPFilter]) (keys, error) {
	key := model.BGPFilterKey{Name: w.Metadata.Name}
	text, err := json.Marshal(w.spec)
	if err != nil {
		return keys{}, err
	}
	v, err := model.ParseValue(key, filterField.ReplaceAllFunc(text, func(name []byte) []byte {
		return hump.ReplaceAllFunc(name, func(c []byte) []byte { return append([]byte("_"), bytes.ToLower(c)...) })
	}))
	if f, ok := errors.AsType[*model.FieldError](err); ok {
		return keys{}, w.at("spec."+camel(f.Field), "%w", f.Err)
	}
	f, _ := v.(model.BGPFilter)
	f.Meta = w.meta
	return put(key, f), err
}
