// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// IPNAT maps an outside address to one of the endpoint's.
type IPNAT struct {
	InternalIP Address `json:"internalIP" doc:"One of the endpoint's addresses."`
	ExternalIP Address `json:"externalIP" doc:"The address that leads to it from elsewhere."`
}

// EndpointPort is a named port.
type EndpointPort struct {
	Name     string   `json:"name" doc:"Name that rules use."`
	Protocol Protocol `json:"protocol" doc:"TCP, UDP or SCTP."`
	Port     int      `json:"port" doc:"1 to 65535."`
	HostPort int      `json:"hostPort,omitempty" input:"ignored" doc:"Without effect: the plugin portmap says so."`
	HostIP   string   `json:"hostIP,omitempty" input:"ignored" doc:"Without effect, likewise."`
}

// WorkloadEndpoint is an interface of a pod, container or virtual machine.
type WorkloadEndpoint struct {
	Orchestrator  string         `json:"orchestrator" doc:"What started the workload: k8s, cni or another."`
	Workload      string         `json:"workload" doc:"Name of the workload; that of a pod is <namespace>.<pod>."`
	Node          string         `json:"node" doc:"The node that it runs on."`
	Endpoint      string         `json:"endpoint" doc:"Name of the interface in it, as eth0."`
	Pod           string         `json:"pod,omitempty" doc:"Name of the pod."`
	ContainerID   string         `json:"containerID,omitempty" doc:"The pod's sandbox."`
	IPNetworks    []CIDR         `json:"ipNetworks,omitempty" doc:"Its addresses."`
	IPNATs        []IPNAT        `json:"ipNATs,omitempty" doc:"Addresses that lead to it from elsewhere."`
	IPv4Gateway   *Address       `json:"ipv4Gateway,omitempty" doc:"Next hop of a virtual machine."`
	IPv6Gateway   *Address       `json:"ipv6Gateway,omitempty" doc:"The same for IPv6."`
	Profiles      []string       `json:"profiles,omitempty" doc:"Profiles, which decide where no policy applies."`
	InterfaceName string         `json:"interfaceName,omitempty" doc:"The host's end of it."`
	MAC           *model.MAC     `json:"mac,omitempty" doc:"MAC address of the interface in the workload."`
	Ports         []EndpointPort `json:"ports,omitempty" doc:"Named ports."`

	ServiceAccount string `json:"serviceAccountName,omitempty" input:"ignored" doc:"Without effect: a profile ksa.<namespace>.<name> says so."`
	QoSControls    string `json:"qosControls,omitempty" input:"ignored" doc:"Without effect: the plugin bandwidth says so."`
	Spoofing       string `json:"allowSpoofedSourcePrefixes,omitempty" only:"[]" refused:"workloads send from their own addresses alone"`
}

// workloadName returns an endpoint's name: node, orchestrator, workload and endpoint, joined by -, with each - inside them
// doubled.
func workloadName(key model.WorkloadEndpointKey, pod string) string {
	parts := []string{key.Host, key.Orchestrator, cmp.Or(pod, key.Workload), key.Endpoint}
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "-", "--")
	}
	return strings.Join(parts, "-")
}

var workloadEndpointKind = newKind(one(readWorkloadEndpoint), writeWorkloadEndpoint, Kind{
	Name: "WorkloadEndpoint", Plural: "WorkloadEndpoints", Plain: true, Aliases: []string{"wep", "weps"}, Namespaced: true, Labelled: true,
	ranges: prefix(model.HostPrefix("")), of: keyed[model.WorkloadEndpointKey], mayDelete: ownWorkload, narrow: narrowWorkloadEndpoint, fields: map[string]string{"name": "interfaceName"},
	words: []string{
		"profile_ids", "profiles", "ipv4_nets", "ipNetworks", "ipv6_nets", "ipNetworks", "ipv4_nat", "ipNATs", "ipv6_nat", "ipNATs",
		"int_ip", "internalIP", "ext_ip", "externalIP",
	},
	alike: func(s *Stored) []string { // a pod's or another workload's name, which means its endpoint if it has only one
		key := s.Entries[0].Key.(model.WorkloadEndpointKey)
		_, pod := key.Pod()
		return []string{cmp.Or(pod, s.Metadata.Name), key.Workload}
	},
	Columns: []Column{
		cell("WORKLOAD", false, func(w *WorkloadEndpoint) string { return w.Workload }),
		cell("NODE", false, func(w *WorkloadEndpoint) string { return w.Node }),
		cell("NETWORKS", false, func(w *WorkloadEndpoint) string { return joined(w.IPNetworks) }),
		cell("INTERFACE", false, func(w *WorkloadEndpoint) string { return w.InterfaceName }),
		cell("PROFILES", true, func(w *WorkloadEndpoint) string { return strings.Join(w.Profiles, ",") }),
	},
})

