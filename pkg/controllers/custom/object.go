// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/calico-go/calico/pkg/resource"
)

// takeOver is the annotation of an object that is to replace a resource of another writer, notAccepted that of a policy that takes the place
// of one that is not in order.
const (
	takeOver    = "projectcalico.org/take-over"
	notAccepted = "projectcalico.org/not-accepted"
)

// Object is what is kept of an object of the Kubernetes API.
type Object struct {
	about      corev1.ObjectReference
	by         resource.By
	generation int64
	conditions []metav1.Condition
	resource   resource.Resource
	err        error // why it can't be read
	// closed, for a policy, is what takes its place until it is in order: one that selects the same endpoints and allows nothing.
	closed *resource.Resource
	text   string // all that decides the resource
}

// ObjectOf returns what is kept of an object of a kind.
func ObjectOf(k *resource.Kind, u *unstructured.Unstructured) Object {
	o := Object{
		about:      corev1.ObjectReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()},
		by:         resource.By{UID: string(u.GetUID()), Created: u.GetCreationTimestamp().UTC().Format(time.RFC3339), TakeOver: u.GetAnnotations()[takeOver] == "true"},
		generation: u.GetGeneration(),
	}
	var status struct {
		Status struct{ Conditions []metav1.Condition }
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &status); err == nil {
		o.conditions = status.Status.Conditions
	}
	annotations := maps.Clone(u.GetAnnotations())
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		return name == takeOver || name == notAccepted || strings.HasPrefix(name, "kubectl.kubernetes.io/")
	})
	metadata := map[string]any{"name": u.GetName(), "namespace": u.GetNamespace(), "labels": u.GetLabels(), "annotations": annotations}
	maps.DeleteFunc(metadata, func(_ string, v any) bool {
		m, is := v.(map[string]string)
		return v == "" || is && len(m) == 0
	})
	spec, _ := u.Object["spec"].(map[string]any)
	read := func(spec map[string]any) (resource.Resource, string, error) {
		text, err := json.Marshal(map[string]any{"apiVersion": resource.APIVersion, "kind": k.Name, "metadata": metadata, "spec": spec})
		if err != nil {
			return resource.Resource{}, "", err
		}
		all, err := resource.Decode("", text)
		if err != nil {
			return resource.Resource{}, string(text), errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		return all[0], string(text), nil
	}
	o.resource, o.text, o.err = read(spec)
	if k.Name == "GlobalNetworkPolicy" || k.Name == "NetworkPolicy" {
		if r, _, err := read(closed(spec)); err == nil {
			r.Metadata.Annotations = map[string]string{notAccepted: "true"}
			o.closed = &r
		}
	}
	return o
}

// closed returns the spec of a policy without its rules.
func closed(spec map[string]any) map[string]any {
	spec = maps.Clone(spec)
	if spec["types"] == nil {
		var types []any
		if spec["ingress"] != nil || spec["egress"] == nil {
			types = append(types, "Ingress")
		}
		if spec["egress"] != nil {
			types = append(types, "Egress")
		}
		spec["types"] = types
	}
	delete(spec, "ingress")
	delete(spec, "egress")
	return spec
}
