// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"net/netip"
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

// BGPPeer is a BGP neighbour of all nodes, or of some, or leads from them to other nodes.
type BGPPeer struct {
	Node                     string        `json:"node,omitempty" doc:"The node whose peer it is. Default: all nodes'."`
	NodeSelector             string        `json:"nodeSelector,omitempty" doc:"Selector of the nodes whose peer it is, instead of node."`
	PeerIP                   *PeerAddress  `json:"peerIP,omitempty" doc:"Its address. Required without peerSelector. A TCP port other than 179 may follow, as 192.0.2.1:1790 or [2001:db8::1]:1790."`
	ASNumber                 *ASNumber     `json:"asNumber,omitempty" doc:"Its AS number. Required with peerIP."`
	PeerSelector             string        `json:"peerSelector,omitempty" doc:"Instead of peerIP and asNumber: selector of the nodes that it leads to, at each of their addresses."`
	ReversePeering           string        `json:"reversePeering,omitempty" doc:"Auto (the default): the nodes that peerSelector selects have the others for their peers, with the same settings. Manual: they don't."`
	Filters                  []string      `json:"filters,omitempty" doc:"BGPFilters, in order: of all their rules the first that matches decides, after import and export. A peer with one that doesn't exist is not used."`
	PasswordFile             string        `json:"passwordFile,omitempty" doc:"Ours. File on the nodes with the password of the session (RFC 2385)."`
	EBGPMultihop             int           `json:"ebgpMultihop,omitempty" range:"0,255" doc:"Ours. How many hops away a peer of another AS may be, 0 to 255."`
	NumAllowedLocalASNumbers int           `json:"numAllowedLocalASNumbers,omitempty" range:"0,10" doc:"How often a route's AS path may have the AS that the nodes have: 1 to 10, as where all racks are of one AS."`
	LocalASNumber            *ASNumber     `json:"localASNumber,omitempty" doc:"AS that the nodes have towards these peers."`
	TTLSecurity              int           `json:"ttlSecurity,omitempty" range:"0,254" doc:"How many hops away it is at most (RFC 5082); not beside ebgpMultihop."`
	KeepaliveTime            string        `json:"keepaliveTime,omitempty" doc:"As of the BGPConfiguration, for this peer."`
	HoldTime                 string        `json:"holdTime,omitempty" doc:"Ours. As of the BGPConfiguration, for this peer."`
	MaxRestartTime           string        `json:"maxRestartTime,omitempty" doc:"How long its routes are kept while it restarts, as 120s."`
	SourceAddress            string        `json:"sourceAddress,omitempty" doc:"Address that the nodes speak from: UseNodeIP (the default), None (that of the link that leads to the peer), or an address (ours)."`
	NextHopMode              string        `json:"nextHopMode,omitempty" doc:"Next hop of what a route reflector passes on to it: Auto (the default) and Keep leave it, Self is the reflector."`
	Import                   []RouteFilter `json:"import,omitempty" doc:"Ours. Which of its routes are taken: the first filter that matches decides."`
	Export                   []RouteFilter `json:"export,omitempty" doc:"Ours. Which routes it is told, likewise."`

	Password              anything `json:"password,omitempty" refused:"secrets are not supported: write passwordFile, a file on the nodes"`
	KeepOriginalNextHop   bool     `json:"keepOriginalNextHop,omitempty" only:"false" refused:"write nextHopMode: Keep"`
	LocalWorkloadSelector string   `json:"localWorkloadSelector,omitempty" refused:"not supported"`
	ReachableBy           string   `json:"reachableBy,omitempty" only:"" refused:"the agent sets no routes to peers: set one on the nodes"`
}

func (BGPPeer) validations() []Validation {
	return []Validation{
		{"has(self.peerIP) != has(self.peerSelector)", "peerIP: a peer has peerIP or peerSelector"},
		{"has(self.peerIP) == has(self.asNumber)", "asNumber: with peerIP, and with that alone"},
		{"!has(self.node) || !has(self.nodeSelector)", "nodeSelector: a peer has node or nodeSelector, not both"},
	}
}

