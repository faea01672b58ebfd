// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"reflect"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// TestStrictly: a watch of NetworkPolicies decodes those that their type has all fields of, and leaves no field of others away.
func TestStrictly(t *testing.T) {
	k := kinds[reflect.TypeFor[networkingv1.NetworkPolicy]()]
	negotiated := k.configure(&rest.Config{}).NegotiatedSerializer
	objects, _, _, err := runtime.NewClientNegotiator(negotiated, k.version).StreamDecoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}}}`:           "*v1.NetworkPolicy",
		`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}, "new": 1}}`: "*unstructured.Unstructured",
		`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": 1}}`:            "*unstructured.Unstructured",
		`{"apiVersion": "v1", "kind": "Status", "code": 410}`:                                                    "*v1.Status",
	} {
		o, _, err := objects.Decode([]byte(text), nil, nil)
		if got := fmt.Sprintf("%T", o); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}
