// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/calico-go/calico/pkg/model"
)

// olderMetadata is the metadata of documents of apiVersion v1. Each kind has some of the fields.
type olderMetadata struct {
	Name             string            `json:"name"`
	Tier             string            `json:"tier"`
	Workload         string            `json:"workload"`
	Orchestrator     string            `json:"orchestrator"`
	Node             string            `json:"node"`
	ActiveInstanceID string            `json:"activeInstanceID"`
	Scope            string            `json:"scope"`
	PeerIP           *PeerAddress      `json:"peerIP"`
	CIDR             CIDR              `json:"cidr"`
	Tags             []string          `json:"tags"`
	Labels           map[string]string `json:"labels"`
	Annotations      map[string]string `json:"annotations"`
}

type olderPool struct {
	IPIP *struct {
		Enabled bool                `json:"enabled"`
		Mode    *olderEncapsulation `json:"mode"`
	} `json:"ipip"`
	NATOutgoing bool           `json:"nat-outgoing"`
	Disabled    bool           `json:"disabled"`
	VXLANMode   *Encapsulation `json:"vxlanMode"`
	BlockSize   int            `json:"blockSize"`
}

type olderEncapsulation struct{ mode Encapsulation }

func (e *olderEncapsulation) UnmarshalText(text []byte) error {
	var s string
	err := word(&s, text, []string{"always", "cross-subnet"})
	e.mode = map[string]Encapsulation{"always": Always, "cross-subnet": CrossSubnet}[s]
	return err
}

type olderEntity struct {
	Tag         string `json:"tag"`
	NotTag      string `json:"notTag"`
	Net         *Net   `json:"net"`
	NotNet      *Net   `json:"notNet"`
	Nets        []Net  `json:"nets"`
	NotNets     []Net  `json:"notNets"`
	Selector    string `json:"selector"`
	NotSelector string `json:"notSelector"`
	Ports       []Port `json:"ports"`
	NotPorts    []Port `json:"notPorts"`
}

func (o *olderEntity) entity() *EntityRule {
	if o == nil {
		return nil
	}
	e := EntityRule{Tag: o.Tag, NotTag: o.NotTag, Nets: o.Nets, NotNets: o.NotNets, Selector: o.Selector, NotSelector: o.NotSelector, Ports: o.Ports, NotPorts: o.NotPorts}
	if o.Net != nil {
		e.Nets = append(e.Nets, *o.Net)
	}
	if o.NotNet != nil {
		e.NotNets = append(e.NotNets, *o.NotNet)
	}
	return &e
}

type olderRule struct {
	Action      RuleAction   `json:"action"`
	IPVersion   int          `json:"ipVersion"`
	Protocol    *Protocol    `json:"protocol"`
	NotProtocol *Protocol    `json:"notProtocol"`
	ICMP        *ICMP        `json:"icmp"`
	NotICMP     *ICMP        `json:"notICMP"`
	Source      *olderEntity `json:"source"`
	Destination *olderEntity `json:"destination"`
}

func olderRules(list []olderRule) []Rule {
	return converted(list, func(o olderRule) Rule {
		return Rule{Action: o.Action, IPVersion: o.IPVersion, Protocol: o.Protocol, NotProtocol: o.NotProtocol, ICMP: o.ICMP, NotICMP: o.NotICMP,
			Source: o.Source.entity(), Destination: o.Destination.entity()}
	})
}

type olderPolicy struct {
	Order      *float64     `json:"order"`
	Selector   *string      `json:"selector"`
	Ingress    []olderRule  `json:"ingress"`
	Egress     []olderRule  `json:"egress"`
	DoNotTrack bool         `json:"doNotTrack"`
	PreDNAT    bool         `json:"preDNAT"`
	Types      []PolicyType `json:"types"`
}

// An olderKind is a kind of apiVersion v1: the fields that its documents may have, and how they are read.
type olderKind struct {
	metadata, spec []string
	decode         func(d *decoder, n *yaml.Node, r *Resource)
}

