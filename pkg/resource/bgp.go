// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// RouteFilter accepts or rejects routes.
type RouteFilter struct {
	CIDR   CIDR   `json:"cidr" doc:"Routes to this network and to any part of it."`
	Action string `json:"action" doc:"accept or reject."`
}

// BGPPeer is one neighbour, of all nodes or of one.
type BGPPeer struct {
	Node                     string        `json:"node,omitempty" doc:"The node whose peer it is. Default: all nodes'."`
	PeerIP                   *Address      `json:"peerIP,omitempty" doc:"Its address. Required."`
	ASNumber                 *ASNumber     `json:"asNumber,omitempty" doc:"Its AS number. Required."`
	PasswordFile             string        `json:"passwordFile,omitempty" doc:"Ours. File on the nodes with the password of the session (RFC 2385)."`
	EBGPMultihop             int           `json:"ebgpMultihop,omitempty" doc:"Ours. How many hops away a peer of another AS may be, 0 to 255."`
	NumAllowedLocalASNumbers int           `json:"numAllowedLocalASNumbers,omitempty" doc:"How often a route's AS path may have the AS that the nodes have: 1 to 10, as where all racks are of one AS."`
	LocalASNumber            *ASNumber     `json:"localASNumber,omitempty" doc:"AS that the nodes have in this session."`
	TTLSecurity              int           `json:"ttlSecurity,omitempty" doc:"How many hops away it is at most (RFC 5082); not beside ebgpMultihop."`
	KeepaliveTime            string        `json:"keepaliveTime,omitempty" doc:"As of the BGPConfiguration, for this peer."`
	HoldTime                 string        `json:"holdTime,omitempty" doc:"Ours. As of the BGPConfiguration, for this peer."`
	MaxRestartTime           string        `json:"maxRestartTime,omitempty" doc:"How long its routes are kept while it restarts, as 120s."`
	SourceAddress            string        `json:"sourceAddress,omitempty" doc:"Address that the nodes speak from: UseNodeIP (the default), None (that of the link that leads to the peer), or an address (ours)."`
	NextHopMode              string        `json:"nextHopMode,omitempty" doc:"Next hop of what a route reflector passes on to it: Auto (the default) and Keep leave it, Self is the reflector."`
	Import                   []RouteFilter `json:"import,omitempty" doc:"Ours. Which of its routes are taken: the first filter that matches decides."`
	Export                   []RouteFilter `json:"export,omitempty" doc:"Ours. Which routes it is told, likewise."`

	NodeSelector          string `json:"nodeSelector,omitempty" refused:"peers by selector are not supported yet: write a peer for each node"`
	PeerSelector          string `json:"peerSelector,omitempty" refused:"peers by selector are not supported yet: write peerIP and asNumber"`
	Password              string `json:"password,omitempty" refused:"secrets are not supported: write passwordFile, a file on the nodes"`
	Filters               string `json:"filters,omitempty" refused:"BGPFilter is not supported yet: write import and export"`
	KeepOriginalNextHop   bool   `json:"keepOriginalNextHop,omitempty" refused:"write nextHopMode: Keep"`
	LocalWorkloadSelector string `json:"localWorkloadSelector,omitempty" refused:"not supported"`
}

var bgpPeerKind = row[BGPPeer]{
	Kind: Kind{
		Name: "BGPPeer", Plural: "BGPPeers",
		ranges: prefix(model.BGPPrefix(), model.ConfigPrefix(), model.HostPrefix("")), of: keyed[model.BGPPeerKey],
		words: []string{"as_num", "asNumber"}, fields: map[string]string{"ip": "peerIP"},
		Columns: []Column{
			cell("PEERIP", false, func(p *BGPPeer) string { return text(p.PeerIP) }),
			cell("NODE", false, func(p *BGPPeer) string { return cmp.Or(p.Node, "(global)") }),
			cell("ASN", false, func(p *BGPPeer) string { return text(p.ASNumber) }),
		},
	},
	reads: one(readPeer), writes: writePeer,
}.kind()

func readPeer(key model.BGPPeerKey, p *model.BGPPeer, s *Stored) *BGPPeer {
	s.Metadata.Name = peerName(key.Host, key.IP)
	spec := &BGPPeer{Node: key.Host, PeerIP: &Address{key.IP}}
	if p != nil {
		spec.ASNumber, spec.PasswordFile, spec.EBGPMultihop = &ASNumber{p.AS}, p.PasswordFile, p.EBGPMultihop
		spec.setOptions(p.Options)
		spec.Import, spec.Export = filters(p.Import), filters(p.Export)
		s.Metadata.Name = cmp.Or(p.Name, s.Metadata.Name)
	}
	return spec
}

