// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FuzzObject: an object of a tenant's is of its kind, with the fields named that this version doesn't know, or it is named with what can't be read.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"n"},"spec":{"podSelector":{},"ingress":[{"ports":[{"port":80}]}]}}`))
	f.Add([]byte(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p"},"spec":{"podSelector":{},"later":[{"x":1}],"ingress":7}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"NetworkPolicy","metadata":7,"spec":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var u unstructured.Unstructured
		if u.UnmarshalJSON(data) != nil {
			return
		}
		m := mirror[networkingv1.NetworkPolicy, *networkingv1.NetworkPolicy]{keep: func(p *networkingv1.NetworkPolicy, raw Raw) *networkingv1.NetworkPolicy {
			if !slices.IsSorted(raw.Unknown) || raw.Object == nil {
				t.Errorf("%+v", raw)
			}
			return p
		}}
		k := m.convert(&u).(*kept[*networkingv1.NetworkPolicy])
		if k.name.Name != u.GetName() || k.err == nil && (k.value == nil || k.value.Name != u.GetName()) {
			t.Errorf("%s is %+v", data, k)
		}
		if k.err != nil && (k.about.Kind != u.GetKind() || !strings.HasPrefix(k.err.Error(), "it can't be read: ")) {
			t.Errorf("%+v", k)
		}
	})
}
