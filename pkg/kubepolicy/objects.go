// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/model"
)

// Namespace returns the profile of a namespace: its name is a tag of its pods, its labels become theirs under prefixed
// names, and all traffic is allowed if no policy applies.
func Namespace(ns *corev1.Namespace) []model.Put {
	name := model.NamespaceProfile(ns.Name)
	allow := func() []model.Rule { return []model.Rule{{Action: model.ActionAllow}} }
	return []model.Put{
		{Key: model.ProfileRulesKey{Profile: name}, Value: model.Rules{Inbound: allow(), Outbound: allow()}},
		{Key: model.ProfileTagsKey{Profile: name}, Value: model.Tags{name}},
		{Key: model.ProfileLabelsKey{Profile: name}, Value: inherited(namespaceLabels, ns.Labels)},
	}
}

// ServiceAccount returns the profile of a service account: its labels, without rules.
func ServiceAccount(sa *corev1.ServiceAccount) []model.Put {
	name := model.ServiceAccountProfile(sa.Namespace, sa.Name)
	return []model.Put{{Key: model.ProfileLabelsKey{Profile: name}, Value: inherited(serviceAccountLabels, sa.Labels)}}
}

func inherited(prefix string, labels map[string]string) model.Labels {
	out := make(model.Labels, len(labels))
	for key, value := range labels {
		out[prefix+key] = value
	}
	return out
}

// Workload is the part of a pod's endpoint that comes from the pod.
type Workload struct {
	Labels   map[string]string
	Ports    []model.EndpointPort
	Profiles []string
}

// Pod returns the pod's part of its endpoint. Labels that would state where it belongs are left out. Its ports are the
// named ports of its containers, and of init containers that keep running; ports with equal names all count.
func Pod(pod *corev1.Pod) (Workload, []Problem) {
	r := &report{object: "Pod " + pod.Namespace + "/" + pod.Name}
	account := pod.Spec.ServiceAccountName
	w := Workload{Labels: model.PodLabels(pod.Namespace, account, pod.Labels), Profiles: model.PodProfiles(pod.Namespace, account)}
	for _, key := range slices.Sorted(maps.Keys(pod.Labels)) {
		if model.ReservedLabel(key) {
			r.add("metadata.labels", fmt.Sprintf("%.64s is not taken over: such labels say where a pod belongs", key), "give it another name")
		}
	}
	for i, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			w.Ports = append(w.Ports, r.containerPorts(fmt.Sprintf("spec.initContainers[%d]", i), c.Ports)...)
		}
	}
	for i, c := range pod.Spec.Containers {
		w.Ports = append(w.Ports, r.containerPorts(fmt.Sprintf("spec.containers[%d]", i), c.Ports)...)
	}
	return w, r.all()
}

func (r *report) containerPorts(field string, ports []corev1.ContainerPort) []model.EndpointPort {
	var out []model.EndpointPort
	for i, p := range ports {
		if p.Name == "" {
			continue
		}
		protocol, err := model.ProtocolTCP, error(nil)
		if p.Protocol != "" {
			protocol, err = parseProtocol(string(p.Protocol))
		}
		if err == nil {
			_, err = namedPort(p.Name)
		}
		if err == nil {
			_, err = portRange(p.ContainerPort, p.ContainerPort)
		}
		if err != nil {
			r.add(fmt.Sprintf("%s.ports[%d]", field, i), err.Error()+", so no policy finds the port by its name", "correct it, or write its number in policies")
			continue
		}
		out = append(out, model.EndpointPort{Name: p.Name, Protocol: protocol, Port: uint16(p.ContainerPort)})
	}
	return out
}

// NodeOf returns what a ClusterNetworkPolicy needs of a node.
func NodeOf(node *corev1.Node) (Node, []Problem) {
	r := &report{object: "Node " + node.Name}
	n := Node{Labels: node.Labels}
	for i, a := range node.Status.Addresses {
		addr, err := ParseNodeAddr(a.Address)
		switch {
		case err == nil && !slices.Contains(n.Addrs, addr):
			n.Addrs = append(n.Addrs, addr)
		case err != nil && (a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP):
			r.add(fmt.Sprintf("status.addresses[%d]", i), err.Error()+", so no policy finds the node at it", "correct what the kubelet or the cloud's controller says of the node")
		}
	}
	return n, r.all()
}

// ParseNodeAddr parses an address that packets of a node can have.
func ParseNodeAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Is4In6() || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%.64q is not an address like 192.0.2.1 or 2001:db8::1", s)
	}
	return a, nil
}
