// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// namespace is what everything is made in. It is ours where it has the label.
const namespace = "calico-connectivity"

var ours = map[string]string{"app.kubernetes.io/managed-by": "calicoctl"}

// imageOf returns the image of the cluster's agents.
func imageOf(agents []*appsv1.DaemonSet) (string, error) {
	for _, d := range agents {
		for _, c := range d.Spec.Template.Spec.Containers {
			if c.Name == "calico-node" {
				return c.Image, nil
			}
		}
	}
	return "", fmt.Errorf("no DaemonSet has the label k8s-app=calico-node and a container calico-node: name an image that has calicoctl with --image")
}

func meta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

// pod returns one that runs calicoctl on a node, and needs no right. kubelet starts it whatever the scheduler would say.
func pod(image, role, name, node string, args ...string) *corev1.Pod {
	no, yes, user, seconds := false, true, int64(65532), int64(1)
	return &corev1.Pod{ObjectMeta: meta(name, map[string]string{"role": role}), Spec: corev1.PodSpec{
		NodeName: node, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &seconds,
		AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "calicoctl", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: append([]string{"/calicoctl", "connectivity"}, args...),
			// What the strictest profile of a namespace asks for.
			SecurityContext: &corev1.SecurityContext{
				RunAsUser: &user, RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
				Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		}},
	}}
}

// server returns the pod of a node that answers.
func serverPod(image, name, node string) *corev1.Pod {
	p := pod(image, "server", name, node, "serve", "--port", strconv.Itoa(serverPort), "--name", name)
	p.Labels["server"] = name
	return p
}

// serviceOf returns the service of one server, with a node port.
func serviceOf(server string) *corev1.Service {
	families := corev1.IPFamilyPolicyPreferDualStack
	return &corev1.Service{ObjectMeta: meta(server, nil), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, IPFamilyPolicy: &families, Selector: map[string]string{"server": server},
		Ports: []corev1.ServicePort{{Port: serverPort, TargetPort: intstr.FromInt32(serverPort)}},
	}}
}

// policy returns one that lets clients of a role reach the servers, "" = none.
func policy(name, role string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: meta(name, nil), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "server"}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
	}}
	if role != "" {
		from := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}}
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{from}}}
	}
	return p
}

// trouble says why a pod will not do what it is for, "" = it may yet. A server must not end.
func trouble(p *corev1.Pod) string {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded && p.Labels["role"] == "server" {
		return cmp.Or(p.Status.Message, p.Status.Reason, "it has ended")
	}
	for _, s := range p.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && !slices.Contains([]string{"", "ContainerCreating", "ErrImagePull"}, w.Reason) { // which passes, or becomes ImagePullBackOff
			return w.Reason + ": " + w.Message
		}
	}
	return ""
}
