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

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
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
	text       string // all that decides the resource, as a document
}

// document is an object's text.
type document struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   metadata       `json:"metadata"`
	Spec       map[string]any `json:"spec"`
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ObjectOf returns what is kept of an object of a kind.
func ObjectOf(k *resource.Kind, u *unstructured.Unstructured) Object {
	o := Object{
		about:      corev1.ObjectReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()},
		by:         resource.By{UID: string(u.GetUID()), Created: u.GetCreationTimestamp().UTC().Format(time.RFC3339), TakeOver: u.GetAnnotations()[takeOver] == "true"},
		generation: u.GetGeneration(),
	}
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &status); err == nil {
		o.conditions = status.Status.Conditions
	}
	annotations := maps.Clone(u.GetAnnotations())
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		return name == takeOver || name == notAccepted || strings.HasPrefix(name, "kubectl.kubernetes.io/")
	})
	spec, _ := u.Object["spec"].(map[string]any)
	text, err := json.Marshal(document{resource.APIVersion, k.Name, metadata{u.GetName(), u.GetNamespace(), u.GetLabels(), annotations}, spec})
	if err == nil { // it came as JSON
		o.text = string(text)
	}
	return o
}

// resource returns the resource that the object asks for.
func (o Object) resource() (r resource.Resource, err error) {
	all, err := resource.Decode("", []byte(o.text))
	if err != nil {
		return r, errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	puts, _ := resource.Alone(all[0]) // who applies it tells the error
	for _, p := range puts {
		if kubepolicy.Derived(model.Entry{Key: p.Key, Value: p.Value}) {
			return r, errors.New("calico-controllers make what is called so themselves: choose another name, or another tier")
		}
	}
	return all[0], nil
}

// closed returns what takes the place of a policy until it is in order, if the object is one: a policy that selects the same endpoints and
// allows nothing.
func (o Object) closed() (r resource.Resource, is bool) {
	var d document
	if err := json.Unmarshal([]byte(o.text), &d); err != nil || d.Kind != "GlobalNetworkPolicy" && d.Kind != "NetworkPolicy" {
		return r, false
	}
	d.Spec = closed(d.Spec)
	for _, unread := range []string{"", "order"} {
		delete(d.Spec, unread)
		text, err := json.Marshal(d)
		if err == nil {
			o.text = string(text)
			r, err = o.resource()
		}
		if err == nil {
			r.Metadata.Annotations = map[string]string{notAccepted: "true"}
			return r, true
		}
	}
	return r, false
}

// closed returns what a policy's spec says of whom it is about.
func closed(spec map[string]any) map[string]any {
	about := map[string]any{}
	for _, field := range []string{"tier", "order", "selector", "namespaceSelector", "serviceAccountSelector", "types", "doNotTrack", "preDNAT", "applyOnForward"} {
		if v, there := spec[field]; there {
			about[field] = v
		}
	}
	if about["types"] == nil {
		var types []any
		if spec["ingress"] != nil || spec["egress"] == nil {
			types = append(types, "Ingress")
		}
		if spec["egress"] != nil {
			types = append(types, "Egress")
		}
		about["types"] = types
	}
	return about
}