// olderKinds convert documents of apiVersion v1 to equivalent resources of projectcalico.org/v3.
var olderKinds = map[string]olderKind{
	"ippool": older("IPPool", "cidr", "ipip nat-outgoing disabled vxlanMode blockSize", func(r *Resource, m olderMetadata, o *olderPool) {
		spec := &IPPool{CIDR: m.CIDR, NATOutgoing: o.NATOutgoing, Disabled: o.Disabled, BlockSize: o.BlockSize, IPIPMode: Never, VXLANMode: Never}
		if o.VXLANMode != nil {
			spec.VXLANMode = *o.VXLANMode
		}
		if o.IPIP != nil && o.IPIP.Enabled {
			spec.IPIPMode = Always
			if o.IPIP.Mode != nil {
				spec.IPIPMode = o.IPIP.Mode.mode
			}
		}
		if r.Spec = spec; m.CIDR.IsValid() {
			r.Metadata.Name = model.Pool{CIDR: m.CIDR.Prefix}.ResourceName()
		}
	}),
	"policy": older("GlobalNetworkPolicy", "name tier annotations", "order selector ingress egress doNotTrack preDNAT types", func(r *Resource, m olderMetadata, o *olderPolicy) {
		r.Metadata.Annotations = m.Annotations
		r.Spec = &Policy{Tier: m.Tier, Order: o.Order, Selector: orZero(o.Selector), Types: o.Types, Ingress: olderRules(o.Ingress), Egress: olderRules(o.Egress),
			DoNotTrack: o.DoNotTrack, PreDNAT: o.PreDNAT}
	}),
	"profile": older("Profile", "name tags labels", "ingress egress", func(r *Resource, m olderMetadata, o *olderPolicy) {
		r.Spec = &Profile{Ingress: olderRules(o.Ingress), Egress: olderRules(o.Egress), LabelsToApply: m.Labels, Tags: m.Tags}
	}),
	"hostendpoint": older("HostEndpoint", "name node labels", "interfaceName expectedIPs profiles", func(r *Resource, m olderMetadata, h *HostEndpoint) {
		r.Metadata.Labels, h.Node = m.Labels, m.Node
	}),
	"workloadendpoint": older("WorkloadEndpoint", "name workload orchestrator node activeInstanceID labels",
		"ipNetworks ipNATs ipv4Gateway ipv6Gateway profiles interfaceName mac ports", func(r *Resource, m olderMetadata, w *WorkloadEndpoint) {
			w.Orchestrator, w.Workload, w.Node, w.Endpoint, w.ContainerID = m.Orchestrator, m.Workload, m.Node, m.Name, m.ActiveInstanceID
			r.Metadata = Metadata{Namespace: "default", Name: workloadName(w.key(), ""), Labels: m.Labels}
		}),
	"bgppeer": older("BGPPeer", "scope node peerIP", "asNumber passwordFile ebgpMultihop import export", func(r *Resource, m olderMetadata, p *BGPPeer) {
		p.Node, p.PeerIP = m.Node, m.PeerIP
		if m.PeerIP != nil && (m.Scope == "node") == (m.Node != "") {
			r.Metadata.Name = peerName(m.Node, m.PeerIP.Addr)
		}
	}),
	"node": older("Node", "name", "bgp orchRefs", func(*Resource, olderMetadata, *Node) {}),
}

// older returns a kind whose documents' metadata and spec have these fields.
func older[S any](kind, metadata, spec string, convert func(r *Resource, m olderMetadata, spec *S)) olderKind {
	k := olderKind{metadata: strings.Fields(metadata), spec: strings.Fields(spec)}
	k.decode = func(d *decoder, n *yaml.Node, r *Resource) {
		var doc struct {
			Metadata olderMetadata `json:"metadata"`
			Spec     S             `json:"spec"`
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if names := map[string][]string{"metadata": k.metadata, "spec": k.spec}[n.Content[i].Value]; names != nil {
				d.only(n.Content[i+1], n.Content[i].Value, names)
			}
		}
		if d.into(n, "", reflect.ValueOf(&doc).Elem()); len(d.errs) > 0 {
			return
		}
		r.Kind, r.Metadata.Name, r.Spec = kind, doc.Metadata.Name, &doc.Spec
		convert(r, doc.Metadata, &doc.Spec)
	}
	return k
}

// only removes fields other than names from a mapping, and reports them as errors.
func (d *decoder) only(n *yaml.Node, field string, names []string) {
	if n.Kind != yaml.MappingNode {
		return
	}
	var known []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		if key := n.Content[i]; key.Kind == yaml.ScalarNode && !slices.Contains(names, key.Value) {
			d.fail(key, join(field, key.Value), "unknown field%s", suggest(key.Value, names))
		} else {
			known = append(known, n.Content[i:i+2]...)
		}
	}
	n.Content = known
}

// decodeOlder decodes a document of apiVersion v1.
func decodeOlder(d *decoder, n *yaml.Node, r *Resource) {
	kind, ok := olderKinds[strings.ToLower(r.Kind)]
	if !ok {
		d.fail(n, "kind", "%.64q is no kind of v1: want ipPool, policy, profile, hostEndpoint, workloadEndpoint, bgpPeer or node", r.Kind)
		return
	}
	body := *n
	body.Content = nil
	for i := 0; i < len(n.Content); i += 2 {
		if name := n.Content[i].Value; name != "apiVersion" && name != "kind" { // these are known already
			body.Content = append(body.Content, n.Content[i:i+2]...)
		}
	}
	kind.decode(d, &body, r)
	switch {
	case len(d.errs) > 0:
		return
	case r.Kind == "GlobalNetworkPolicy" && d.nodes["spec.selector"] == nil:
		d.fail(n, "spec.selector", `missing: "" and "all()" pick every endpoint`)
		return
	}
	if r.APIVersion, r.older = APIVersion, true; r.Metadata.Name == "" {
		d.fail(n, "metadata", "it names nothing: want a name, a pool its cidr, a peer scope and peerIP, and with scope node a node")
	}
}
