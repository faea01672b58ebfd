// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// TestStrictly: a watch of NetworkPolicies decodes those whose fields the type has all, and drops no field of others.
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
	objects, _, _, err = runtime.NewClientNegotiator(negotiated, k.version).StreamDecoder(protobuf, nil)
	if err != nil {
		t.Fatal(err)
	}
	np := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{}}}}}}
	if o, _, err := objects.Decode(inProtobuf(t, "NetworkPolicy", np), nil, nil); err != nil || !reflect.DeepEqual(o.(*networkingv1.NetworkPolicy).Spec, np.Spec) {
		t.Errorf("in protobuf: %v, %v", o, err)
	}
	if o, _, err := objects.Decode(inProtobuf(t, "NetworkPolicy", np, laterField...), nil, nil); !errors.Is(err, errLater) {
		t.Errorf("in protobuf, of a later version: %v, %v", o, err)
	}
}

// inProtobuf returns an object as the API sends it, with more bytes after what the Go type has.
func inProtobuf(t *testing.T, kind string, o interface{ Marshal() ([]byte, error) }, more ...byte) []byte {
	raw, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: kind}, Raw: append(raw, more...)}
	data, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), data...)
}

// laterField is number 99, which holds 1.
var laterField = []byte{0x98, 0x06, 0x01}

// TestGetRaw: GetRaw decodes an object as the watch does.
func TestGetRaw(t *testing.T) {
	status, body := http.StatusOK, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	client, err := New(Config{Name: "test", APIRoot: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, is := range []struct {
		spec    string
		typed   bool
		unknown []string
	}{
		{`{"podSelector": {}}`, true, nil},
		{`{"podSelector": {}, "new": 1}`, false, []string{"spec.new"}},
	} {
		body = `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": "n"}, "spec": ` + is.spec + `}`
		o, raw, err := GetRaw[networkingv1.NetworkPolicy](t.Context(), client, "n", "p")
		if err != nil || o.Name != "p" || (raw.Object == nil) != is.typed || !slices.Equal(raw.Unknown, is.unknown) {
			t.Errorf("%s: %v, %+v, %v", is.spec, o, raw, err)
		}
	}
	body = `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": "n"}, "spec": {"podSelector": 1}}`
	if _, _, err := GetRaw[networkingv1.NetworkPolicy](t.Context(), client, "n", "p"); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that can't be read: %v", err)
	}
	status, body = http.StatusNotFound, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "details": {"name": "p", "kind": "networkpolicies"}, "code": 404}`
	if _, _, err := GetRaw[networkingv1.NetworkPolicy](t.Context(), client, "n", "p"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that is gone: %v", err)
	}
}

// TestListRaw: so does a list; if objects in protobuf have unknown fields, JSON names them.
func TestListRaw(t *testing.T) {
	const good = `{"metadata": {"name": "good", "namespace": "n"}, "spec": {"podSelector": {}}}`
	for items, want := range map[string]string{
		good: "good true []",
		`{"metadata": {"name": "later", "namespace": "n"}, "spec": {"podSelector": {}, "new": 1}}, ` + good: "later false [spec.new], good false []",
	} {
		inBinary := items != good
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			if r.URL.Query().Get("watch") != "" {
				w.WriteHeader(http.StatusUnprocessableEntity)
				_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}`)
				return
			}
			if strings.Contains(r.Header.Get("Accept"), protobuf) && inBinary {
				w.Header().Set("Content-Type", protobuf)
				_, _ = w.Write(inProtobuf(t, "NetworkPolicyList", &networkingv1.NetworkPolicyList{}, laterField...))
				return
			}
			_, _ = io.WriteString(w, `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicyList", "metadata": {"resourceVersion": "1"}, "items": [`+items+`]}`)
		}))
		defer server.Close()
		client, err := New(Config{Name: "test", APIRoot: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ctx, stop := context.WithCancel(t.Context())
		var got []string
		keep := func(o *networkingv1.NetworkPolicy, raw Raw) string {
			return fmt.Sprint(o.Name, " ", raw.Object == nil, " ", raw.Unknown)
		}
		err = WatchRaw(ctx, client, Select{}, keep, Handler[string]{Set: func(text string) { got = append(got, text) }, Synced: stop})
		if text := strings.Join(got, ", "); err != nil || text != want {
			t.Errorf("%s: %s, %v; want %s", items, text, err, want)
		}
	}
}