func peerName(host string, ip netip.Addr) string {
	dashed := strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
	if host == "" {
		return "global." + dashed
	}
	return "node." + host + "." + dashed
}

func filters(list []model.RouteFilter) []RouteFilter {
	return converted(list, func(f model.RouteFilter) RouteFilter { return RouteFilter{CIDR{f.CIDR}, f.Action} })
}

func modelFilters(list []RouteFilter) []model.RouteFilter {
	return converted(list, func(f RouteFilter) model.RouteFilter { return model.RouteFilter{CIDR: f.CIDR.Prefix, Action: f.Action} })
}

func writePeer(w writing[BGPPeer]) (keys, error) {
	spec := w.spec
	switch {
	case spec.PeerIP == nil:
		return keys{}, w.at("spec.peerIP", "missing")
	case spec.ASNumber == nil:
		return keys{}, w.at("spec.asNumber", "missing")
	}
	key := model.BGPPeerKey{Host: spec.Node, IP: spec.PeerIP.Addr}
	options, err := spec.options(w.Resource)
	if err != nil {
		return keys{}, err
	}
	p := model.BGPPeer{Options: options, IP: key.IP, AS: spec.ASNumber.ASNumber, PasswordFile: spec.PasswordFile, EBGPMultihop: spec.EBGPMultihop, Import: modelFilters(spec.Import), Export: modelFilters(spec.Export)}
	if w.Metadata.Name != peerName(key.Host, key.IP) {
		p.Name = w.Metadata.Name
	}
	k := keys{vacant: []string{model.BGPPrefix()}} // another peer of this address, or name
	if w.old != nil {
		was := w.old.Entries[0].Key.(model.BGPPeerKey)
		if key.Host == was.Host && key.IP == was.IP {
			key = was // written back where it is
		} else {
			k.deletes = append(k.deletes, was)
		}
	}
	for _, e := range w.entries {
		if at, ok := e.Key.(model.BGPPeerKey); ok && at.Host == key.Host && at.IP == key.IP && at != key || w.old == nil && e.Key == key {
			return keys{}, w.at("spec.peerIP", "%s is a peer already, at %s", key.IP, e.Path)
		}
	}
	k.put(key, p)
	return k, nil
}

// BGPConfiguration is how all nodes speak BGP.
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

	LogSeverityScreen  string   `json:"logSeverityScreen,omitempty" input:"ignored" doc:"Without effect: see FelixConfiguration."`
	ServiceClusterIPs  []string `json:"serviceClusterIPs,omitempty" refused:"addresses of services are not advertised yet"`
	ServiceExternalIPs []string `json:"serviceExternalIPs,omitempty" refused:"addresses of services are not advertised yet"`
	ServiceLBIPs       []string `json:"serviceLoadBalancerIPs,omitempty" refused:"addresses of services are not advertised yet"`
	NodeMeshPassword   string   `json:"nodeMeshPassword,omitempty" refused:"not supported yet"`
	BindMode           string   `json:"bindMode,omitempty" refused:"not supported yet: see BGPListenAddresses"`
}

// PrefixAdvertisement gives communities to the blocks inside a prefix.
type PrefixAdvertisement struct {
	CIDR        CIDR     `json:"cidr" doc:"The prefix that they are inside of."`
	Communities []string `json:"communities" doc:"Communities, as 64512:100, or of three numbers (RFC 8092), or names from communities."`
}

// Community is a name for a community.
type Community struct {
	Name  string `json:"name" doc:"Its name."`
	Value string `json:"value" doc:"Its numbers, as 64512:100 or 64512:100:200."`
}

// A bgpSetting is one of the agent's that a BGPConfiguration has.
type bgpSetting struct {
	name, json string
	field      func(*BGPConfiguration) any
}

var bgpSettings = []bgpSetting{
	{"BGPListenPort", "listenPort", func(c *BGPConfiguration) any { return &c.ListenPort }},
	{"BGPRestartTimeSecs", "nodeMeshMaxRestartTime", func(c *BGPConfiguration) any { return &c.NodeMeshMaxRestartTime }},
	{"BGPHoldTimeSecs", "holdTime", func(c *BGPConfiguration) any { return &c.HoldTime }},
	{"BGPKeepaliveTimeSecs", "keepaliveTime", func(c *BGPConfiguration) any { return &c.KeepaliveTime }},
	{"BGPMaxPrefixes", "maxPrefixes", func(c *BGPConfiguration) any { return &c.MaxPrefixes }},
	{"BGPCommunities", "prefixAdvertisements", func(c *BGPConfiguration) any { return &c.PrefixAdvertisements }},
}

func isBGPSetting(name string) bool {
	return slices.ContainsFunc(bgpSettings, func(s bgpSetting) bool { return s.name == name })
}

