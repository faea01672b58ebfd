// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// world is a small cluster, in which everything meets everything else soon. Its host is h1; pods on h2, nodes and the
// outside are behind eth0.
type world struct {
	namespaces map[string]*corev1.Namespace
	pods       []placed
	outside    []netip.Addr // nodes, pods in their network, and what is no part of the cluster
}

// placed is a pod with its addresses.
type placed struct {
	*corev1.Pod
	addrs []netip.Addr
	iface string // "" = on the other host
}

// chooser chooses at random.
type chooser struct{ *rand.Rand }

func one[T any](c chooser, of ...T) T { return of[c.IntN(len(of))] }

func (c chooser) labels() map[string]string {
	out := map[string]string{}
	for range c.IntN(4) {
		out[one(c, "a", "b", "example.com/c")] = one(c, "x", "w", "")
	}
	return out
}

func (c chooser) world() *world {
	w := &world{namespaces: map[string]*corev1.Namespace{}}
	for _, name := range []string{"n1", "n2", "n3"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: c.labels()}}
		ns.Labels["kubernetes.io/metadata.name"] = name
		w.namespaces[name] = ns
	}
	for i := range 7 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: one(c, "n1", "n2", "n3"), Name: fmt.Sprintf("p%d", i), Labels: c.labels()}}
		pod.Spec.ServiceAccountName = one(c, "", "s1")
		for range c.IntN(3) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Ports: c.containerPorts()})
		}
		if c.IntN(3) == 0 {
			always := corev1.ContainerRestartPolicyAlways
			pod.Spec.InitContainers = []corev1.Container{{Ports: c.containerPorts(), RestartPolicy: one(c, nil, &always)}}
		}
		p := placed{Pod: pod, addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i % 2), byte(i)})}}
		if i%3 == 0 {
			p.addrs = append(p.addrs, netip.MustParseAddr(fmt.Sprintf("fd00::%d:%d", i%2, i)))
		}
		if i < 4 {
			p.iface = fmt.Sprintf("cali%d", i)
		}
		w.pods = append(w.pods, p)
	}
	for _, s := range []string{"192.0.2.1", "192.0.2.2", "10.0.0.99", "2001:db8::1"} {
		w.outside = append(w.outside, netip.MustParseAddr(s))
	}
	return w
}

func (c chooser) containerPorts() []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for range c.IntN(3) {
		out = append(out, corev1.ContainerPort{Name: one(c, "web", "dns", ""), ContainerPort: one[int32](c, 53, 80, 81), Protocol: one(c, corev1.ProtocolTCP, corev1.ProtocolUDP)})
	}
	return out
}

func (c chooser) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	if c.IntN(3) == 0 {
		s.MatchLabels = map[string]string{one(c, "a", "b", "example.com/c"): one(c, "x", "w", "", "not a value")}
	}
	for range c.IntN(3) - 1 {
		e := metav1.LabelSelectorRequirement{Key: one(c, "a", "b", "example.com/c", "kubernetes.io/metadata.name")}
		e.Operator = one(c, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
		if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
			for range 1 + c.IntN(2) {
				e.Values = append(e.Values, one(c, "x", "w", "", "n1", "n2", "not a value"))
			}
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

func (c chooser) peers() []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for range c.IntN(3) {
		var p networkingv1.NetworkPolicyPeer
		switch c.IntN(5) {
		case 0:
			p.PodSelector = c.selector()
		case 1:
			p.NamespaceSelector = c.selector()
		case 2:
			p.PodSelector, p.NamespaceSelector = c.selector(), c.selector()
		case 3:
			p.IPBlock = &networkingv1.IPBlock{CIDR: one(c, "0.0.0.0/0", "10.0.0.0/24", "010.000.000.255/8", "192.0.2.1/32", "::/0", "fd00::/112")}
			if p.IPBlock.CIDR[0] == '0' {
				p.IPBlock.Except = one(c, nil, []string{"10.0.1.0/24"}, []string{"10.0.0.1/32", "10.0.1.7/24"}, []string{"0.0.0.0/0"})
			}
		default: // of the next version, or nothing
			p = one(c, p, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like", Values: []string{"x"}}}}})
		}
		out = append(out, p)
	}
	return out
}

func (c chooser) ports() []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	for range c.IntN(3) {
		var p networkingv1.NetworkPolicyPort
		if c.IntN(2) == 0 {
			p.Protocol = new(one(c, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP))
		}
		if c.IntN(4) > 0 {
			p.Port = new(one(c, intstr.FromInt32(80), intstr.FromInt32(53), intstr.FromString("web"), intstr.FromString("dns"), intstr.FromString("none"), intstr.FromInt32(0)))
			if c.IntN(4) == 0 {
				p.EndPort = new(one[int32](c, 80, 81, 52))
			}
		}
		out = append(out, p)
	}
	return out
}

func (c chooser) policy(name string) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: one(c, "n1", "n2", "n3"), Name: name}}
	np.Spec.PodSelector = *c.selector()
	for range c.IntN(3) {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: c.peers(), Ports: c.ports()})
	}
	for range c.IntN(3) {
		np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: c.peers(), Ports: c.ports()})
	}
	in, out := networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	np.Spec.PolicyTypes = one(c, nil, nil, []networkingv1.PolicyType{in}, []networkingv1.PolicyType{out}, []networkingv1.PolicyType{in, out})
	return np
}

