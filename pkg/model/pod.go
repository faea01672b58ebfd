// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strings"
)

// Labels of a pod's endpoint that name the pod's namespace and service account.
const (
	LabelNamespace      = "calico/k8s_ns"
	LabelServiceAccount = "projectcalico.org/serviceaccount"
)

// NamespaceLabel begins the names of a namespace's labels in its profile, from which its pods have them.
const NamespaceLabel = "k8s_ns/label/"

// reservedLabels are prefixes of labels that pods and network sets can't give themselves: those of namespaces and service
// accounts are among them. The last one is that of the tags of namespaces, which selectors treat as labels.
var reservedLabels = [...]string{"projectcalico.org/", "calico/", "pcns.", "pcsa.", "k8s_ns/", "k8s_sa/", NamespaceProfile("")}

// ReservedLabel reports whether no pod or network set can give itself the label.
func ReservedLabel(name string) bool {
	return slices.ContainsFunc(reservedLabels[:], func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// PodLabels returns the labels of a pod's endpoint: the pod's own, without reserved names (so that no pod labels itself
// into another namespace), plus its namespace and, if any, its service account.
func PodLabels(namespace, serviceAccount string, own map[string]string) map[string]string {
	labels := withoutReserved(own)
	labels[LabelNamespace] = namespace
	if serviceAccount != "" {
		labels[LabelServiceAccount] = serviceAccount
	}
	return labels
}

// withoutReserved returns a copy of labels without reserved names, with room for a few more.
func withoutReserved(own map[string]string) map[string]string {
	labels := make(map[string]string, len(own)+3)
	for name, value := range own {
		if !ReservedLabel(name) {
			labels[name] = value
		}
	}
	return labels
}

// KubernetesPolicy reports whether a policy of this name is the controllers', made from one of Kubernetes.
func KubernetesPolicy(name string) bool {
	return strings.HasPrefix(name, "knp.") || strings.HasPrefix(name, "kcnp.")
}

// PodProfiles returns the profiles of a pod's endpoint: its namespace's and its service account's.
func PodProfiles(namespace, serviceAccount string) []string {
	profiles := []string{NamespaceProfile(namespace)}
	if serviceAccount != "" {
		profiles = append(profiles, ServiceAccountProfile(namespace, serviceAccount))
	}
	return profiles
}

// NamespaceProfile returns the name of a Kubernetes namespace's profile.
func NamespaceProfile(namespace string) string { return "k8s_ns." + namespace }

// ServiceAccountProfile returns the name of a service account's profile.
func ServiceAccountProfile(namespace, name string) string { return "ksa." + namespace + "." + name }
