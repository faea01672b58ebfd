// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/calico-go/calico/pkg/model"
)

// older is a document of apiVersion v1, which is read as the resource of projectcalico.org/v3 that means the same.
type older interface{ resource(r *Resource) }

var olderKinds = map[string]func() older{
	"ippool": func() older { return &olderPool{} }, "policy": func() older { return &olderPolicy{} }, "profile": func() older { return &olderProfile{} },
	"hostendpoint": func() older { return &olderHostEndpoint{} }, "workloadendpoint": func() older { return &olderWorkload{} },
	"bgppeer": func() older { return &olderPeer{} }, "node": func() older { return &olderNode{} },
}

// decodeOlder reads a document of apiVersion v1.
func decodeOlder(d *decoder, n *yaml.Node, r *Resource) {
	make, ok := olderKinds[strings.ToLower(r.Kind)]
	if !ok {
		d.fail(n, "kind", "%.64q is no kind of v1: want ipPool, policy, profile, hostEndpoint, workloadEndpoint, bgpPeer or node", r.Kind)
		return
	}
	doc, body := make(), *n
	body.Content = nil
	for i := 0; i < len(n.Content); i += 2 {
		if name := n.Content[i].Value; name != "apiVersion" && name != "kind" { // these are read
			body.Content = append(body.Content, n.Content[i:i+2]...)
		}
	}
	d.into(&body, "", reflect.ValueOf(doc).Elem())
	if len(d.errs) > 0 {
		return
	}
	if p, ok := doc.(*olderPolicy); ok && p.Spec.Selector == nil {
		d.fail(n, "spec.selector", `missing: "" and "all()" pick every endpoint`)
		return
	}
	r.APIVersion = APIVersion
	doc.resource(r)
	if r.Metadata.Name == "" {
		d.fail(n, "metadata", "it names nothing: want a name, a pool its cidr, a peer scope and peerIP, and with scope node a node")
	}
}

type olderEncapsulation struct{ mode Encapsulation }

func (e *olderEncapsulation) UnmarshalText(text []byte) error {
	var s string
	err := word(&s, text, []string{"always", "cross-subnet"})
	e.mode = map[string]Encapsulation{"always": Always, "cross-subnet": CrossSubnet}[s]
	return err
}

type olderPool struct {
	Metadata struct {
		CIDR CIDR `json:"cidr"`
	} `json:"metadata"`
	Spec struct {
		IPIP *struct {
			Enabled bool                `json:"enabled"`
			Mode    *olderEncapsulation `json:"mode"`
		} `json:"ipip"`
		NATOutgoing bool           `json:"nat-outgoing"`
		Disabled    bool           `json:"disabled"`
		VXLANMode   *Encapsulation `json:"vxlanMode"`
		BlockSize   int            `json:"blockSize"`
	} `json:"spec"`
}

func (o *olderPool) resource(r *Resource) {
	spec := &IPPool{CIDR: o.Metadata.CIDR, NATOutgoing: o.Spec.NATOutgoing, Disabled: o.Spec.Disabled, BlockSize: o.Spec.BlockSize, IPIPMode: Never, VXLANMode: Never}
	if o.Spec.VXLANMode != nil {
		spec.VXLANMode = *o.Spec.VXLANMode
	}
	if o.Spec.IPIP != nil && o.Spec.IPIP.Enabled {
		spec.IPIPMode = Always
		if o.Spec.IPIP.Mode != nil {
			spec.IPIPMode = o.Spec.IPIP.Mode.mode
		}
	}
	r.Kind, r.Spec = "IPPool", spec
	if spec.CIDR.IsValid() {
		r.Metadata.Name = model.Pool{CIDR: spec.CIDR.Prefix}.ResourceName()
	}
}

type olderEntity struct {
	Tag         string `json:"tag"`
	NotTag      string `json:"notTag"`
	Net         *CIDR  `json:"net"`
	NotNet      *CIDR  `json:"notNet"`
	Nets        []CIDR `json:"nets"`
	NotNets     []CIDR `json:"notNets"`
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
	Metadata struct {
		Name        string            `json:"name"`
		Tier        string            `json:"tier"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Order      *float64     `json:"order"`
		Selector   *string      `json:"selector"`
		Ingress    []olderRule  `json:"ingress"`
		Egress     []olderRule  `json:"egress"`
		DoNotTrack bool         `json:"doNotTrack"`
		PreDNAT    bool         `json:"preDNAT"`
		Types      []PolicyType `json:"types"`
	} `json:"spec"`
}

func (o *olderPolicy) resource(r *Resource) {
	r.Kind, r.Metadata.Name, r.Metadata.Annotations = "GlobalNetworkPolicy", o.Metadata.Name, o.Metadata.Annotations
	r.Spec = &Policy{Tier: o.Metadata.Tier, Order: o.Spec.Order, Selector: orZero(o.Spec.Selector), Types: o.Spec.Types,
		Ingress: olderRules(o.Spec.Ingress), Egress: olderRules(o.Spec.Egress), DoNotTrack: o.Spec.DoNotTrack, PreDNAT: o.Spec.PreDNAT}
}

type olderProfile struct {
	Metadata struct {
		Name   string            `json:"name"`
		Tags   []string          `json:"tags"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Ingress []olderRule `json:"ingress"`
		Egress  []olderRule `json:"egress"`
	} `json:"spec"`
}