var bgpConfigurationKind = row[BGPConfiguration]{
	Kind: Kind{
		Name: "BGPConfiguration", Plural: "BGPConfigurations", Aliases: []string{"bgpconfig", "bgpconfigs"},
		ranges: append(prefix(model.ConfigPrefix()), model.KeyRange(model.BGPMeshKey{}), model.KeyRange(model.BGPGlobalASKey{})),
		of:     ofBGPConfiguration, always: isDefault,
		Columns: []Column{
			cell("MESH", false, func(c *BGPConfiguration) string {
				return fmt.Sprint(c.NodeToNodeMeshEnabled == nil || *c.NodeToNodeMeshEnabled)
			}),
			cell("ASNUMBER", false, func(c *BGPConfiguration) string { return text(c.ASNumber) }),
		},
	},
	reads: readBGPConfiguration, writes: writeBGPConfiguration,
}.kind()

func ofBGPConfiguration(e model.Entry) string {
	switch key := e.Key.(type) {
	case model.GlobalConfigKey:
		if !isBGPSetting(key.Name) {
			return ""
		}
	case model.BGPMeshKey, model.BGPGlobalASKey:
	default:
		return ""
	}
	return "default"
}

func readBGPConfiguration(name string, s *Stored, _ model.Entry) *BGPConfiguration {
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
			switch to := bgpSettings[i].field(spec).(type) {
			case *int:
				*to, _ = strconv.Atoi(string(text)) // one that makes no sense is not in force
			case *string:
				*to = string(text)
			case *[]PrefixAdvertisement:
				*to = advertisementsOf(string(text))
			}
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
		now, before := settingText(setting.field(spec)), settingText(setting.field(was))
		if err := checkSetting(setting.name, now); err != nil && now != "" && now != before {
			errs = append(errs, w.at("spec."+setting.json, "%w", err))
		}
		k.set(model.GlobalConfigKey{Name: setting.name}, before, now)
	}
	return k, errors.Join(errs...)
}

// nameCommunities puts the values of communities where their names are.
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

// advertisementsOf reads the text of the setting; one that makes no sense is not in force, and none.
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

func settingText(field any) string {
	switch v := field.(type) {
	case *int:
		if *v != 0 {
			return strconv.Itoa(*v)
		}
	case *string:
		return *v
	case *[]PrefixAdvertisement:
		var list []string
		for _, a := range *v {
			for _, c := range a.Communities {
				list = append(list, a.CIDR.String()+"="+c)
			}
		}
		return strings.Join(list, ",")
	}
	return ""
}

// A peerTime is an option of a peer that is a time.
type peerTime struct {
	field string
	text  *string
	value *int
}

func (p *BGPPeer) times(o *model.PeerOptions) []peerTime {
	return []peerTime{
		{"keepaliveTime", &p.KeepaliveTime, &o.KeepaliveTime}, {"holdTime", &p.HoldTime, &o.HoldTime}, {"maxRestartTime", &p.MaxRestartTime, &o.MaxRestartTime},
	}
}

func (p *BGPPeer) options(r Resource) (model.PeerOptions, error) {
	o := model.PeerOptions{AllowedLocalAS: p.NumAllowedLocalASNumbers, TTLSecurity: p.TTLSecurity}
	if p.LocalASNumber != nil {
		o.LocalAS = p.LocalASNumber.ASNumber
	}
	var err error
	if o.Source, err = model.ParsePeerSource(p.SourceAddress); err != nil {
		return o, r.at("spec.sourceAddress", "%w", err)
	}
	if o.NextHop, err = model.ParseNextHopMode(p.NextHopMode); err != nil {
		return o, r.at("spec.nextHopMode", "%w", err)
	}
	for _, t := range p.times(&o) {
		if *t.text == "" {
			continue
		}
		d, err := time.ParseDuration(*t.text)
		if err != nil || d%time.Second != 0 || d <= 0 {
			return o, r.at("spec."+t.field, "%.32q: want seconds, as 30s", *t.text)
		}
		*t.value = int(d / time.Second)
	}
	return o, nil
}

func (p *BGPPeer) setOptions(o model.PeerOptions) {
	p.NumAllowedLocalASNumbers, p.TTLSecurity = o.AllowedLocalAS, o.TTLSecurity
	if o.LocalAS != 0 {
		p.LocalASNumber = &ASNumber{o.LocalAS}
	}
	if p.SourceAddress = o.Source.String(); o.Source.Any {
		p.SourceAddress = "None"
	}
	switch o.NextHop {
	case model.NextHopSelf:
		p.NextHopMode = "Self"
	case model.NextHopKeep:
		p.NextHopMode = "Keep"
	}
	for _, t := range p.times(&o) {
		if *t.value != 0 {
			*t.text = strconv.Itoa(*t.value) + "s"
		}
	}
}
