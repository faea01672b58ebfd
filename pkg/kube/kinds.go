// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"errors"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	policyv1alpha1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// Kind is the set of API object types that this package knows. To add one, name it here and add a row to kinds.
type Kind interface {
	corev1.Pod | corev1.Node | corev1.Namespace | corev1.Service | corev1.ServiceAccount | corev1.Secret | corev1.ConfigMap | corev1.Event |
		appsv1.DaemonSet | networkingv1.NetworkPolicy | coordinationv1.Lease | policyv1alpha2.ClusterNetworkPolicy |
		policyv1alpha1.AdminNetworkPolicy | policyv1alpha1.BaselineAdminNetworkPolicy | certificatesv1.CertificateSigningRequest |
		discoveryv1.EndpointSlice | NetworkService | NetworkServiceEndpoint
}

// A kind describes where the API serves the objects of a Kind.
type kind struct {
	version    schema.GroupVersion
	name       string
	resource   string
	namespaced bool
	// custom: the API knows the kind from a CustomResourceDefinition. It speaks JSON only, and its objects may have any shape
	// that this definition allows.
	custom bool
}

var leases = coordinationv1.SchemeGroupVersion

var kinds = map[reflect.Type]kind{
	reflect.TypeFor[corev1.Pod]():                                {corev1.SchemeGroupVersion, "Pod", "pods", true, false},
	reflect.TypeFor[corev1.Node]():                               {corev1.SchemeGroupVersion, "Node", "nodes", false, false},
	reflect.TypeFor[corev1.Namespace]():                          {corev1.SchemeGroupVersion, "Namespace", "namespaces", false, false},
	reflect.TypeFor[corev1.Service]():                            {corev1.SchemeGroupVersion, "Service", "services", true, false},
	reflect.TypeFor[corev1.ServiceAccount]():                     {corev1.SchemeGroupVersion, "ServiceAccount", "serviceaccounts", true, false},
	reflect.TypeFor[corev1.Secret]():                             {corev1.SchemeGroupVersion, "Secret", "secrets", true, false},
	reflect.TypeFor[corev1.ConfigMap]():                          {corev1.SchemeGroupVersion, "ConfigMap", "configmaps", true, false},
	reflect.TypeFor[corev1.Event]():                              {corev1.SchemeGroupVersion, "Event", "events", true, false},
	reflect.TypeFor[appsv1.DaemonSet]():                          {appsv1.SchemeGroupVersion, "DaemonSet", "daemonsets", true, false},
	reflect.TypeFor[networkingv1.NetworkPolicy]():                {networkingv1.SchemeGroupVersion, "NetworkPolicy", "networkpolicies", true, false},
	reflect.TypeFor[discoveryv1.EndpointSlice]():                 {discoveryv1.SchemeGroupVersion, "EndpointSlice", "endpointslices", true, false},
	reflect.TypeFor[coordinationv1.Lease]():                      {leases, "Lease", "leases", true, false},
	reflect.TypeFor[certificatesv1.CertificateSigningRequest]():  {certificatesv1.SchemeGroupVersion, "CertificateSigningRequest", "certificatesigningrequests", false, false},
	reflect.TypeFor[policyv1alpha2.ClusterNetworkPolicy]():       {schema.GroupVersion(policyv1alpha2.GroupVersion), "ClusterNetworkPolicy", "clusternetworkpolicies", false, true},
	reflect.TypeFor[policyv1alpha1.AdminNetworkPolicy]():         {schema.GroupVersion(policyv1alpha1.GroupVersion), "AdminNetworkPolicy", "adminnetworkpolicies", false, true},
	reflect.TypeFor[policyv1alpha1.BaselineAdminNetworkPolicy](): {schema.GroupVersion(policyv1alpha1.GroupVersion), "BaselineAdminNetworkPolicy", "baselineadminnetworkpolicies", false, true},
	reflect.TypeFor[NetworkService]():                            {networkServices, "NetworkService", "networkservices", true, true},
	reflect.TypeFor[NetworkServiceEndpoint]():                    {networkServices, "NetworkServiceEndpoint", "networkserviceendpoints", true, true},
}

func kindOf[T Kind]() kind { return kinds[reflect.TypeFor[T]()] }

// metaOf returns an object's metadata.
func metaOf[T Kind](o *T) metav1.Object { return any(o).(metav1.Object) }

// scheme knows only the types in kinds.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, networkingv1.AddToScheme, coordinationv1.AddToScheme, discoveryv1.AddToScheme, certificatesv1.AddToScheme, policyv1alpha1.Install, policyv1alpha2.Install, addNetworkServices} {
		if err := add(s); err != nil {
			panic(err) // two types with the same name
		}
	}
	return s
}()

var (
	codecs     = serializer.NewCodecFactory(scheme)
	parameters = runtime.NewParameterCodec(scheme)
)

const protobuf = "application/vnd.kubernetes.protobuf"

// configure returns the configuration of the REST client for the kind's group.
func (k kind) configure(base *rest.Config) *rest.Config {
	c := rest.CopyConfig(base)
	c.APIPath = "/apis"
	if k.version.Group == "" {
		c.APIPath = "/api"
	}
	c.GroupVersion = &k.version
	c.NegotiatedSerializer = codecs.WithoutConversion()
	if !k.custom {
		c.ContentType, c.AcceptContentTypes = protobuf, protobuf+","+runtime.ContentTypeJSON // a policy of 8,000 peers: 2 ms instead of 25
	}
	if k.resource == "networkpolicies" { // a field that the Go type lacks may narrow a policy's meaning
		c.NegotiatedSerializer = strictly{serializer.NewCodecFactory(scheme, serializer.EnableStrict).WithoutConversion()}
	}
	return c
}

// errLater is in the chain if an object in protobuf has fields that the Go type lacks; only JSON names them.
var errLater = errors.New("it has fields of a later version")

// strictly decodes objects whose fields the Go type has all; others become untyped, or fail with errLater.
type strictly struct{ runtime.NegotiatedSerializer }

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (s strictly) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return orUntyped{s.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type orUntyped struct{ runtime.Decoder }

// Decode implements runtime.Decoder.
func (d orUntyped) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, actual, err := d.Decoder.Decode(data, defaults, into)
	var envelope runtime.Unknown
	if sized, is := o.(interface{ Size() int }); is && into == nil && actual.Group == networkingv1.GroupName && bytes.HasPrefix(data, []byte("k8s\x00")) &&
		envelope.Unmarshal(data[4:]) == nil && sized.Size() != len(envelope.Raw) {
		return nil, actual, errLater
	}
	if err != nil && into == nil {
		return unstructured.UnstructuredJSONScheme.Decode(data, defaults, nil)
	}
	return o, actual, err
}

func (k kind) resourceOf() schema.GroupVersionResource { return k.version.WithResource(k.resource) }

// Reference returns a reference to an object, for an event.
func Reference[T Kind](o *T) corev1.ObjectReference {
	k, m := kindOf[T](), metaOf(o)
	return corev1.ObjectReference{
		APIVersion: k.version.String(), Kind: k.name, Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(),
	}
}
