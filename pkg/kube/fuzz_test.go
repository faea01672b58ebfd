// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// FuzzObject: a tenant's object either is of its kind, with the fields named that this version doesn't know, or the error names what can't
// be read.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"n"},"spec":{"podSelector":{},"ingress":[{"ports":[{"port":80}]}]}}`))
	f.Add([]byte(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p"},"spec":{"podSelector":{},"later":[{"x":1}],"ingress":7}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"NetworkPolicy","metadata":7,"spec":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var u unstructured.Unstructured
		if u.UnmarshalJSON(data) != nil {
			return
		}
		told := false
		m := mirror[*networkingv1.NetworkPolicy]{keep: func(o runtime.Object) (*networkingv1.NetworkPolicy, error) {
			p, raw, err := objectOf[networkingv1.NetworkPolicy](o)
			if err == nil && (!slices.IsSorted(raw.Unknown) || raw.Object == nil) {
				t.Errorf("%+v", raw)
			}
			return p, err
		}, handler: Handler[*networkingv1.NetworkPolicy]{
			Set: func(p *networkingv1.NetworkPolicy) { told = p.Name == u.GetName() },
			Bad: func(about corev1.ObjectReference, err error) {
				told = about.Kind == u.GetKind() && strings.HasPrefix(err.Error(), "it can't be read: ")
			},
		}}
		k := m.convert(&u)
		if k.tell(); k.name.Name != u.GetName() || !told {
			t.Errorf("%s is %+v", data, k)
		}
	})
}