var bgpPeerKind = newKind(one(readPeer), writePeer, Kind{
	Name: "BGPPeer", Plural: "BGPPeers",
	ranges: prefix(model.BGPPrefix(), model.ConfigPrefix(), model.HostPrefix("")), of: keyed[model.BGPPeerKey],
	words: []string{"as_num", "asNumber"}, fields: map[string]string{"ip": "peerIP"},
	custom: &custom{columns: []string{"Node", "node", "Node selector", "nodeSelector", "Peer-IP", "peerIP", "Peer selector", "peerSelector", "ASN", "asNumber"}},
	Columns: []Column{
		cell("PEERIP", false, func(p *BGPPeer) string { return text(p.PeerIP) }),
		cell("NODE", false, func(p *BGPPeer) string { return cmp.Or(p.Node, p.NodeSelector, "(global)") }),
		cell("ASN", false, func(p *BGPPeer) string { return text(p.ASNumber) }),
	},
})

func readPeer(key model.BGPPeerKey, p *model.BGPPeer, s *Stored) *BGPPeer {
	s.Metadata.Name = cmp.Or(key.Name, peerName(key.Host, key.IP))
	spec := &BGPPeer{Node: key.Host}
	if key.Name == "" {
		spec.PeerIP = &PeerAddress{Addr: key.IP}
	}
	if p == nil {
		return spec
	}
	if p.IP.IsValid() {
		spec.PeerIP, spec.ASNumber = &PeerAddress{p.IP, uint16(p.Options.Port)}, &ASNumber{p.AS}
	}
	spec.PasswordFile, spec.EBGPMultihop = p.PasswordFile, p.EBGPMultihop
	spec.Node, spec.NodeSelector, spec.PeerSelector = cmp.Or(key.Host, p.Host), p.NodeSelector, p.PeerSelector
	if p.OneWay {
		spec.ReversePeering = "Manual"
	}
	spec.setOptions(p.Options)
	spec.Import, spec.Export, spec.Filters = filters(p.Import), filters(p.Export), p.Filters
	if key.Name == "" {
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
	case spec.PeerSelector != "":
	case spec.PeerIP == nil:
		return keys{}, w.at("spec.peerIP", "missing")
	case spec.ASNumber == nil:
		return keys{}, w.at("spec.asNumber", "missing")
	}
	options, err := spec.options(w.Resource)
	if err != nil {
		return keys{}, err
	}
	p := model.BGPPeer{Options: options, PasswordFile: spec.PasswordFile, EBGPMultihop: spec.EBGPMultihop, Import: modelFilters(spec.Import), Export: modelFilters(spec.Export), Filters: spec.Filters, Meta: w.meta}
	if spec.PeerIP != nil {
		p.IP = spec.PeerIP.Addr
	}
	if spec.ASNumber != nil {
		p.AS = spec.ASNumber.ASNumber
	}
	if p.OneWay, err = model.ParseReversePeering(spec.ReversePeering); err != nil {
		return keys{}, w.at("spec.reversePeering", "%w", err)
	}
	key := model.BGPPeerKey{Host: spec.Node, IP: p.IP}
	switch {
	case spec.NodeSelector != "" || spec.PeerSelector != "": // which older keys can't say
		key = model.BGPPeerKey{Name: w.Metadata.Name}
		p.Host, p.NodeSelector, p.PeerSelector = spec.Node, spec.NodeSelector, spec.PeerSelector
	case w.Metadata.Name != peerName(key.Host, key.IP):
		p.Name = w.Metadata.Name
	}
	k := keys{vacant: []string{model.BGPPrefix()}} // another peer with this address or name
	if w.old != nil {
		was := w.old.Entries[0].Key.(model.BGPPeerKey)
		if key.Host == was.Host && key.IP == was.IP && key.Name == was.Name {
			key = was // it is written back to its place
		} else {
			k.deletes = append(k.deletes, was)
		}
	}
	for _, e := range w.entries {
		if key.Name != "" {
			break // it has no other place
		}
		if at, ok := e.Key.(model.BGPPeerKey); ok && at.Host == key.Host && at.IP == key.IP && at != key || w.old == nil && e.Key == key {
			return keys{}, w.at("spec.peerIP", "%s is a peer already, at %s", key.IP, e.Path)
		}
	}
	k.put(key, p)
	return k, nil
}

// A peerTime is a duration among a peer's options.
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
	if p.PeerIP != nil {
		o.Port = int(p.PeerIP.Port)
	}
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