func (o *olderProfile) resource(r *Resource) {
	r.Kind, r.Metadata.Name = "Profile", o.Metadata.Name
	r.Spec = &Profile{Ingress: olderRules(o.Spec.Ingress), Egress: olderRules(o.Spec.Egress), LabelsToApply: o.Metadata.Labels, Tags: o.Metadata.Tags}
}

type olderHostEndpoint struct {
	Metadata struct {
		Name   string            `json:"name"`
		Node   string            `json:"node"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		InterfaceName string    `json:"interfaceName"`
		ExpectedIPs   []Address `json:"expectedIPs"`
		Profiles      []string  `json:"profiles"`
	} `json:"spec"`
}

func (o *olderHostEndpoint) resource(r *Resource) {
	r.Kind, r.Metadata.Name, r.Metadata.Labels = "HostEndpoint", o.Metadata.Name, o.Metadata.Labels
	r.Spec = &HostEndpoint{Node: o.Metadata.Node, InterfaceName: o.Spec.InterfaceName, ExpectedIPs: o.Spec.ExpectedIPs, Profiles: o.Spec.Profiles}
}

type olderWorkload struct {
	Metadata struct {
		Name             string            `json:"name"`
		Workload         string            `json:"workload"`
		Orchestrator     string            `json:"orchestrator"`
		Node             string            `json:"node"`
		ActiveInstanceID string            `json:"activeInstanceID"`
		Labels           map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		IPNetworks    []CIDR         `json:"ipNetworks"`
		IPNATs        []IPNAT        `json:"ipNATs"`
		IPv4Gateway   *Address       `json:"ipv4Gateway"`
		IPv6Gateway   *Address       `json:"ipv6Gateway"`
		Profiles      []string       `json:"profiles"`
		InterfaceName string         `json:"interfaceName"`
		MAC           *model.MAC     `json:"mac"`
		Ports         []EndpointPort `json:"ports"`
	} `json:"spec"`
}

func (o *olderWorkload) resource(r *Resource) {
	m, s := o.Metadata, o.Spec
	r.Kind, r.Metadata.Namespace, r.Metadata.Labels = "WorkloadEndpoint", "default", m.Labels
	r.Metadata.Name = workloadName(model.WorkloadEndpointKey{Host: m.Node, Orchestrator: m.Orchestrator, Workload: m.Workload, Endpoint: m.Name}, "")
	r.Spec = &WorkloadEndpoint{Orchestrator: m.Orchestrator, Workload: m.Workload, Node: m.Node, Endpoint: m.Name, ContainerID: m.ActiveInstanceID,
		IPNetworks: s.IPNetworks, IPNATs: s.IPNATs, IPv4Gateway: s.IPv4Gateway, IPv6Gateway: s.IPv6Gateway, Profiles: s.Profiles,
		InterfaceName: s.InterfaceName, MAC: s.MAC, Ports: s.Ports}
}

type olderPeer struct {
	Metadata struct {
		Scope  string   `json:"scope"`
		Node   string   `json:"node"`
		PeerIP *Address `json:"peerIP"`
	} `json:"metadata"`
	Spec struct {
		ASNumber     *ASNumber     `json:"asNumber"`
		PasswordFile string        `json:"passwordFile"`
		EBGPMultihop int           `json:"ebgpMultihop"`
		Import       []RouteFilter `json:"import"`
		Export       []RouteFilter `json:"export"`
	} `json:"spec"`
}

func (o *olderPeer) resource(r *Resource) {
	s := o.Spec
	r.Kind = "BGPPeer"
	r.Spec = &BGPPeer{Node: o.Metadata.Node, PeerIP: o.Metadata.PeerIP, ASNumber: s.ASNumber, PasswordFile: s.PasswordFile, EBGPMultihop: s.EBGPMultihop, Import: s.Import, Export: s.Export}
	if o.Metadata.PeerIP != nil && (o.Metadata.Scope == "node") == (o.Metadata.Node != "") {
		r.Metadata.Name = peerName(o.Metadata.Node, o.Metadata.PeerIP.Addr)
	}
}

type olderNode struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		BGP *NodeBGP `json:"bgp"`
	} `json:"spec"`
}

func (o *olderNode) resource(r *Resource) {
	r.Kind, r.Metadata.Name, r.Spec = "Node", o.Metadata.Name, &Node{BGP: o.Spec.BGP}
}