func readWorkloadEndpoint(key model.WorkloadEndpointKey, w *model.WorkloadEndpoint, s *Stored) *WorkloadEndpoint {
	namespace, pod := key.Pod()
	s.Metadata.Namespace, s.Metadata.Name = cmp.Or(namespace, "default"), workloadName(key, pod)
	spec := &WorkloadEndpoint{Orchestrator: key.Orchestrator, Workload: key.Workload, Node: key.Host, Endpoint: key.Endpoint, Pod: pod}
	if w != nil {
		s.Metadata.Labels = w.Labels
		spec.ContainerID, spec.Profiles, spec.InterfaceName = w.ContainerID, w.ProfileIDs, w.Name
		spec.IPNetworks = cidrs(slices.Concat(w.IPv4Nets, w.IPv6Nets))
		spec.IPNATs = converted(slices.Concat(w.IPv4NAT, w.IPv6NAT), func(n model.NAT) IPNAT { return IPNAT{Address{n.IntIP}, Address{n.ExtIP}} })
		spec.IPv4Gateway, spec.IPv6Gateway = optionalAddress(w.IPv4Gateway), optionalAddress(w.IPv6Gateway)
		if !w.MAC.IsZero() {
			spec.MAC = &w.MAC
		}
		spec.Ports = converted(w.Ports, func(p model.EndpointPort) EndpointPort {
			return EndpointPort{Name: p.Name, Protocol: Protocol{p.Protocol}, Port: int(p.Port)}
		})
	}
	return spec
}

func (w *WorkloadEndpoint) key() model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: w.Node, Orchestrator: w.Orchestrator, Workload: w.Workload, Endpoint: w.Endpoint}
}

// narrowWorkloadEndpoint returns the key of the spec, else the key from which workloadName most likely made the name.
func narrowWorkloadEndpoint(r Resource) []model.Range {
	if spec := specOf[WorkloadEndpoint](r); spec.Node != "" {
		return keyRanges(spec.key())
	}
	parts := strings.Split(strings.ReplaceAll(r.Metadata.Name, "--", "\x00"), "-")
	if len(parts) != 4 {
		return nil
	}
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "\x00", "-")
	}
	if parts[1] == "k8s" {
		parts[2] = r.Metadata.Namespace + "." + parts[2]
	}
	return keyRanges(model.WorkloadEndpointKey{Host: parts[0], Orchestrator: parts[1], Workload: parts[2], Endpoint: parts[3]})
}

func ownWorkload(s Stored, _ []model.Entry) error {
	if o := s.Entries[0].Key.(model.WorkloadEndpointKey).Orchestrator; o == "k8s" || o == "cni" {
		return errors.New("it belongs to the CNI plugin: delete the pod or container")
	}
	return nil
}

func writeWorkloadEndpoint(r writing[WorkloadEndpoint]) (keys, error) {
	spec := r.spec
	if spec.Orchestrator == "k8s" || spec.Orchestrator == "cni" {
		return keys{}, r.at("spec.orchestrator", "endpoints of %s belong to the CNI plugin", spec.Orchestrator)
	}
	for _, f := range []struct{ name, value string }{{"orchestrator", spec.Orchestrator}, {"workload", spec.Workload}, {"node", spec.Node}, {"endpoint", spec.Endpoint}, {"interfaceName", spec.InterfaceName}} {
		if f.value == "" {
			return keys{}, r.at("spec."+f.name, "missing")
		}
	}
	key := spec.key()
	if want := workloadName(key, ""); r.Metadata.Name != want || r.Metadata.Namespace != "default" {
		return keys{}, r.at("metadata.name", "want %s in namespace default: an endpoint's name is its node, orchestrator, workload and endpoint", want)
	}
	w := model.WorkloadEndpoint{State: model.StateActive}
	if r.old != nil {
		if stored, ok := parsed[model.WorkloadEndpoint](r.old.Entries[0]); ok {
			w = stored // fields that the resource doesn't have stay
		}
	}
	w.Name, w.ProfileIDs, w.Labels, w.ContainerID = spec.InterfaceName, spec.Profiles, r.Metadata.Labels, spec.ContainerID
	w.IPv4Gateway, w.IPv6Gateway = spec.IPv4Gateway.orNone(), spec.IPv6Gateway.orNone()
	w.IPv4Nets, w.IPv6Nets = byFamily(prefixes(spec.IPNetworks), func(p netip.Prefix) bool { return p.Addr().Is4() })
	nats := converted(spec.IPNATs, func(n IPNAT) model.NAT { return model.NAT{IntIP: n.InternalIP.Addr, ExtIP: n.ExternalIP.Addr} })
	w.IPv4NAT, w.IPv6NAT = byFamily(nats, func(n model.NAT) bool { return n.IntIP.Is4() })
	w.MAC, w.Ports = orZero(spec.MAC), nil
	for _, p := range spec.Ports {
		if p.Port < 1 || p.Port > 65535 {
			return keys{}, r.at("spec.ports", "%d: want 1 to 65535", p.Port)
		}
		w.Ports = append(w.Ports, model.EndpointPort{Name: p.Name, Protocol: p.Protocol.Number, Port: uint16(p.Port)})
	}
	return put(key, w), nil
}