// state is what the engine of h1 makes of the world and what else is stored.
func (w *world) state(t *testing.T, puts ...model.Put) *policy.State {
	t.Helper()
	for _, ns := range w.namespaces {
		puts = append(puts, kubepolicy.Namespace(ns)...)
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "s1", Labels: map[string]string{"a": "x"}}}
		puts = append(puts, kubepolicy.ServiceAccount(sa)...)
		puts = append(puts, model.Put{ // is no pod either, although it is in the namespace and has its labels
			Key:   model.NetworkSetKey{Name: ns.Name + "/all"},
			Value: model.NetworkSet{Nets: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, Labels: map[string]string{"a": "x", "b": "w"}},
		})
	}
	for _, p := range w.pods {
		k := model.WorkloadEndpointKey{Host: "h1", Orchestrator: "k8s", Workload: p.Namespace + "." + p.Name, Endpoint: "eth0"}
		own, _ := kubepolicy.Pod(p.Pod)
		e := model.WorkloadEndpoint{State: model.StateActive, Name: p.iface, ProfileIDs: own.Profiles, Labels: own.Labels, Ports: own.Ports}
		if p.iface == "" {
			k.Host, e.Name = "h2", "cali0"
		}
		for _, a := range p.addrs {
			if a.Is4() {
				e.IPv4Nets = append(e.IPv4Nets, netip.PrefixFrom(a, 32))
			} else {
				e.IPv6Nets = append(e.IPv6Nets, netip.PrefixFrom(a, 128))
			}
		}
		puts = append(puts, model.Put{Key: k, Value: e})
	}
	puts = append(puts, model.Put{
		Key:   model.HostEndpointKey{Host: "h2", Endpoint: "eth0"}, // is no pod, whatever it is labelled
		Value: model.HostEndpoint{ExpectedIPv4Addrs: w.outside[1:2], Labels: map[string]string{"a": "x", "b": "w"}},
	})
	engine := policy.NewEngine("h1")
	engine.SetPrefixes([]string{"cali"})
	engine.SetInterfaces([]policy.Interface{{Name: "eth0"}})
	for _, put := range puts {
		data, err := model.FormatValue(put.Value)
		if err != nil {
			t.Fatal(err)
		}
		v, err := model.ParseValue(put.Key, data)
		if err != nil {
			t.Fatal(err)
		}
		engine.Update(model.Entry{Path: put.Key.Path(), Key: put.Key, Value: v, Revision: 1, Created: 1})
	}
	for path, err := range engine.Invalid() {
		t.Fatalf("%s: %v", path, err)
	}
	st := &policy.State{}
	if err := st.Apply(engine.Flush()); err != nil {
		t.Fatal(err)
	}
	return st
}

// flow is the first packet of a connection.
type flow struct {
	src, dst netip.Addr
	protocol model.Protocol
	port     uint16
}

// flows are all that tell policies of this world apart.
func (w *world) flows() []flow {
	addrs := slices.Clone(w.outside)
	for _, p := range w.pods {
		addrs = append(addrs, p.addrs...)
	}
	var out []flow
	for _, src := range addrs {
		for _, dst := range addrs {
			if src.Is4() != dst.Is4() || w.at(src) == "" && w.at(dst) == "" {
				continue
			}
			for _, p := range []model.Protocol{model.ProtocolTCP, model.ProtocolUDP, model.ProtocolSCTP} {
				for _, port := range []uint16{53, 80, 81} {
					out = append(out, flow{src, dst, p, port})
				}
			}
			out = append(out, flow{src, dst, model.ProtocolICMP, 0})
		}
	}
	return out
}

// at is the interface that has an address, "" = it is behind eth0.
func (w *world) at(a netip.Addr) string {
	if p := w.pod(a); p != nil {
		return p.iface
	}
	return ""
}

func (w *world) pod(a netip.Addr) *placed {
	for i := range w.pods {
		if slices.Contains(w.pods[i].addrs, a) {
			return &w.pods[i]
		}
	}
	return nil
}

// verdict is what h1 does with a flow that is forwarded.
func (w *world) verdict(st *policy.State, f flow) policy.Result {
	p := policy.Packet{In: "eth0", Out: "eth0", Src: f.src, Dst: f.dst, Protocol: f.protocol, DstPort: f.port, SrcPort: 40000}
	if in := w.at(f.src); in != "" {
		p.In = in
	}
	if out := w.at(f.dst); out != "" {
		p.Out = out
	}
	return policy.Evaluate(policy.Settings{Prefixes: []string{"cali"}, EndpointToHost: policy.ToHostAccept}, st, p)
}
